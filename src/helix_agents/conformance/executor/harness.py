"""What the executor checks need from a backend, and small functions that all of them use."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from ...agent import Agent
from ...clock import system_clock
from ...executor import AgentExecutor
from ...llm.contract import LLM
from ...messages import Message, without_id
from ...stores.state.contract import StateStore
from ...stores.usage.contract import UsageStore
from ...streams.contract import StreamManager
from ..harness import Harness, StoreSet
from ..registry import Registry

EXECUTOR: Registry[Harness] = Registry()
"""Every check of the executor."""

check = EXECUTOR.check


class Clockwork:
    """A clock that a check can advance, so that leases expire without waiting."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def __call__(self) -> int:
        return system_clock() + self.ahead_ms

    def pass_seconds(self, seconds: float) -> None:
        """Advance the clock."""
        self.ahead_ms += int(seconds * 1000)


@dataclass(frozen=True)
class Parts:
    """The stores that an executor takes: a `StoreSet`."""

    state: StateStore
    streams: StreamManager
    usage: UsageStore | None


def make_executor(stores: StoreSet, llm: LLM, **options: Any) -> AgentExecutor:
    """Return an executor on these stores."""
    return AgentExecutor(stores.state, stores.streams, llm, usage_store=stores.usage, **options)


@asynccontextmanager
async def executing(stores: StoreSet, llm: LLM, **options: Any) -> AsyncIterator[AgentExecutor]:
    """Yield an executor and close it at the end."""
    async with make_executor(stores, llm, **options) as executor:
        yield executor


async def transcript(stores: StoreSet, session_id: str) -> list[Message]:
    """Return all messages of a session, without the ids, which differ from run to run."""
    return [without_id(message) for message in (await stores.state.get_messages(session_id, limit=None)).items]


async def custom_state(stores: StoreSet, session_id: str) -> Any:
    """Return the custom state of a session."""
    session = await stores.state.load_state(session_id)
    return None if session is None else session.custom_state


async def family(stores: StoreSet, session_id: str) -> list[str]:
    """Return a session and its descendants, in a fixed order."""
    page = await stores.state.list_sessions(parent_session_id=session_id, limit=200)
    found = [session_id]
    for child in sorted(page.items, key=lambda child: child.session_id):
        found += await family(stores, child.session_id)
    return found


async def chunks_of(stores: StoreSet, stream_id: str) -> list[dict[str, Any]]:
    """Return every stored chunk of a stream."""
    return [stored.chunk for stored in await stores.streams.get_all_chunks(stream_id)]


def of_type(chunks: Sequence[dict[str, Any]], *types: str) -> list[dict[str, Any]]:
    """Return the chunks of these types, without those of sub-agents."""
    return [chunk for chunk in chunks if chunk["type"] in types and "sub_session_id" not in chunk]


def simple_agent(*tools: Any, **options: Any) -> Agent:
    """Return an agent called `main`."""
    return Agent("main", tools=tools, **options)
