"""Streams in a SQLite file: combines the SQL verbs, the SQLite driver and sockets beside the file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...clock import Clock, IdSource, random_id, system_clock
from ...streams.base import DEFAULT_MAX_CHUNKS, DEFAULT_TTL_SECONDS
from ...streams.records import Append, NewChunk
from ...streams.wakeup import Wakeup
from ..sql_shared.driver import BatchRefused
from ..sql_shared.schema.self_migrating import MigratedDriver
from ..sql_shared.streams.manager import SqlStreamManager
from ..sql_shared.streams.planned_append import planned_appends
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
        driver: SqliteDriver | None = None,
    ) -> None:
        self._own_driver = driver is None
        self._sqlite = driver or SqliteDriver(path, synchronous=synchronous)
        self._migrated = MigratedDriver(self._sqlite, prefix=prefix) if driver is None else None
        self._appends = planned_appends(prefix)
        super().__init__(
            self._migrated or self._sqlite,
            prefix=prefix,
            max_chunks=max_chunks,
            ttl=ttl,
            clock=clock,
            ids=ids,
            wakeup=Wakeup() if str(path) == ":memory:" else SqliteWakeup(path),
        )

    async def _append(
        self,
        stream_id: str,
        *,
        producer_id: str,
        counter: int,
        chunks: Sequence[NewChunk],
        fence: int | None,
        now: int,
    ) -> int:
        append = Append(stream_id, producer_id, counter, chunks, fence, now)
        if self._migrated is not None and not self._migrated.ready:
            await self._migrated.migrate()
        try:
            sequence, floors = await self._sqlite.call(self._appends.run, self.planned(append))
        except BatchRefused as refused:
            return await self.refused(append, refused)
        await self.trim(stream_id, floors)
        return sequence

    async def close(self) -> None:
        await super().close()
        if self._own_driver:
            await self._driver.close()
