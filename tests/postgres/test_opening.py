"""Opening by address on a real server: every form of the URL, nothing left behind, nothing created by reading."""

from __future__ import annotations

import asyncpg
import pytest

from helix_agents import InvalidArgument, open_stores
from helix_agents.errors import NotMigrated


async def _connections(dsn: str) -> int:
    connection = await asyncpg.connect(dsn)
    try:
        count: int = await connection.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE client_addr IS NOT NULL AND pid <> pg_backend_pid()"
            " AND datname = current_database()"
        )
        return count
    finally:
        await connection.close()


@pytest.mark.parametrize("option", ["prefix=app:x", "schema=a-b%00", "max_chunks=-1", "transaction_pooler=perhaps"])
async def test_a_refused_option_leaves_no_connection(postgres_url: str, option: str) -> None:
    before = await _connections(postgres_url)
    for _ in range(3):
        with pytest.raises(InvalidArgument):
            async with open_stores(f"{postgres_url}?{option}"):
                pass
    assert await _connections(postgres_url) <= before


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+asyncpg"])
async def test_every_usual_scheme_opens(postgres_url: str, scheme: str) -> None:
    async with open_stores(f"{scheme}:{postgres_url.partition(':')[2]}") as stores:
        assert not await stores.state.session_exists("s")


async def test_an_unknown_option_names_the_known_ones(postgres_url: str) -> None:
    with pytest.raises(InvalidArgument, match=r"foo.*Known options: .*pool_size, prefix, schema"):
        async with open_stores(f"{postgres_url}?foo=1"):
            pass


async def test_opening_without_migrating_creates_nothing(postgres_url: str) -> None:
    url = f"{postgres_url}?schema=nowhere"
    with pytest.raises(NotMigrated, match="There are no stores"):
        async with open_stores(url, migrate=False):
            pass
    connection = await asyncpg.connect(postgres_url)
    assert await connection.fetchval("SELECT to_regnamespace('nowhere') IS NULL")
    await connection.close()
    async with open_stores(url) as stores:
        await stores.state.create_session("s", agent_type="a")
    async with open_stores(url, migrate=False) as stores:
        assert await stores.state.session_exists("s")
