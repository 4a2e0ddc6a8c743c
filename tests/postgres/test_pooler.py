"""Behind a transaction-mode pooler: no statement and no setting survives its transaction.

A stand-in of ours gives every transaction to another connection, always; PgBouncer is what people have.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import asyncpg
import pytest

from helix_agents import open_stores
from helix_agents.backends.postgres.state_store import PostgresStateStore
from helix_agents.backends.postgres.stream_manager import PostgresStreamManager
from helix_agents.conformance.tools.sample import add, meta, plain_state, push, user, writes
from helix_agents.errors import StoreUnavailable
from tests.postgres.pgbouncer import PgBouncer
from tests.postgres.pooler import TransactionPooler
from tests.servers.postgres import SUPERUSER, PostgresServer
from tests.servers.process import HOST, ServerUnavailable


@pytest.fixture
async def stand_in(postgres_server: PostgresServer, postgres_url: str) -> AsyncIterator[int]:
    """The port of our own pooler."""
    database = postgres_url.rpartition("/")[2]
    async with TransactionPooler(postgres_server.port, user=SUPERUSER, database=database) as running:
        yield running.port


@pytest.fixture
def pgbouncer(postgres_server: PostgresServer, postgres_url: str) -> Iterator[int]:
    """The port of a PgBouncer."""
    database = postgres_url.rpartition("/")[2]
    try:
        made = PgBouncer(postgres_server.port, user=SUPERUSER, database=database)
    except ServerUnavailable as error:
        pytest.skip(f"NO PGBOUNCER, so only the stand-in was tried: {error}")
    with made as running:
        yield running.port


# No package that pip knows carries PgBouncer's program, so it is asked for (`-m soak`) rather than missed every time.
@pytest.fixture(params=["stand_in", pytest.param("pgbouncer", marks=pytest.mark.soak)])
def pooler(request: pytest.FixtureRequest) -> int:
    """The port of a pooler, once for each kind."""
    port: int = request.getfixturevalue(request.param)
    return port


def through(port: int, options: str = "") -> str:
    return f"postgresql://{SUPERUSER}@{HOST}:{port}/any?sslmode=disable{options}"


async def test_a_session_lives_through_a_pooler(pooler: int) -> None:
    async with open_stores(through(pooler, "&transaction_pooler=1&schema=behind")) as stores:
        await stores.state.create_session("a", agent_type="agent")

        async def step(number: int) -> None:
            await stores.state.append_messages("a", [user(str(number))])
            await stores.state.merge_custom_state("a", writes(add("count"), push("items", items=[number])))

        await asyncio.gather(*(step(number) for number in range(20)))
        await stores.state.stage_changes("a", "s", writes(add("count")), tool_call_id="call-1")
        await stores.state.save_state_and_promote_staging("a", plain_state("a"), [user("end")], meta(1, "s"))
        state = await stores.state.load_state("a")
        assert state is not None
        assert state.custom_state is not None
        assert state.custom_state["count"] == 21
        assert sorted(state.custom_state["items"]) == list(range(20))
        assert await stores.state.get_message_count("a") == 21


async def test_a_pool_without_statement_cache_is_recognised(pooler: int) -> None:
    async with asyncpg.create_pool(through(pooler), min_size=2, max_size=4, statement_cache_size=0) as pool:
        store = PostgresStateStore(pool)
        await store.create_session("a", agent_type="agent")
        await asyncio.gather(*(store.append_messages("a", [user(str(number))]) for number in range(30)))
        assert await store.get_message_count("a") == 30
        await store.close()


async def test_a_pool_with_statement_cache_is_told_what_to_do(stand_in: int) -> None:
    async with asyncpg.create_pool(through(stand_in), min_size=1, max_size=1) as pool:
        store = PostgresStateStore(pool)
        creating = [store.create_session(f"session-{number}", agent_type="agent") for number in range(10)]
        errors = [
            each for each in await asyncio.gather(*creating, return_exceptions=True) if isinstance(each, Exception)
        ]
        assert errors
        assert all(isinstance(each, StoreUnavailable) for each in errors)
        assert "statement_cache_size=0" in str(errors[0])
        await store.close()


@pytest.mark.parametrize("direct", [True, False], ids=["listening past it", "asking"])
async def test_readers_follow_through_a_pooler(pooler: int, postgres_url: str, direct: bool) -> None:
    pools = [await asyncpg.create_pool(through(pooler), min_size=1, max_size=3, statement_cache_size=0) for _ in "ab"]
    writing, reading = (
        PostgresStreamManager(pool, transaction_pooler=True, listen_dsn=postgres_url if direct else None)
        for pool in pools
    )
    writer = await writing.create_writer("s", "run", "agent")
    reader = await reading.create_reader("s")
    assert reader is not None
    seen = asyncio.ensure_future(_all_of(reader))
    for number in range(20):
        await writer.write({"type": "text_delta", "delta": str(number)})
        await writer.flush()
    await writing.end_stream("s")
    assert await asyncio.wait_for(seen, 30) == [str(number) for number in range(20)]
    await reading.close()
    await writing.close()
    for pool in pools:
        await pool.close()


async def _all_of(reader: object) -> list[str]:
    return [chunk["delta"] async for chunk in reader]  # type: ignore[attr-defined]
