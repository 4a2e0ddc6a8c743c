"""What people use on Postgres today, on the session workload, for scale: LangGraph's saver and OpenAI's session.

Both are optional: where a package is missing a line says so. Each is driven at its own settings. LangGraph's saver
stores every channel as it is after the step; OpenAI's session stores messages only, no state and no checkpoint.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AsyncExitStack
from typing import Any

from benchmarks.workload import Step

try:
    from langgraph.checkpoint.base import empty_checkpoint
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
except ImportError as error:
    _no_saver: ImportError | None = error
else:
    _no_saver = None

try:
    from agents.extensions.memory import SQLAlchemySession
    from sqlalchemy.ext.asyncio import create_async_engine
except ImportError as error:
    _no_session: ImportError | None = error
else:
    _no_session = None


class Other(ABC):
    """Another project's store, driven through one session."""

    name: str
    tables: tuple[str, ...]

    @staticmethod
    @abstractmethod
    def why_not() -> str | None:
        """Why there is nothing to compare with; None if there is."""

    @abstractmethod
    async def open(self, url: str, session_id: str) -> None: ...

    @abstractmethod
    async def commit(self, step: Step) -> None: ...

    @abstractmethod
    async def close(self) -> None: ...


class LangGraphSaver(Other):
    """One thread of `AsyncPostgresSaver`."""

    name = "LangGraph's Postgres saver"
    tables = ("checkpoints", "checkpoint_blobs", "checkpoint_writes")

    @staticmethod
    def why_not() -> str | None:
        return None if _no_saver is None else f"{_no_saver}; install langgraph-checkpoint-postgres and psycopg[binary]"

    async def open(self, url: str, session_id: str) -> None:
        self._open = AsyncExitStack()
        self._saver: Any = await self._open.enter_async_context(AsyncPostgresSaver.from_conn_string(url))
        await self._saver.setup()
        self._config: dict[str, Any] = {"configurable": {"thread_id": session_id, "checkpoint_ns": ""}}
        self._values: dict[str, Any] = {"messages": [], "items": [], "counter": 0}

    async def commit(self, step: Step) -> None:
        self._values["messages"] += step.messages
        self._values["items"].append(step.item)
        self._values["counter"] += 1
        versions = dict.fromkeys(self._values, str(step.number))
        checkpoint = empty_checkpoint() | {"channel_values": self._values, "channel_versions": versions}
        metadata = {"source": "loop", "step": step.number, "writes": {}}
        self._config = await self._saver.aput(self._config, checkpoint, metadata, versions)

    async def close(self) -> None:
        await self._open.aclose()


class OpenAiSession(Other):
    """One `SQLAlchemySession` on asyncpg."""

    name = "OpenAI's SQLAlchemySession (messages only)"
    tables = ("agent_sessions", "agent_messages")

    @staticmethod
    def why_not() -> str | None:
        return None if _no_session is None else f"{_no_session}; install openai-agents[sqlalchemy]"

    async def open(self, url: str, session_id: str) -> None:
        self._engine = create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://"))
        self._session = SQLAlchemySession(session_id, engine=self._engine, create_tables=True)
        await self._session.get_items(limit=1)

    async def commit(self, step: Step) -> None:
        items: Any = step.messages
        await self._session.add_items(items)

    async def close(self) -> None:
        await self._engine.dispose()


OTHERS: tuple[type[Other], ...] = (LangGraphSaver, OpenAiSession)
