"""Clients, URLs and errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from redis.asyncio import Redis, RedisCluster

from helix_agents.backends.redis.client import connection
from helix_agents.backends.redis.opening import client_from_url
from helix_agents.backends.redis.sessions.store import RedisStateStore
from helix_agents.backends.redis.stream_manager import RedisStreamManager
from helix_agents.backends.registry import open_stores
from helix_agents.errors import InvalidArgument, StoreCorrupt, StoreUnavailable

Connect = Callable[..., Any]


async def test_a_client_that_was_passed_in_stays_open(connect: Connect, prefix: str) -> None:
    client = connect()
    own = await client.client_id()
    store, streams = RedisStateStore(client, prefix=prefix), RedisStreamManager(client, prefix=prefix)
    await store.create_session("a", agent_type="agent")
    writer = await streams.create_writer("s", "run", "agent")
    await writer.write({"type": "x"})
    await writer.close()
    assert await streams.create_reader("s") is not None
    await store.close()
    await streams.close()
    assert str(own) in [each["id"] for each in await connect().client_list()]
    assert await client.ping()


async def test_urls_name_servers_and_clusters(valkey: str, cluster: str) -> None:
    async with client_from_url(valkey, decode_responses=True) as single:
        assert isinstance(single, Redis)
        assert await single.ping()
    async with client_from_url(cluster) as several:
        assert isinstance(several, RedisCluster)
        assert await several.ping()


@pytest.mark.parametrize("url", ["http://x", "redis+sentinel://x", "rediscluster://x", "", "redis://x:port"])
async def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(InvalidArgument):
        client_from_url(url)


@pytest.mark.parametrize("server", ["valkey", "cluster"])
async def test_stores_open_by_address(server: str, prefix: str, request: pytest.FixtureRequest) -> None:
    url = f"{request.getfixturevalue(server)}?prefix={prefix}&session_ttl_seconds=60"
    url += "&stream_ttl_seconds=30&max_chunks=5&socket_timeout=5"
    async with open_stores(url) as stores:
        await stores.state.create_session("a", agent_type="agent")
        writer = await stores.streams.create_writer("a", "run", "agent")
        for _ in range(7):
            await writer.write({"type": "x"})
        await writer.close()
        assert len(await stores.streams.get_all_chunks("a")) == 5
        await stores.usage.record_entry({"kind": "custom", "id": "1", "session_id": "a", "name": "pages"})
        assert (await stores.memory.list_entities()).total == 0
    async with open_stores(url) as stores:
        assert await stores.state.session_exists("a")


async def test_an_address_without_a_server_is_our_error() -> None:
    with pytest.raises(StoreUnavailable):
        async with open_stores("redis://127.0.0.1:1"):
            pass


async def test_a_server_that_is_not_there_is_our_error_with_its_cause() -> None:
    client = Redis(port=1)
    store = RedisStateStore(client)
    with pytest.raises(StoreUnavailable) as caught:
        await store.load_state("a")
    assert caught.value.__cause__ is not None
    await client.aclose()


async def test_a_user_without_permission_is_our_error(connect: Connect, valkey: str, prefix: str) -> None:
    await connect().execute_command("ACL", "SETUSER", "nobody", "on", ">nobody", "~*", "-@all", "+ping", "+client")
    store = RedisStateStore(connect(valkey.replace("redis://", "redis://nobody:nobody@")), prefix=prefix)
    with pytest.raises(StoreUnavailable, match="permission"):
        await store.create_session("a", agent_type="agent")


@pytest.mark.parametrize("prefix", ["", "a{b", "::", "x\n"])
async def test_prefixes_that_would_break_keys_are_refused(connect: Connect, prefix: str) -> None:
    with pytest.raises(InvalidArgument):
        RedisStateStore(connect(), prefix=prefix)


async def test_a_server_that_forgot_the_script_learns_it_again(connect: Connect, prefix: str) -> None:
    client = connect()
    store = RedisStateStore(client, prefix=prefix)
    await store.create_session("a", agent_type="agent")
    await client.script_flush()
    await store.update_status("a", "paused")
    assert (await store.load_state("a")).status == "paused"  # type: ignore[union-attr]


@pytest.mark.parametrize("scheme", ["redis", "redis+cluster"])
async def test_an_address_where_nobody_answers_is_an_error_of_ours(scheme: str) -> None:
    with pytest.raises(StoreUnavailable, match="opening"):
        async with open_stores(f"{scheme}://127.0.0.1:1"):
            pass


async def test_commands_are_packed_the_same_without_hiredis(monkeypatch: pytest.MonkeyPatch) -> None:
    command = ("SET", "ü {key}", b"\x00\r\n", 12, -1, "", 2**70)
    by_hiredis = connection.packed(command)
    monkeypatch.setattr(connection, "_pack", None)
    assert connection.packed(command) == by_hiredis


async def test_a_key_of_another_kind_is_a_corrupt_store(connect: Connect, prefix: str) -> None:
    client = connect()
    store = RedisStateStore(client, prefix=prefix)
    await store.create_session("a", agent_type="agent")
    await client.set(f"{prefix}:session:messages:{{a}}", "no list")
    with pytest.raises(StoreCorrupt, match="another kind"):
        await store.append_messages("a", [{"role": "user", "content": "x"}])
