"""Streams on a SQLite file: the SQL verbs, the SQLite driver and sockets beside the file, put together."""

from __future__ import annotations

from pathlib import Path

from ...clock import Clock, IdSource, random_id, system_clock
from ...streams.base import DEFAULT_MAX_CHUNKS, DEFAULT_TTL_SECONDS
from ...streams.wakeup import Wakeup
from ..sql_shared.driver import SqlDriver
from ..sql_shared.schema.self_migrating import MigratedDriver
from ..sql_shared.streams.manager import SqlStreamManager
from .driver import SqliteDriver, Synchronous
from .wakeup import SqliteWakeup


class SqliteStreamManager(SqlStreamManager):
    """StreamManager on a file, created and migrated on first use; `close` releases it.

    Pass `driver` to share the connection of other stores on the same file; it then stays open, and is migrated already.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        max_chunks: int = DEFAULT_MAX_CHUNKS,
        ttl: int | None = DEFAULT_TTL_SECONDS,
        prefix: str = "",
        synchronous: Synchronous = "FULL",
        clock: Clock = system_clock,
        ids: IdSource = random_id,
        driver: SqlDriver | None = None,
    ) -> None:
        self._own_driver = driver is None
        super().__init__(
            driver or MigratedDriver(SqliteDriver(path, synchronous=synchronous), prefix=prefix),
            prefix=prefix,
            max_chunks=max_chunks,
            ttl=ttl,
            clock=clock,
            ids=ids,
            wakeup=Wakeup() if str(path) == ":memory:" else SqliteWakeup(path),
        )

    async def close(self) -> None:
        await super().close()
        if self._own_driver:
            await self._driver.close()
