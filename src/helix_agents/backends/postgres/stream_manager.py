"""Streams on a Postgres pool: combines the SQL verbs, the driver and NOTIFY."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...clock import Clock, IdSource, random_id, system_clock
from ...streams.base import DEFAULT_MAX_CHUNKS, DEFAULT_TTL_SECONDS
from ...streams.records import StoredText
from ..sql_shared.driver import Row
from ..sql_shared.streams.manager import SqlStreamManager
from .driver import PostgresDriver
from .wakeup import PostgresWakeup

if TYPE_CHECKING:
    from .borrowed import Pool


class PostgresStreamManager(SqlStreamManager):
    """StreamManager on an asyncpg pool, migrated on first use. `close` gives connections back; the pool stays open.

    With the first reader one connection starts to listen and stays open: one of the pool, or with `listen_dsn` a direct
    one.
    Behind a transaction-mode pooler without `listen_dsn`, and on a pool of a single connection, the manager asks the
    database 40 times a second instead, while it has readers.
    """

    def __init__(
        self,
        pool: Pool,
        *,
        listen_dsn: str | None = None,
        schema: str | None = None,
        prefix: str = "",
        transaction_pooler: bool = False,
        max_chunks: int = DEFAULT_MAX_CHUNKS,
        ttl: int | None = DEFAULT_TTL_SECONDS,
        clock: Clock = system_clock,
        ids: IdSource = random_id,
        driver: PostgresDriver | None = None,
    ) -> None:
        self._own_driver = driver is None
        made = driver or PostgresDriver(pool, schema=schema, prefix=prefix, transaction_pooler=transaction_pooler)
        direct = not made.transaction_pooler and made.pool.get_max_size() > 1
        super().__init__(
            made,
            prefix=made.prefix,
            max_chunks=max_chunks,
            ttl=ttl,
            clock=clock,
            ids=ids,
            wakeup=PostgresWakeup(made, listen_dsn=listen_dsn, can_listen=direct or listen_dsn is not None),
        )

    def _chunks(self, rows: list[Row], after: int, limit: int, max_chars: int) -> list[StoredText]:
        # Every chunk has a row of its own here, and the statement has counted them.
        return [StoredText(row[0], row[1], row[2]) for row in rows]

    async def close(self) -> None:
        await super().close()
        if self._own_driver:
            await self._driver.close()
