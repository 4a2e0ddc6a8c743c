"""Homes of streams for the kit's checks: in memory, and on a SQLite file that any process can open."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from helix_agents.backends.inmemory.stream_manager import InMemoryStreamManager, InMemoryStreams
from helix_agents.backends.sqlite.stream_manager import SqliteStreamManager
from helix_agents.conformance.options import Options
from helix_agents.streams.contract import StreamManager


class InMemoryHarness:
    def __init__(self) -> None:
        self.options = Options()
        self._data = InMemoryStreams()
        self._managers: list[StreamManager] = []

    async def open_streams(self, **options: Any) -> StreamManager:
        self._managers.append(InMemoryStreamManager(data=self._data, **options))
        return self._managers[-1]

    async def dispose(self) -> None:
        for manager in self._managers:
            await manager.close()

    def stream_child_spec(self) -> str | None:
        return None


class SqliteHarness:
    """Every manager has a connection and a socket of its own, as other processes would."""

    def __init__(self, path: Path) -> None:
        self.options = Options()
        self._path = path
        self._managers: list[StreamManager] = []

    async def open_streams(self, **options: Any) -> StreamManager:
        self._managers.append(SqliteStreamManager(self._path, synchronous="OFF", **options))
        return self._managers[-1]

    async def dispose(self) -> None:
        for manager in self._managers:
            await manager.close()

    def stream_child_spec(self) -> str | None:
        return f"tests.streams.harnesses:open_sqlite {self._path}"


async def open_sqlite(path: str) -> StreamManager:
    """What a child process of the kit calls."""
    return SqliteStreamManager(path, synchronous="OFF", max_chunks=0)
