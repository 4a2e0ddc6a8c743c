"""Databases of every earlier schema are migrated, and tell the same history as then, wherever they kept it."""

from __future__ import annotations

import asyncpg
import pytest

from helix_agents.backends.postgres.state_store import PostgresStateStore
from helix_agents.backends.sql_shared.schema.migrate import known_migrations

from .. import old_schemas as old

ONE_HOME = 8
EARLIER = [each for each in known_migrations("postgres") if each.version < ONE_HOME]


@pytest.mark.parametrize("known", range(1, len(EARLIER) + 1))
async def test_a_database_of_an_earlier_schema_keeps_its_history(postgres_url: str, known: int) -> None:
    async with asyncpg.create_pool(postgres_url) as pool:
        await make_database(pool, known)
        store = PostgresStateStore(pool)
        await old.ensure_history(store)
        await store.close()


async def make_database(pool: asyncpg.Pool, known: int) -> None:
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute(old.LEDGER)
        for each in EARLIER[:known]:
            await connection.execute("INSERT INTO __agents_migrations VALUES ($1, $2, 0)", each.version, each.name)
            for statement in each.statements:
                await connection.execute(statement)
        for statement in old.inserts(EARLIER[known - 1].version):
            await connection.execute(statement)
