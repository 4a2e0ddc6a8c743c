"""What real failures do: cut connections, lost replies, killed servers, a cluster that loses a node."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
from msgspec.structs import replace

from helix_agents.backends.redis import wakeup
from helix_agents.backends.redis.client import servers
from helix_agents.backends.redis.sessions.store import RedisStateStore
from helix_agents.backends.redis.stream_manager import RedisStreamManager
from helix_agents.conformance.tools.sample import add, meta, plain_state, push, put, user, writes
from helix_agents.errors import StoreUnavailable
from helix_agents.retry import OUTAGE
from tests.redis.harnesses import client_for, new_prefix
from tests.servers.proxy import Proxy
from tests.servers.redis_cluster import RedisCluster
from tests.servers.redis_server import RedisServer

ProxyTo = Callable[[int], Awaitable[Proxy]]
SESSION = "a"


async def _commit(store: RedisStateStore, step: int) -> None:
    """Commit a step with one tool: a message, an item, a counter, all with the same number."""
    await store.stage_changes(
        SESSION, f"step-{step}", writes(push("items", items=[step]), add("count")), tool_call_id="call"
    )
    state = plain_state(SESSION, output=step)
    await store.save_state_and_promote_staging(SESSION, state, [user(str(step))], meta(step, f"step-{step}"))


async def _assert_whole(store: RedisStateStore) -> int:
    """Check that every visible commit is complete; return how many there are."""
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
    """Commit until the server, which is killed meanwhile, stops responding; return the last acknowledged step."""
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


async def test_no_acknowledged_commit_is_lost_when_the_server_is_killed(
    private_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "OUTAGE", replace(OUTAGE, within_seconds=0.2))
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


@pytest.mark.parametrize("way", ["by script", "without scripts"])
async def test_a_server_that_is_away_for_a_moment_is_waited_for(
    private_redis: RedisServer, proxy_to: ProxyTo, way: str
) -> None:
    proxy = await proxy_to(private_redis.port)
    client = client_for(f"redis://127.0.0.1:{proxy.port}/0")
    store, streams = RedisStateStore(client), RedisStreamManager(client)
    store._runner.scripts_allowed = way == "by script"
    await _new_session(store)
    for step in range(1, 4):
        proxy.cut(refuse=True)
        acting: list[asyncio.Task[Any]] = [
            asyncio.create_task(_commit(store, step)),
            asyncio.create_task(store.load_state(SESSION)),
            asyncio.create_task(streams.create_writer(f"s{step}", "run", "agent")),
        ]
        done, _ = await asyncio.wait(acting, timeout=0.3)
        assert not done
        proxy.heal()
        await asyncio.gather(*acting)
    assert await _assert_whole(store) == 3
    await streams.close()
    await client.aclose()


async def test_a_server_that_stays_away_is_unavailable_and_nothing_is_written(
    private_redis: RedisServer, proxy_to: ProxyTo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "OUTAGE", replace(OUTAGE, within_seconds=0.2))
    proxy = await proxy_to(private_redis.port)
    client = client_for(f"redis://127.0.0.1:{proxy.port}/0")
    store = RedisStateStore(client)
    await _new_session(store)
    proxy.cut(refuse=True)
    # The read notices that its connection is gone.
    for act in (store.load_state(SESSION), store.append_messages(SESSION, [user("x")])):
        with pytest.raises(StoreUnavailable) as caught:
            await act
        assert caught.value.nothing_written
    proxy.heal()
    assert await store.append_messages(SESSION, [user("x")]) == 1
    await client.aclose()


def test_the_patience_is_at_least_five_seconds() -> None:
    assert OUTAGE.within_seconds >= 5


async def test_what_only_reads_or_stages_is_sent_again(private_redis: RedisServer, proxy_to: ProxyTo) -> None:
    proxy = await proxy_to(private_redis.port)
    client = client_for(f"redis://127.0.0.1:{proxy.port}/0")
    store = RedisStateStore(client)
    await _new_session(store)
    proxy.lose_reply()
    assert (await store.load_state(SESSION)).custom_state == {"items": [], "count": 0}  # type: ignore[union-attr]
    proxy.lose_reply()
    assert await store.get_message_count(SESSION) == 0
    proxy.lose_reply()
    await store.stage_changes(SESSION, "step-1", writes(add("count")), tool_call_id="call")
    assert len(await store.list_staged(SESSION, "step-1")) == 1
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


async def test_who_gives_up_waiting_leaves_no_reply_for_the_next(private_redis: RedisServer, proxy_to: ProxyTo) -> None:
    proxy = await proxy_to(private_redis.port)
    client = client_for(f"redis://127.0.0.1:{proxy.port}/0")
    store = RedisStateStore(client)
    await _new_session(store)
    acts: list[Callable[[], Coroutine[Any, Any, Any]]] = [
        lambda: store.append_messages(SESSION, [user("x")]),
        lambda: store.get_messages(SESSION),
    ]
    for number, act in enumerate(acts * 3, start=1):
        before = proxy.round_trips
        proxy.black_hole()
        waiting = asyncio.create_task(act())
        for _ in range(10_000):
            if proxy.round_trips > before:
                break
            await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        proxy.heal()
        assert await store.increment_step_count(SESSION) == number
        assert (await store.load_state(SESSION)).step_count == number  # type: ignore[union-attr]
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


async def test_readers_hear_of_others_after_a_reconnect(private_redis: RedisServer, proxy_to: ProxyTo) -> None:
    proxy = await proxy_to(private_redis.port)
    reading, writing = client_for(f"redis://127.0.0.1:{proxy.port}/0"), client_for(private_redis.url)
    prefix = new_prefix()
    readers, writers = RedisStreamManager(reading, prefix=prefix), RedisStreamManager(writing, prefix=prefix)
    writer = await writers.create_writer("s", "run", "agent")
    reader = await readers.create_reader("s")
    assert reader is not None
    arrived: asyncio.Queue[int] = asyncio.Queue()

    async def read() -> None:
        async for chunk in reader:
            arrived.put_nowait(chunk["n"])

    reading_on = asyncio.create_task(read())
    for number in range(0, 20, 2):
        proxy.cut(refuse=True)
        await writer.write({"type": "custom", "n": number})  # while no subscription is open
        await writer.flush()
        proxy.heal()
        assert await asyncio.wait_for(arrived.get(), 30) == number
        await writer.write({"type": "custom", "n": number + 1})  # on the new connection
        await writer.flush()
        assert await asyncio.wait_for(arrived.get(), 30) == number + 1
    await writers.end_stream("s")
    await asyncio.wait_for(reading_on, 30)
    for each in (readers, writers):
        await each.close()
    for client in (reading, writing):
        await client.aclose()


async def test_a_restore_that_is_overtaken_leaves_its_checkpoint_as_it_was(
    private_redis: RedisServer, proxy_to: ProxyTo
) -> None:
    proxy = await proxy_to(private_redis.port)
    slow, quick = client_for(f"redis://127.0.0.1:{proxy.port}/0"), client_for(private_redis.url)
    restoring, merging = RedisStateStore(slow), RedisStateStore(quick)
    await _new_session(merging)
    await _commit(merging, 1)
    (checkpoint,) = (await merging.list_checkpoints(SESSION)).items
    proxy.delay_seconds = 0.005
    for round_number in range(5):
        restore = asyncio.create_task(restoring.restore_checkpoint(SESSION, checkpoint.checkpoint_id))
        for number in range(20):
            await merging.merge_custom_state(SESSION, writes(put(f"{round_number}.{number}", value=1)))
            await asyncio.sleep(0.002)
        await restore
        found = await merging.get_checkpoint(SESSION, checkpoint.checkpoint_id)
        assert found is not None
        assert found.state.custom_state == {"items": [1], "count": 1}
    for client in (slow, quick):
        await client.aclose()


async def test_two_restores_at_once_are_no_mixture(private_redis: RedisServer, proxy_to: ProxyTo) -> None:
    proxy = await proxy_to(private_redis.port)
    slow, quick = client_for(f"redis://127.0.0.1:{proxy.port}/0"), client_for(private_redis.url)
    late, early = RedisStateStore(slow), RedisStateStore(quick)
    await _new_session(early)
    await _commit(early, 1)
    first = (await early.list_checkpoints(SESSION)).items[0].checkpoint_id
    proxy.delay_seconds = 0.01
    chance = random.Random(1)
    for round_number in range(20):
        await early.restore_checkpoint(SESSION, first)
        await _commit(early, 2)
        second = (await early.list_checkpoints(SESSION)).items[0].checkpoint_id
        restoring = asyncio.create_task(late.restore_checkpoint(SESSION, second))
        await asyncio.sleep(chance.uniform(0, 0.12))
        # Meanwhile: back to the first, and another history with as many checkpoints as before.
        await early.restore_checkpoint(SESSION, first)
        for number in range(3):
            await early.merge_custom_state(SESSION, writes(put(f"{round_number}.{number}", value=1)))
        await _commit(early, 2)
        expected = {f"{round_number}.{number}": 1 for number in range(3)} | {"items": [1, 2], "count": 2}
        await asyncio.gather(restoring, return_exceptions=True)  # done, or too late: its checkpoint is gone
        for found in (await early.list_checkpoints(SESSION)).items:
            read = await early.get_checkpoint(SESSION, found.checkpoint_id)
            assert read is not None
            wanted = {"items": [1], "count": 1} if found.checkpoint_id == first else expected
            assert read.state.custom_state == wanted
    for client in (slow, quick):
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
    # Replication is asynchronous: writes that a replica has not received are lost with its master.
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


async def test_a_slot_that_moves_takes_its_sessions_along(cluster_of_three: RedisCluster) -> None:
    client = client_for(cluster_of_three.url)
    store, streams = RedisStateStore(client, prefix=new_prefix()), RedisStreamManager(client, prefix=new_prefix())
    await _new_session(store)
    writer = await streams.create_writer(SESSION, "run", "agent")
    await _commit(store, 1)
    for step, target in enumerate(cluster_of_three.masters * 2, start=2):
        moving = cluster_of_three.moving_slot(SESSION, target)
        await asyncio.to_thread(moving.__enter__)
        under_way = asyncio.create_task(_commit(store, step))
        await asyncio.sleep(0.05)  # to be asked while the keys are under way; nothing depends on it
        await asyncio.to_thread(moving.__exit__, None, None, None)
        await under_way
        await writer.write({"type": "custom", "n": step})
        await writer.flush()
        assert await _assert_whole(store) == step
    assert len(await streams.get_all_chunks(SESSION)) == 6
    await streams.close()
    await store.close()
    await client.aclose()


def _wait_for_replicas(cluster: RedisCluster) -> None:
    for node in cluster.masters:
        with node.client() as client:
            client.wait(1, 5000)


async def _patiently(act: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
    """Retry a request, which may fail while the topology settles, but not for long."""
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


async def test_a_subscription_that_has_gone_silent_is_opened_anew(
    private_redis: RedisServer, proxy_to: ProxyTo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wakeup, "PING_SECONDS", 0.02)
    monkeypatch.setattr(wakeup, "SILENCE_SECONDS", 0.2)
    proxy = await proxy_to(private_redis.port)
    # Only the subscription may time out here.
    client = client_for(f"redis://127.0.0.1:{proxy.port}/0", socket_timeout=3600)
    streams = RedisStreamManager(client, prefix=new_prefix())
    writer = await streams.create_writer("s", "run", "agent")
    reader = await streams.create_reader("s")
    assert reader is not None
    reading = asyncio.create_task(_drained(reader))
    await writer.write({"type": "custom", "n": 1})
    await writer.flush()
    before = proxy.connections_made
    proxy.black_hole()
    for _ in range(1000):
        if proxy.connections_made > before:
            break
        await asyncio.sleep(0.02)
    assert proxy.connections_made > before
    proxy.heal()
    await writer.write({"type": "custom", "n": 2})
    await writer.close()
    await streams.end_stream("s")
    assert await asyncio.wait_for(reading, 30) == 2
    await streams.close()
    await client.aclose()
