"""Servers that temporarily reject a request before it has any effect: every call retries."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import islice
from typing import Any

import pytest
from msgspec.structs import replace
from redis.crc import key_slot

from helix_agents.backends.redis.client import servers
from helix_agents.backends.redis.sessions.store import RedisStateStore
from helix_agents.backends.redis.stream_manager import RedisStreamManager
from helix_agents.backends.redis.usage_store import RedisUsageStore
from helix_agents.conformance.tools.sample import meta, plain_state, user
from helix_agents.errors import StoreUnavailable
from helix_agents.retry import OUTAGE
from tests.redis.harnesses import client_for, new_prefix
from tests.servers.process import HOST, free_port
from tests.servers.redis_cluster import RedisCluster
from tests.servers.redis_server import RedisServer

REFUSALS = {
    "CLUSTERDOWN": "The cluster is down",
    "LOADING": "Valkey is loading the dataset in memory",
    "MASTERDOWN": "Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
    "READONLY": "You can't write against a read only replica.",
    "TRYAGAIN": "Multiple keys request during rehashing of slot",
}
LEFT_ALONE = (b"PING", b"HELLO", b"CLIENT", b"AUTH", b"SELECT")


class Refusing:
    """A proxy that rejects the next `left` requests to a server."""

    def __init__(self, port: int, words: str) -> None:
        self._port = port
        self._words = words
        self.left = 0
        self.refused = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        behind, onwards = await asyncio.open_connection(HOST, self._port)
        answers = asyncio.create_task(_pump(behind, writer))
        try:
            while request := await _request(reader):
                if self.left > 0 and request[0] not in LEFT_ALONE:
                    self.left, self.refused = self.left - 1, self.refused + 1
                    writer.write(f"-{self._words}\r\n".encode())
                else:
                    onwards.write(b"*%d\r\n" % len(request) + b"".join(b"$%d\r\n%b\r\n" % (len(w), w) for w in request))
        finally:
            answers.cancel()
            onwards.close()
            writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)


async def _request(reader: asyncio.StreamReader) -> list[bytes]:
    try:
        count = int((await reader.readuntil(b"\r\n"))[1:])
        words = []
        for _ in range(count):
            size = int((await reader.readuntil(b"\r\n"))[1:])
            words.append((await reader.readexactly(size + 2))[:-2])
        return words
    except (asyncio.IncompleteReadError, ConnectionError):
        return []


@asynccontextmanager
async def refusing(url: str, word: str) -> AsyncIterator[tuple[Refusing, str]]:
    """Yield a rejecting proxy in front of a server, and its address."""
    before, _, port = url.partition("/0")[0].rpartition(":")
    made = Refusing(int(port), f"{word} {REFUSALS[word]}")
    listener = await asyncio.start_server(made.serve, HOST, 0)
    try:
        yield made, f"{before}:{listener.sockets[0].getsockname()[1]}/0"
    finally:
        listener.close()


@pytest.fixture(params=["scripts", "no scripts"])
def url(request: pytest.FixtureRequest, valkey: str, valkey_without_scripts: str) -> str:
    return valkey if request.param == "scripts" else valkey_without_scripts


async def _use_everything(client: Any, prefix: str, before_each: Callable[[], Awaitable[None]]) -> None:
    """Call stores of every kind, each call after `before_each`."""
    state, streams = RedisStateStore(client, prefix=prefix), RedisStreamManager(client, prefix=prefix)
    usage = RedisUsageStore(client, prefix=prefix)

    async def write() -> None:
        async with await streams.create_writer("a", "run", "agent") as writer:
            await writer.write({"type": "custom"})

    calls: list[Callable[[], Awaitable[Any]]] = [
        lambda: state.create_session("a", agent_type="agent", custom_state={"n": 0}),
        lambda: state.append_messages("a", [user("x")]),
        lambda: state.save_state_and_promote_staging("a", plain_state("a"), [user("y")], meta(1, "step-1")),
        lambda: state.load_state("a"),
        lambda: state.list_sessions(),
        lambda: state.get_messages("a"),
        write,
        lambda: streams.get_all_chunks("a"),
        lambda: usage.record_entry({"kind": "custom", "id": "1", "session_id": "a", "name": "pages"}),
        lambda: usage.get_entries("a"),
    ]
    for call in calls:
        await before_each()
        await call()
    assert await state.get_message_count("a") == 2
    assert len(await streams.get_all_chunks("a")) == len(await usage.get_entries("a")) == 1
    await streams.close()


@pytest.mark.parametrize("word", REFUSALS)
async def test_what_was_refused_for_now_is_asked_again(url: str, prefix: str, word: str) -> None:
    async with refusing(url, word) as (server, address):
        client = client_for(address)

        async def refuse() -> None:
            server.left = 2

        await _use_everything(client, prefix, refuse)
        await client.aclose()
        assert server.refused >= 20


async def test_a_refusal_that_does_not_end_is_our_error_and_nothing_was_written(
    valkey: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "OUTAGE", replace(OUTAGE, within_seconds=0.3))
    async with refusing(valkey, "READONLY") as (server, address):
        client = client_for(address)
        server.left = 1000
        with pytest.raises(StoreUnavailable) as caught:
            await RedisStateStore(client, prefix=prefix).create_session("a", agent_type="agent")
        assert caught.value.nothing_written
        await client.aclose()


@pytest.mark.parametrize("stale", ["yes", "no"])
async def test_a_master_that_was_a_replica_for_a_moment(private_redis: RedisServer, stale: str) -> None:
    """READONLY for writes; with stale reads forbidden MASTERDOWN for everything."""
    client = client_for(private_redis.url)
    private_redis.ask("CONFIG", "SET", "replica-serve-stale-data", stale)
    healing: list[asyncio.Task[Any]] = []

    async def demote() -> None:
        await asyncio.gather(*healing)
        await asyncio.to_thread(private_redis.ask, "REPLICAOF", HOST, free_port())
        healing.append(asyncio.create_task(_later(lambda: private_redis.ask("REPLICAOF", "NO", "ONE"))))

    await _use_everything(client, new_prefix(), demote)
    await asyncio.gather(*healing)
    await client.aclose()


async def test_a_cluster_that_is_down_for_a_moment(cluster_of_three: RedisCluster, prefix: str) -> None:
    client = client_for(cluster_of_three.url)
    store = RedisStateStore(client, prefix=prefix)
    await store.create_session("a", agent_type="agent")
    slot = key_slot(b"a")
    (owner,) = [node for node in cluster_of_three.masters if slot in cluster_of_three._slots_of(node)]
    await asyncio.to_thread(owner.ask, "CLUSTER", "DELSLOTS", slot)
    healing = asyncio.create_task(_later(lambda: owner.ask("CLUSTER", "ADDSLOTS", slot)))
    try:
        assert await store.append_messages("a", [user("x")]) == 1
    finally:
        await healing
        await asyncio.to_thread(cluster_of_three.wait_until_healthy)
        await client.aclose()


async def _later(act: Callable[[], Any]) -> None:
    """Do something while another task is being rejected: after its first attempts, and well before it gives up."""
    await asyncio.sleep(sum(islice(OUTAGE.delays(), 3)))
    await asyncio.to_thread(act)
