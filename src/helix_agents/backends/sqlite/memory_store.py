"""Memories on a SQLite file of their own; to share one with other stores, build `SqlMemoryStore` on their driver."""

from __future__ import annotations

from pathlib import Path

from ...clock import Clock, IdSource, random_id, system_clock
from ...stores.memory.contract import Embedder
from ..sql_shared.memory.store import SqlMemoryStore
from ..sql_shared.schema.self_migrating import MigratedDriver
from .driver import SqliteDriver, Synchronous


class SqliteMemoryStore(SqlMemoryStore):
    """MemoryStore on a file, created and migrated on first use; `close` releases it."""

    def __init__(
        self,
        path: str | Path,
        *,
        prefix: str = "",
        synchronous: Synchronous = "FULL",
        embedder: Embedder | None = None,
        min_similarity: float = 0.0,
        clock: Clock = system_clock,
        ids: IdSource = random_id,
    ) -> None:
        driver = MigratedDriver(SqliteDriver(path, synchronous=synchronous), prefix=prefix)
        super().__init__(driver, prefix=prefix, embedder=embedder, min_similarity=min_similarity, clock=clock, ids=ids)

    async def close(self) -> None:
        await self._driver.close()
