"""Services: the stores, model and settings that the runs of one executor share.

A run gets `RunServices`, without the state store and the stream manager: it writes only through its `OwnedSession` and
its `FencedStream`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Literal, NamedTuple, Protocol

from ..clock import Clock, IdSource, random_id, system_clock
from ..errors import InvalidArgument
from ..llm.contract import LLM
from ..llm.named import as_model
from ..stores.blobs.contract import BlobStore
from ..stores.memory.contract import MemoryStore
from ..stores.state.contract import StateStore
from ..stores.usage.contract import UsageStore
from ..streams.contract import StreamManager
from .later.tokens import HookTokens
from .run.fingerprint import Fingerprints
from .run.hooks import Hooks
from .run.model_call import RetryPolicy

Durability = Literal["call", "step"]
"""When the outcome of a tool call becomes durable: with the call, or with the step's commit."""


class StoresLike(Protocol):
    """The stores of one address, as `open_stores` returns them."""

    @property
    def state(self) -> StateStore: ...

    @property
    def streams(self) -> StreamManager: ...

    @property
    def usage(self) -> UsageStore | None: ...


@dataclass(frozen=True, kw_only=True)
class RunServices:
    """What a run uses besides its own session and stream."""

    llm: LLM
    usage: UsageStore | None = None
    memory: MemoryStore | None = None
    blobs: BlobStore | None = None
    suspend_grace_seconds: float | None = None
    durability: Durability = "call"
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    clock: Clock = system_clock
    ids: IdSource = random_id
    hook_tokens: HookTokens = field(default_factory=lambda: HookTokens(None, None))
    """Signs the tokens of deferred calls."""

    @cached_property
    def fingerprints(self) -> Fingerprints:
        """Computes the fingerprints of model requests."""
        return Fingerprints(self.blobs)


@dataclass(frozen=True, kw_only=True)
class Services(RunServices):
    """The stores, the model and the settings of an executor."""

    store: StateStore
    streams: StreamManager
    hooks: list[Hooks] = field(default_factory=list)
    lease_seconds: float = 10.0
    poll_seconds: float = 0.06
    carries: bool = False
    """Whether writes of the state store can carry chunks and usage."""

    @cached_property
    def for_runs(self) -> RunServices:
        """The part of the services that runs may use."""
        return RunServices(**{each.name: getattr(self, each.name) for each in fields(RunServices)})

    @property
    def lease_ms(self) -> int:
        """The length of a lease in milliseconds, the unit of the clock."""
        return int(self.lease_seconds * 1000)


class Given(NamedTuple):
    """The stores and the model that were passed to an executor, in either form."""

    state: StateStore
    streams: StreamManager
    usage: UsageStore | None
    memory: MemoryStore | None
    blobs: BlobStore | None
    llm: LLM


def given_stores(
    state: Any,
    streams: Any,
    llm: Any,
    usage: UsageStore | None,
    memory: MemoryStore | None,
    blobs: BlobStore | None = None,
) -> Given:
    """Return the stores and the model from `(stores, llm)` or `(state_store, stream_manager, llm)`."""
    if isinstance(getattr(state, "state", None), StateStore) and isinstance(
        getattr(state, "streams", None), StreamManager
    ):
        stores = state
        if streams is not None and llm is not None:
            raise InvalidArgument("AgentExecutor(stores, llm) takes only the stores and the model.")
        llm = streams if llm is None else llm
        usage = getattr(stores, "usage", None) if usage is None else usage
        memory = getattr(stores, "memory", None) if memory is None else memory
        blobs = getattr(stores, "blobs", None) if blobs is None else blobs
        state, streams = stores.state, stores.streams
    if isinstance(state, str | StreamManager) or isinstance(streams, str | StateStore) or llm is None:
        raise InvalidArgument(
            "AgentExecutor takes stores and a model, as in AgentExecutor(stores, llm), or a state store, a stream "
            "manager and a model, in this order: open_stores returns stores.state and stores.streams."
        )
    return Given(state, streams, usage, memory, blobs, as_model(llm))
