"""Blobs on a Postgres pool, or on a driver that other stores share."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from ...clock import Clock, system_clock
from ...stores.blobs.base import MEGABYTE
from ..sql_shared.blobs.store import SqlBlobStore
from ..sql_shared.driver import Statement
from .driver import PostgresDriver

if TYPE_CHECKING:
    from .borrowed import Pool


class PostgresBlobStore(SqlBlobStore):
    """BlobStore on an asyncpg pool, migrated on first use. `close` gives connections back; the pool stays open."""

    def __init__(
        self,
        pool: Pool,
        *,
        schema: str | None = None,
        prefix: str = "",
        transaction_pooler: bool = False,
        max_bytes: int = 50 * MEGABYTE,
        clock: Clock = system_clock,
        driver: PostgresDriver | None = None,
    ) -> None:
        self._own_driver = driver is None
        made = driver or PostgresDriver(pool, schema=schema, prefix=prefix, transaction_pooler=transaction_pooler)
        self._postgres = made
        super().__init__(made, prefix=made.prefix, max_bytes=max_bytes, clock=clock)

    def _alone(self, space: str) -> list[Statement]:
        name = f"blobs {self._postgres.schema} {self._postgres.prefix} {space}".encode("utf-8", "surrogatepass")
        key = int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "big", signed=True)
        return [Statement("SELECT pg_advisory_xact_lock(?1) IS NULL", (key,))]

    async def close(self) -> None:
        if self._own_driver:
            await self._driver.close()
