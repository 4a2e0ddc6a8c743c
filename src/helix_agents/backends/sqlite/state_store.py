"""State on a SQLite file of its own; to share one with other stores, build `SqlStateStore` on their driver."""

from __future__ import annotations

from pathlib import Path

from ...clock import Clock, IdSource, random_id, system_clock
from ..sql.migrated import MigratedDriver
from ..sql.state_store import SqlStateStore
from .driver import SqliteDriver, Synchronous


class SqliteStateStore(SqlStateStore):
    """StateStore on a file, created and migrated on first use; `close` releases it.

    Any number of processes may share the file.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        prefix: str = "",
        synchronous: Synchronous = "FULL",
        d1_limits: bool = False,
        clock: Clock = system_clock,
        ids: IdSource = random_id,
    ) -> None:
        driver = SqliteDriver(path, synchronous=synchronous, d1_limits=d1_limits)
        super().__init__(MigratedDriver(driver, prefix=prefix), prefix=prefix, clock=clock, ids=ids)

    async def close(self) -> None:
        await self._driver.close()
