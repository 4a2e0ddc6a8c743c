"""All keys of a session expire together."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from helix_agents.backends.redis.sessions.store import RedisStateStore
from helix_agents.backends.redis.stream_manager import RedisStreamManager
from helix_agents.backends.registry import Stores, open_stores
from helix_agents.conformance.tools.operations import prepare
from helix_agents.conformance.tools.sample import meta, plain_state, push, put, user, writes
from helix_agents.errors import InvalidArgument
from helix_agents.stores.along import Along
from tests.redis.harnesses import client_for

Connect = Callable[..., Any]
LIMIT_SECONDS = 60

# The keys of a session have the session id as hash tag; the others are the index and the owners of run ids.


async def _deadlines(client: Any, prefix: str, session_id: str) -> dict[str, int]:
    """Return when each key of the session expires, in epoch milliseconds of the server; -1 for never."""
    found: dict[str, int] = {}
    async for key in client.scan_iter(match=f"{prefix}:session*{{{session_id}}}*"):
        # PEXPIRETIME is not in Redis 6.2: the remaining time and the clock, in one transaction, say the same.
        async with client.pipeline(transaction=True) as pipe:
            left, (seconds, micros) = await pipe.pttl(key).time().execute()
        if left != -2:  # else it has expired since
            found[key.decode()] = -1 if left < 0 else seconds * 1000 + micros // 1000 + left
    return found


async def _until_moved(
    client: Any, prefix: str, before: dict[str, int], write: Callable[[], Awaitable[object]]
) -> dict[str, int]:
    """Write to session `a` until its deadline has moved, which it does once a tenth of the time to live has passed."""
    async with asyncio.timeout(LIMIT_SECONDS):
        while max((await _deadlines(client, prefix, "a")).values()) <= max(before.values()):
            await write()
            await asyncio.sleep(0.05)
    return await _deadlines(client, prefix, "a")


def _spread(deadlines: dict[str, int]) -> int:
    assert deadlines, "there are no keys"
    immortal = [key for key, deadline in deadlines.items() if deadline < 0]
    assert not immortal, f"immortal keys: {immortal}"
    return max(deadlines.values()) - min(deadlines.values())


@pytest.fixture(params=["scripts", "no scripts"])
def url(request: pytest.FixtureRequest, valkey: str, valkey_without_scripts: str) -> str:
    return valkey if request.param == "scripts" else valkey_without_scripts


async def test_all_keys_of_a_session_have_one_deadline(connect: Connect, prefix: str, url: str) -> None:
    client = connect(url)
    store = RedisStateStore(client, prefix=prefix, ttl=3600)
    await prepare(store, "a")
    oldest = (await store.list_checkpoints("a")).items[-1].checkpoint_id
    for step in range(4, 8):
        await store.merge_custom_state("a", writes(put("items", value=[step]), put("deep", value={"x": step})))
        await store.save_state_and_promote_staging("a", plain_state("a"), [user("x")], meta(step, f"step-{step}"))
    assert _spread(await _deadlines(client, prefix, "a")) <= 1
    await store.restore_checkpoint("a", oldest)
    await store.merge_custom_state("a", writes(push("items", items=[1]), put("fresh", value=[1])))
    assert _spread(await _deadlines(client, prefix, "a")) <= 1


async def test_no_key_of_the_application_is_immortal(connect: Connect, prefix: str, url: str) -> None:
    client = connect(url)
    store = RedisStateStore(client, prefix=prefix, ttl=3600)
    await prepare(store, "a")
    await store.fork_session("a", "b")
    await store.update_status("a", "completed")
    keys = [key async for key in client.scan_iter(match=f"{prefix}*")]
    assert {len([key for key in keys if b"{%s}" % name in key]) > 1 for name in (b"a", b"b")} == {True}
    for key in keys:
        assert await client.pttl(key) > 0, key


async def test_writes_move_the_deadline_of_every_key(connect: Connect, prefix: str, url: str) -> None:
    client = connect(url)
    # Moving is noticed at once with a time to live of seconds, since it happens once a tenth of it is gained.
    store = RedisStateStore(client, prefix=prefix, ttl=20)
    await prepare(store, "a")
    # Replaced as a whole after a checkpoint: the old list and object are kept under keys of their own.
    await store.merge_custom_state("a", writes(put("items", value=[2]), put("deep", value={"x": 2})))
    before = await _deadlines(client, prefix, "a")
    after = await _until_moved(client, prefix, before, lambda: store.append_messages("a", [user("again")]))
    assert min(after.values()) > max(before.values())
    assert _spread(after) <= 1


async def test_a_session_expires_as_a_whole_and_leaves_the_listing(connect: Connect, prefix: str) -> None:
    client = connect()
    store = RedisStateStore(client, prefix=prefix, ttl=1)
    store._index.fresh_ms = 10
    await prepare(store, "a")
    async with asyncio.timeout(LIMIT_SECONDS):
        while await store.session_exists("a"):
            found = await _deadlines(client, prefix, "a")
            if found:
                assert _spread(found) <= 1
            await asyncio.sleep(0.05)
    assert await _deadlines(client, prefix, "a") == {}
    assert (await store.list_sessions()).total == 0
    left = [key async for key in client.scan_iter(match=f"{prefix}:index*") if b":by:" in key or b":entry:" in key]
    assert left == []


async def test_writes_to_one_key_of_custom_state_keep_the_others_alive(connect: Connect, prefix: str) -> None:
    client = connect()
    store = RedisStateStore(client, prefix=prefix, ttl=20)
    await store.create_session("a", agent_type="agent", custom_state={"untouched": [1, 2], "n": 0})
    before = await _deadlines(client, prefix, "a")
    after = await _until_moved(client, prefix, before, lambda: store.merge_custom_state("a", writes(put("n", value=1))))
    assert after.keys() >= before.keys()
    assert min(after.values()) > max(before.values())


async def test_a_session_outlives_its_expires_at(connect: Connect, prefix: str, url: str) -> None:
    client = connect(url)
    store = RedisStateStore(client, prefix=prefix, ttl=10)
    expires_at = int(time.time() * 1000) + 3_600_000
    await store.create_session("a", agent_type="agent", custom_state={"items": [1]}, expires_at=expires_at)
    await store.append_messages("a", [user("x")])
    assert min((await _deadlines(client, prefix, "a")).values()) > expires_at


async def test_what_tells_of_a_session_outlives_it(connect: Connect, prefix: str, url: str) -> None:
    client = connect(url)
    store = RedisStateStore(client, prefix=prefix, ttl=20)
    await prepare(store, "a")
    moved = max((await _deadlines(client, prefix, "a")).values())
    about = [key async for key in client.scan_iter(match=f"{prefix}:*") if b":session" not in key]
    about = [key for key in about if b":fresh:" not in key]
    assert len([key for key in about if b":run:" in key]) == 1
    for key in about:
        assert await client.pttl(key) > 20_000, key
        await client.pexpire(key, 15_000)
    # When the session's deadline moves, theirs do.
    await _until_moved(client, prefix, {"": moved}, lambda: store.append_messages("a", [user("again")]))
    for key in about:
        assert await client.pttl(key) > 20_000, key


async def test_new_sessions_sweep_up_after_expired_ones(connect: Connect, prefix: str) -> None:
    client = connect()
    store = RedisStateStore(client, prefix=prefix, ttl=1)
    store._index.fresh_ms = 10
    await store.create_session("old", agent_type="agent", user_id="u")
    async with asyncio.timeout(LIMIT_SECONDS):
        while await store.session_exists("old"):  # noqa: ASYNC110  # a foreign clock
            await asyncio.sleep(0.05)
    for number in range(16):
        await store.create_session(f"new-{number}", agent_type="agent")
    index = f"{prefix}:index:{{{prefix}}}"
    assert await client.zscore(f"{index}:deadlines", "old") is None
    assert await client.zcard(f"{index}:by:user=u") == await client.exists(f"{index}:entry:old") == 0


async def test_all_keys_of_a_stream_expire(connect: Connect, prefix: str, url: str) -> None:
    client = connect(url)
    streams = RedisStreamManager(client, prefix=prefix, ttl=60)
    writer = await streams.create_writer("s", "run", "agent")
    for _ in range(3):
        await writer.write({"type": "custom"})
        await writer.flush()
    await streams.cleanup_to_step("s", 0)
    keys = [key async for key in client.scan_iter(match=f"{prefix}:stream*")]
    assert len(keys) == 3
    for key in keys:
        assert await client.pttl(key) > 60_000, key
    await streams.close()


async def test_time_to_live_must_be_positive(connect: Connect) -> None:
    with pytest.raises(InvalidArgument):
        RedisStateStore(connect(), ttl=0)


@pytest.mark.parametrize("call", ["update_status", "compare_and_set_status"])
async def test_what_a_status_change_suspends_outlives_the_time_to_live(
    connect: Connect, prefix: str, url: str, call: str
) -> None:
    client = connect(url)
    store = RedisStateStore(client, prefix=prefix, ttl=3600)
    await store.create_session("a", agent_type="agent")
    arguments = ("suspended_client_tool",) if call == "update_status" else ("active", "suspended_client_tool")
    await getattr(store, call)("a", *arguments)
    found = await _deadlines(client, prefix, "a")
    assert min(found.values()) > time.time() * 1000 + 300 * 86_400_000


async def test_what_waits_for_a_person_outlives_the_time_to_live(connect: Connect, prefix: str, url: str) -> None:
    client = connect(url)
    store = RedisStateStore(client, prefix=prefix, ttl=3600)
    await store.create_session("a", agent_type="agent", user_id="ann")
    await store.save_state("a", plain_state("a", status="suspended_client_tool", user_id="ann"))
    await store.append_messages("a", [user("x")])
    now = time.time() * 1000
    found = await _deadlines(client, prefix, "a")
    assert _spread(found) <= 1
    assert min(found.values()) > now + 300 * 86_400_000
    async for key in client.scan_iter(match=f"{prefix}:index*:by:*"):
        if b"suspended" in key:
            assert await client.pttl(key) > 300 * 86_400_000
    await store.save_state("a", plain_state("a", status="completed", user_id="ann"))
    assert max((await _deadlines(client, prefix, "a")).values()) <= now + 2 * 3_600_000


@pytest.fixture(params=["node", "node without scripts", "cluster"])
def any_url(request: pytest.FixtureRequest, valkey: str, valkey_without_scripts: str, cluster: str) -> str:
    return {"node": valkey, "node without scripts": valkey_without_scripts, "cluster": cluster}[request.param]


async def _companions(client: Any, prefix: str, session_id: str) -> dict[str, int]:
    """Return how many milliseconds the keys of a session's usage and stream have left, and those of the session
    itself."""
    names = ("session", "usage:entries", "stream:meta", "stream", "stream:producers")
    return {name: await client.pttl(f"{prefix}:{name}:{{{session_id}}}") for name in names}


async def _prepare_companions(url: str, prefix: str, **options: int) -> tuple[Any, Stores, AsyncExitStack]:
    opened = AsyncExitStack()
    query = "&".join(f"{name}={value}" for name, value in {"prefix": prefix, **options}.items())
    stores = await opened.enter_async_context(open_stores(f"{url}?{query}"))
    client = await opened.enter_async_context(client_for(url))
    await stores.state.create_session("a", agent_type="agent", user_id="ann")
    async with await stores.streams.create_writer("a", "run", "agent") as writer:
        await writer.write({"type": "custom"})
    await stores.usage.record_entry({"kind": "custom", "id": "1", "session_id": "a", "name": "pages"})
    return client, stores, opened


async def test_usage_and_stream_expire_with_their_session(any_url: str, prefix: str) -> None:
    client, stores, opened = await _prepare_companions(any_url, prefix, session_ttl_seconds=2)
    async with opened:
        left = await _companions(client, prefix, "a")
        assert all(0 < each <= 2000 for each in left.values()), left
        async with asyncio.timeout(LIMIT_SECONDS):
            while await stores.state.session_exists("a"):  # noqa: ASYNC110  # a foreign clock
                await asyncio.sleep(0.05)
        assert set((await _companions(client, prefix, "a")).values()) == {-2}
        assert await stores.usage.get_entries("a") == []
        old = {"kind": "custom", "id": "old", "session_id": "b", "name": "pages", "timestamp": 1}
        await stores.usage.record_entry(old)
        await client.delete(f"{prefix}:usage:entries:{{b}}")  # as if it had expired long ago
        by_time = f"{prefix}:usage:{{{prefix}}}:time"
        assert (await stores.usage.query_usage()).items == []
        assert [each async for each, _ in client.zscan_iter(by_time)] == [
            b"a\x1f1"
        ]  # recent: perhaps still being written
        assert await stores.streams.get_stream_info("a") is None


@pytest.mark.parametrize("stream_ttl", [3600, 10**8])
async def test_usage_and_stream_of_what_waits_for_a_person_wait_too(any_url: str, prefix: str, stream_ttl: int) -> None:
    """The stream expires after its own time to live at the latest, which the session's shorter one had reduced."""
    client, stores, opened = await _prepare_companions(
        any_url, prefix, session_ttl_seconds=60, stream_ttl_seconds=stream_ttl
    )
    async with opened:
        await stores.state.save_state("a", plain_state("a", status="suspended_client_tool", user_id="ann"))
        left = await _companions(client, prefix, "a")
        year = 300 * 86_400_000
        assert min(left["session"], left["usage:entries"]) > year
        stream = [each for name, each in left.items() if name.startswith("stream")]
        assert min(stream) > (year if stream_ttl > 86_400 else 3600 * 1000 - 1)
        assert max(stream) <= (left["session"] if stream_ttl > 86_400 else 3600 * 1100 + 1000)
        await stores.usage.record_entry({"kind": "custom", "id": "2", "session_id": "a", "name": "pages"})
        assert (await _companions(client, prefix, "a"))["usage:entries"] > year
        await stores.state.save_state("a", plain_state("a", status="completed", user_id="ann"))
        assert max((await _companions(client, prefix, "a")).values()) <= 60_000


async def test_a_stream_that_never_expires_goes_with_its_session(any_url: str, prefix: str) -> None:
    client, stores, opened = await _prepare_companions(any_url, prefix, session_ttl_seconds=60, stream_ttl_seconds=0)
    async with opened:
        left = await _companions(client, prefix, "a")
        assert all(0 < each <= 60_000 for each in left.values()), left
        async with await stores.streams.create_writer("alone", "run", "agent") as writer:
            await writer.write({"type": "custom"})
        assert (await _companions(client, prefix, "alone"))["stream"] == -1


async def test_usage_that_comes_with_a_commit_expires_with_the_session(any_url: str, prefix: str) -> None:
    client, stores, opened = await _prepare_companions(any_url, prefix, session_ttl_seconds=60)
    async with opened:
        await stores.usage.delete_entries("a")
        entry = {"kind": "custom", "id": "3", "session_id": "a", "name": "pages"}
        await stores.state.save_state_and_promote_staging(
            "a", plain_state("a", user_id="ann"), [user("x")], meta(1, "step-1"), along=Along(usage=[entry])
        )
        assert 0 < (await _companions(client, prefix, "a"))["usage:entries"] <= 60_000


async def test_usage_that_is_kept_on_purpose_outlives_its_session(any_url: str, prefix: str) -> None:
    client, stores, opened = await _prepare_companions(any_url, prefix, session_ttl_seconds=60)
    async with opened:
        await stores.state.delete_session("a")
        assert (await _companions(client, prefix, "a"))["usage:entries"] == -1
        await stores.usage.record_entry({"kind": "custom", "id": "2", "session_id": "a", "name": "pages"})
        assert (await _companions(client, prefix, "a"))["usage:entries"] == -1
