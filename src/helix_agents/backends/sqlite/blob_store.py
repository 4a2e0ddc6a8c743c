"""Blobs in a SQLite file of their own; to share one with other stores, build `SqlBlobStore` on their driver."""

from __future__ import annotations

from pathlib import Path

from ...clock import Clock, system_clock
from ...stores.blobs.base import MEGABYTE
from ..sql_shared.blobs.store import SqlBlobStore
from ..sql_shared.schema.self_migrating import MigratedDriver
from .driver import SqliteDriver, Synchronous


class SqliteBlobStore(SqlBlobStore):
    """BlobStore on a file, created and migrated on first use; `close` releases it."""

    def __init__(
        self,
        path: str | Path,
        *,
        prefix: str = "",
        synchronous: Synchronous = "FULL",
        max_bytes: int = 50 * MEGABYTE,
        clock: Clock = system_clock,
    ) -> None:
        driver = SqliteDriver(path, synchronous=synchronous)
        super().__init__(MigratedDriver(driver, prefix=prefix), prefix=prefix, max_bytes=max_bytes, clock=clock)

    async def close(self) -> None:
        await self._driver.close()
