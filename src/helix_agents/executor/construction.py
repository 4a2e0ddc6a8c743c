"""What an executor is built on: the stores of one address and a model, or single stores and a model."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..errors import InvalidArgument
from ..llm.contract import LLM
from ..stores.memory.contract import MemoryStore
from ..stores.state.contract import StateStore
from ..stores.usage.contract import UsageStore
from ..streams.contract import StreamManager


class Given(NamedTuple):
    """The stores and the model, in whichever form they were given."""

    state: StateStore
    streams: StreamManager
    usage: UsageStore | None
    memory: MemoryStore | None
    llm: LLM


def given_stores(state: Any, streams: Any, llm: Any, usage: UsageStore | None, memory: MemoryStore | None) -> Given:
    """Take `(stores, llm)` and `(state_store, stream_manager, llm)` apart."""
    if isinstance(getattr(state, "state", None), StateStore) and isinstance(
        getattr(state, "streams", None), StreamManager
    ):
        stores = state
        if streams is not None and llm is not None:
            raise InvalidArgument("AgentExecutor(stores, llm) takes no more than the stores and the model.")
        llm = streams if llm is None else llm
        usage = getattr(stores, "usage", None) if usage is None else usage
        memory = getattr(stores, "memory", None) if memory is None else memory
        state, streams = stores.state, stores.streams
    if isinstance(state, str | StreamManager) or isinstance(streams, str | StateStore) or llm is None:
        raise InvalidArgument(
            "AgentExecutor takes stores and a model, as in AgentExecutor(stores, llm), or a state store, a stream "
            "manager and a model, in this order: open_stores gives stores.state and stores.streams."
        )
    return Given(state, streams, usage, memory, llm)
