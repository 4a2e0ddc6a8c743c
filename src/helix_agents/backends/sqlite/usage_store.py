"""Usage on a SQLite file of its own; to share one with other stores, build `SqlUsageStore` on their driver."""

from __future__ import annotations

from pathlib import Path

from ...clock import Clock, system_clock
from ..sql_shared.schema.self_migrating import MigratedDriver
from ..sql_shared.usage.store import SqlUsageStore
from .driver import SqliteDriver, Synchronous


class SqliteUsageStore(SqlUsageStore):
    """UsageStore on a file, created and migrated on first use; `close` releases it."""

    def __init__(
        self, path: str | Path, *, prefix: str = "", synchronous: Synchronous = "FULL", clock: Clock = system_clock
    ) -> None:
        driver = SqliteDriver(path, synchronous=synchronous)
        super().__init__(MigratedDriver(driver, prefix=prefix), prefix=prefix, clock=clock)

    async def close(self) -> None:
        await self._driver.close()
