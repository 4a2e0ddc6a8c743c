"""Memories on a Postgres pool, found by tsvector, or on a driver that other stores share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...clock import Clock, IdSource, random_id, system_clock
from ...stores.memory.contract import Embedder
from ..sql_shared.memory.store import SqlMemoryStore
from .driver import PostgresDriver

if TYPE_CHECKING:
    from .borrowed import Pool


class PostgresMemoryStore(SqlMemoryStore):
    """MemoryStore on an asyncpg pool, migrated on first use. `close` gives connections back; the pool stays open."""

    def __init__(
        self,
        pool: Pool,
        *,
        schema: str | None = None,
        prefix: str = "",
        transaction_pooler: bool = False,
        embedder: Embedder | None = None,
        min_similarity: float = 0.0,
        clock: Clock = system_clock,
        ids: IdSource = random_id,
        driver: PostgresDriver | None = None,
    ) -> None:
        self._own_driver = driver is None
        made = driver or PostgresDriver(pool, schema=schema, prefix=prefix, transaction_pooler=transaction_pooler)
        super().__init__(
            made, prefix=made.prefix, embedder=embedder, min_similarity=min_similarity, clock=clock, ids=ids
        )

    def _expression(self, scope: str, wanted: Sequence[str]) -> str:
        return " & ".join(f"'{scope}{word}':*" for word in wanted)

    async def close(self) -> None:
        if self._own_driver:
            await self._driver.close()
