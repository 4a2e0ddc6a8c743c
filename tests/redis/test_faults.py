"""What real failures do: cut connections, lost replies, killed servers, a cluster that loses a node."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

from helix_agents.backends.redis.state_store import RedisStateStore
from helix_agents.backends.redis.stream_manager import RedisStreamManager
from helix_agents.conformance.sample import add, meta, plain_state, push, user, writes
from helix_agents.errors import StoreUnavailable
from tests.redis.harnesses import client_for, new_prefix
from tests.servers.proxy import Proxy
from tests.servers.redis_cluster import RedisCluster
from tests.servers.redis_server import RedisServer

ProxyTo = Callable[[int], Awaitable[Proxy]]
SESSION = "a"


async def _commit(store: RedisStateStore, step: int) -> None:
    """A step with one tool: a message, an item, a counter, all with the same number."""
    await store.stage_changes(
        SESSION, f"step-{step}", writes(push("items", items=[step]), add("count")), tool_call_id="call"
    )
    state = plain_state(SESSION, output=step)
    await store.save_state_and_promote_staging(SESSION, state, [user(str(step))], meta(step, f"step-{step}"))


async def _assert_whole(store: RedisStateStore) -> int:
    """Whatever is visible of a commit is all of it; how many commits there are."""
    state = await store.load_state(SESSION)
    assert state is not None
    items = state.custom_state["items"]
    messages = (await store.get_messages(SESSION, limit=None)).items
    checkpoints = await store.list_checkpoints(SESSION, limit=1)
    assert [int(message["content"]) for message in messages] == items == list(range(1, len(items) + 1))
    assert state.custom_state["count"] == len(items) == checkpoints.total == state.version - 1
    assert state.output == (items[-1] if items else None)
    return len(items)


async def _new_session(store: RedisStateStore) -> None:
    await store.create_session(SESSION, agent_type="agent", custom_state={"items": [], "count": 0})


async def _commit_until_killed(store: RedisStateStore, server: RedisServer, done: int) -> int:
    """Commit until the server, which is killed in the midst of it, no longer answers; the last acknowledged step."""
    kill_at = done + random.randint(5, 30)
    try:
        for step in range(done + 1, kill_at + 1000):
            if step == kill_at:
                killing = asyncio.create_task(asyncio.to_thread(server.kill9))
            await _commit(store, step)
            done = step
    except StoreUnavailable:
        await killing
    return done


async def test_no_acknowledged_commit_is_lost_when_the_server_is_killed(private_redis: RedisServer) -> None:
    client = client_for(private_redis.url)
    store = RedisStateStore(client)
    await _new_session(store)
    acknowledged = 0
    for _ in range(3):
        acknowledged = await _commit_until_killed(store, private_redis, acknowledged)
        await asyncio.to_thread(private_redis.start)
        found = await _assert_whole(store)
        assert found in (acknowledged, acknowledged + 1)
        await store.discard_staging(SESSION)
        acknowledged = found
    await client.aclose()


async def test_a_lost_reply_never_doubles_a_commit(private_redis: RedisServer, proxy_to: ProxyTo) -> None:
    proxy = await proxy_to(private_redis.port)
    # The client's own retries are on: they must not repeat a write.
    client = client_for(f"redis://127.0.0.1:{proxy.port}/0")
    store = RedisStateStore(client)
    await _new_session(store)
    for step in range(1, 11):
        await store.stage_changes(
            SESSION, f"step-{step}", writes(push("items", items=[step]), add("count")), tool_call_id="call"
        )
        proxy.lose_reply()
        state = plain_state(SESSION, output=step)
        done = await store.save_state_and_promote_staging(SESSION, state, [user(str(step))], meta(step, f"step-{step}"))
        assert done.message_count == step
    assert await _assert_whole(store) == 10
    await client.aclose()


async def test_a_lost_reply_to_an_append_is_an_error_and_happens_once(
    private_redis: RedisServer, proxy_to: ProxyTo
) -> None:
    proxy = await proxy_to(private_redis.port)
    client = client_for(f"redis://127.0.0.1:{proxy.port}/0")
    store = RedisStateStore(client)
    await store.create_session(SESSION, agent_type="agent")
    for number in range(1, 6):
        proxy.lose_reply()
        try:
            await store.append_messages(SESSION, [user("x")])
        except StoreUnavailable:
            pass
        else:
            raise AssertionError("the reply was lost, and nobody was told")
        assert await store.get_message_count(SESSION) == number
    await client.aclose()


async def test_streams_come_through_cut_connections(private_redis: RedisServer, proxy_to: ProxyTo) -> None:
    proxy = await proxy_to(private_redis.port)
    client = client_for(f"redis://127.0.0.1:{proxy.port}/0")
    streams = RedisStreamManager(client, prefix=new_prefix())
    writer = await streams.create_writer("s", "run", "agent")
    reader = await streams.create_reader("s")
    assert reader is not None

    async def read() -> list[int]:
        return [chunk["n"] async for chunk in reader]

    reading = asyncio.create_task(read())
    for number in range(200):
        await writer.write({"type": "custom", "n": number})
        if number % 20 == 10:
            proxy.cut()
        if number % 20 == 15:
            proxy.lose_reply()
        if number % 5 == 0:
            await writer.flush()
    await writer.close()
    await streams.end_stream("s")
    assert await asyncio.wait_for(reading, 30) == list(range(200))
    await streams.close()
    await client.aclose()


async def test_readers_go_on_after_the_server_was_killed(private_redis: RedisServer) -> None:
    client = client_for(private_redis.url)
    streams = RedisStreamManager(client, prefix=new_prefix(), retry_delays_seconds=(0.05,) * 100)
    writer = await streams.create_writer("s", "run", "agent")
    reader = await streams.create_reader("s")
    assert reader is not None
    seen: list[int] = []

    async def read() -> None:
        async for chunk in reader:
            seen.append(chunk["n"])

    reading = asyncio.create_task(read())
    for number in range(3):
        for part in range(10):
            await writer.write({"type": "custom", "n": number * 10 + part})
        await writer.flush()
        await asyncio.to_thread(private_redis.kill9)
        await asyncio.to_thread(private_redis.start)
    await streams.end_stream("s")
    await asyncio.wait_for(reading, 30)
    assert seen == list(range(30))
    await streams.close()
    await client.aclose()


async def test_a_cluster_that_loses_a_node_goes_on(private_redis_cluster: RedisCluster) -> None:
    cluster = private_redis_cluster
    client = client_for(cluster.url)
    store, streams = RedisStateStore(client), RedisStreamManager(client)
    sessions = [f"session-{number}" for number in range(12)]
    for name in sessions:
        await store.create_session(name, agent_type="agent", custom_state={"items": [1]})
    # Replication is asynchronous: what a replica has not yet heard of goes with its master.
    await asyncio.to_thread(_wait_for_replicas, cluster)
    await asyncio.to_thread(cluster.nodes[0].kill9)
    await asyncio.to_thread(cluster.wait_until_promoted, cluster.nodes[3])
    for name in sessions:
        await _patiently(store.merge_custom_state, name, writes(push("items", items=[2])))
    for name in sessions:
        state = await _patiently(store.load_state, name)
        assert state.custom_state == {"items": [1, 2]}
    assert (await _patiently(store.list_sessions)).total == len(sessions)
    for name in sessions:
        writer = await _patiently(streams.create_writer, name, "run", "agent")
        await writer.write({"type": "custom", "n": 1})
        await writer.close()
        assert len(await streams.get_all_chunks(name)) == 1
    await streams.close()
    await store.close()
    await client.aclose()


def _wait_for_replicas(cluster: RedisCluster) -> None:
    for node in cluster.masters:
        with node.client() as client:
            client.wait(1, 5000)


async def _patiently(act: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
    """While the topology settles a request may fail; it must not fail for long."""
    for _ in range(100):
        try:
            return await act(*arguments)
        except StoreUnavailable:
            await asyncio.sleep(0.1)
    return await act(*arguments)


async def test_a_commit_of_tools_in_this_process_is_one_round_trip(
    private_redis: RedisServer, proxy_to: ProxyTo
) -> None:
    proxy = await proxy_to(private_redis.port)
    client = client_for(f"redis://127.0.0.1:{proxy.port}/0")
    store = RedisStateStore(client)
    await _new_session(store)
    await _commit(store, 1)
    for step in range(2, 6):
        for index in range(3):
            await store.stage_changes(
                SESSION,
                f"step-{step}",
                writes(push("items", items=[index]), add("count")),
                tool_call_id=f"call-{index}",
                index=index,
            )
        before = proxy.round_trips
        state = plain_state(SESSION, output=step)
        await store.save_state_and_promote_staging(SESSION, state, [user("x")], meta(step, f"step-{step}"))
        assert proxy.round_trips - before == 1
    before = proxy.round_trips
    answer = await store.compare_and_set_status(SESSION, "paused", "active")
    assert not answer.ok
    assert proxy.round_trips - before == 1
    await client.aclose()


async def test_a_hundred_readers_of_a_process_share_one_subscription(
    private_redis: RedisServer, proxy_to: ProxyTo
) -> None:
    proxy = await proxy_to(private_redis.port)
    reading = client_for(f"redis://127.0.0.1:{proxy.port}/0")
    writing = client_for(private_redis.url)
    prefix = new_prefix()
    readers, writers = RedisStreamManager(reading, prefix=prefix), RedisStreamManager(writing, prefix=prefix)
    writer = await writers.create_writer("s", "run", "agent")
    attached = [await readers.create_reader("s") for _ in range(100)]
    everyone = [asyncio.create_task(_drained(reader)) for reader in attached]
    before = readers.hub.reads
    for number in range(50):
        await writer.write({"type": "custom", "n": number})
        await writer.flush()
    await writers.end_stream("s")
    assert await asyncio.gather(*everyone) == [50] * 100
    assert readers.hub.subscriptions == 1
    assert readers.hub.reads - before <= 60  # one for each wake-up, not one for each reader
    for each in (readers, writers):
        await each.close()
    for client in (reading, writing):
        await client.aclose()


async def _drained(reader: Any) -> int:
    return len([chunk async for chunk in reader])
