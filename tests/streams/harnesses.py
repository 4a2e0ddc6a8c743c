"""Harnesses for the kit's stream checks: in memory, and on a SQLite file that any process can open."""

from __future__ import annotations

from typing import Any, ClassVar

from helix_agents.backends.inmemory.stream_manager import InMemoryStreamManager, InMemoryStreams
from helix_agents.backends.sqlite.stream_manager import SqliteStreamManager
from helix_agents.conformance.harness import Harness
from helix_agents.streams.contract import StreamManager
from tests.conformance.harnesses import FileHarness


class InMemoryHarness(Harness):
    name: ClassVar[str] = "streams in memory"

    def __init__(self) -> None:
        super().__init__()
        self._data = InMemoryStreams()

    async def open_streams(self, **options: Any) -> StreamManager:
        return self.keep(InMemoryStreamManager(data=self._data, **options))


class SqliteHarness(FileHarness):
    """Every manager has its own connection and socket, like another process."""

    name: ClassVar[str] = "streams on SQLite"

    async def open_streams(self, **options: Any) -> StreamManager:
        return self.keep(SqliteStreamManager(self.path, synchronous="OFF", **options))

    def stream_child_spec(self) -> str:
        return f"tests.streams.harnesses:open_sqlite {self.path}"


async def open_sqlite(path: str) -> StreamManager:
    """Return what a child process of the kit calls."""
    return SqliteStreamManager(path, synchronous="OFF", max_chunks=0)
