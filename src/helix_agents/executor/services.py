"""Services: what every run of one executor shares. A value; nothing here decides anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from ..clock import Clock, IdSource, random_id, system_clock
from ..llm.contract import LLM
from ..stores.memory.contract import MemoryStore
from ..stores.state.contract import StateStore
from ..stores.usage.contract import UsageStore
from ..streams.contract import StreamManager
from .run.hooks import Hooks
from .run.model_call import RetryPolicy

Durability = Literal["call", "step"]
"""When the outcome of a tool call becomes durable: with the call, or with the step's commit."""


class StoresLike(Protocol):
    """The stores of one address, as `open_stores` gives them."""

    @property
    def state(self) -> StateStore: ...

    @property
    def streams(self) -> StreamManager: ...

    @property
    def usage(self) -> UsageStore | None: ...


@dataclass(frozen=True)
class Services:
    """The stores, the model and the habits of an executor."""

    store: StateStore
    streams: StreamManager
    llm: LLM
    usage: UsageStore | None = None
    memory: MemoryStore | None = None
    hooks: Sequence[Hooks] = ()
    lease_seconds: float = 10.0
    poll_seconds: float = 0.06
    suspend_grace_seconds: float | None = None
    durability: Durability = "call"
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    clock: Clock = system_clock
    ids: IdSource = random_id

    @property
    def lease_ms(self) -> int:
        """The length of a lease in the unit of the clock."""
        return int(self.lease_seconds * 1000)
