"""What the kit cannot see of streams on Postgres: the listening connection, its loss, and lost notifications."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import asyncpg
import pytest

from helix_agents.backends.postgres.stream_manager import PostgresStreamManager
from helix_agents.backends.postgres.wakeup import MAX_PAYLOAD_BYTES
from helix_agents.streams.contract import StreamReader
from tests.servers.postgres import PostgresServer
from tests.servers.process import HOST
from tests.servers.proxy import Proxy

MakeProxy = Callable[[int], Awaitable[Proxy]]
LISTENERS = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'"


@pytest.fixture
async def pool(postgres_url: str) -> AsyncIterator[asyncpg.Pool]:
    async with asyncpg.create_pool(postgres_url, min_size=1, max_size=4) as made:
        yield made


async def texts(reader: StreamReader | None) -> list[str]:
    assert reader is not None
    return [chunk["delta"] async for chunk in reader]


def delta(number: int) -> dict[str, str]:
    return {"type": "text_delta", "delta": str(number)}


async def test_all_readers_of_a_process_share_one_listening_connection(pool: asyncpg.Pool, postgres_url: str) -> None:
    async with asyncpg.create_pool(postgres_url, min_size=1, max_size=4) as other:
        writing, reading = PostgresStreamManager(pool), PostgresStreamManager(other)
        writers = [await writing.create_writer(f"s{number}", "run", "agent") for number in range(20)]
        seen = [asyncio.ensure_future(texts(await reading.create_reader(f"s{number % 20}"))) for number in range(100)]
        for writer in writers:
            await writer.write(delta(1))
            await writer.close()
        listening = await pool.fetchval(LISTENERS)
        for number in range(20):
            await writing.end_stream(f"s{number}")
        assert await asyncio.gather(*seen) == [["1"]] * 100
        assert listening == 1
        await reading.close()
        assert await pool.fetchval(LISTENERS) == 0
        await writing.close()


async def test_a_dropped_listener_misses_nothing(
    pool: asyncpg.Pool, postgres_server: PostgresServer, postgres_url: str, proxy_to: MakeProxy
) -> None:
    proxy = await proxy_to(postgres_server.port)
    url = postgres_url.replace(f"{HOST}:{postgres_server.port}", f"{HOST}:{proxy.port}") + "?sslmode=disable"
    async with asyncpg.create_pool(url, min_size=1, max_size=3) as flaky:
        writing, reading = PostgresStreamManager(pool), PostgresStreamManager(flaky)
        writer = await writing.create_writer("s", "run", "agent")
        seen = asyncio.ensure_future(texts(await reading.create_reader("s")))
        for number in range(60):
            await writer.write(delta(number))
            await writer.flush()
            if number % 20 == 10:
                proxy.cut(refuse=True)
            if number % 20 == 15:
                proxy.heal()
        await writing.end_stream("s")
        assert await asyncio.wait_for(seen, 30) == [str(number) for number in range(60)]
        await reading.close()
        await writing.close()


async def test_a_writer_that_dies_before_it_notifies_is_noticed(pool: asyncpg.Pool) -> None:
    manager = PostgresStreamManager(pool)
    writer = await manager.create_writer("s", "run", "agent")
    await writer.write(delta(0))
    await writer.flush()
    seen = asyncio.ensure_future(texts(await manager.create_reader("s")))
    # What another process would have committed just before it was killed.
    await pool.execute(
        "WITH s AS (UPDATE __agents_streams SET latest_sequence = 2, total_chunks = 2, status = 'ended', revision = 1, "
        "final_output = 'null' RETURNING stream_id) INSERT INTO __agents_stream_chunks "
        """SELECT stream_id, 2, 0, 0, '{"type":"text_delta","delta":"1"}' FROM s"""
    )
    assert await asyncio.wait_for(seen, 30) == ["0", "1"]
    await manager.close()


async def test_a_server_restart_under_readers_misses_nothing(private_postgres: PostgresServer) -> None:
    async with (
        asyncpg.create_pool(private_postgres.url, min_size=1, max_size=4) as one,
        asyncpg.create_pool(private_postgres.url, min_size=1, max_size=4) as two,
    ):
        writing, reading = PostgresStreamManager(one), PostgresStreamManager(two)
        writer = await writing.create_writer("s", "run", "agent")
        seen = asyncio.ensure_future(texts(await reading.create_reader("s")))
        for number in range(10):
            await writer.write(delta(number))
            await writer.flush()
            if number == 5:
                await asyncio.to_thread(private_postgres.restart)
        await writing.end_stream("s")
        assert await asyncio.wait_for(seen, 60) == [str(number) for number in range(10)]
        await reading.close()
        await writing.close()


async def test_a_pool_of_one_connection_is_enough(postgres_url: str) -> None:
    async with asyncpg.create_pool(postgres_url, min_size=1, max_size=1) as tiny:
        manager = PostgresStreamManager(tiny)
        writer = await manager.create_writer("s", "run", "agent")
        seen = asyncio.ensure_future(texts(await manager.create_reader("s")))
        for number in range(5):
            await writer.write(delta(number))
        await writer.close()
        await manager.end_stream("s")
        assert await asyncio.wait_for(seen, 30) == ["0", "1", "2", "3", "4"]
        await manager.close()


async def test_many_long_stream_ids_are_told_in_several_messages(pool: asyncpg.Pool, postgres_url: str) -> None:
    async with asyncpg.create_pool(postgres_url, min_size=1, max_size=4) as other:
        writing, reading = PostgresStreamManager(pool), PostgresStreamManager(other)
        names = [f"{number:03}" + "😀" * 250 for number in range(30)]
        assert sum(len(name.encode()) for name in names) > 3 * MAX_PAYLOAD_BYTES
        writers = await asyncio.gather(*(writing.create_writer(name, "run", "agent") for name in names))
        seen = [asyncio.ensure_future(texts(await reading.create_reader(name))) for name in names]
        for writer in writers:
            await writer.write(delta(7))
        await asyncio.gather(*(writer.close() for writer in writers))
        await asyncio.gather(*(writing.end_stream(name) for name in names))
        assert await asyncio.wait_for(asyncio.gather(*seen), 30) == [["7"]] * 30
        await reading.close()
        await writing.close()
