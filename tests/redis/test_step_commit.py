"""The short way of step commits leaves what the long way leaves, and stands back when something is not ordinary."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from helix_agents.backends.redis.runner import COMMIT, STEP_COMMIT
from helix_agents.backends.redis.state_store import RedisStateStore
from helix_agents.conformance.tools.dump import portrait
from helix_agents.conformance.tools.sample import add, drop, meta, plain_state, push, put, user, writes
from helix_agents.errors import VersionConflict
from helix_agents.state import StepWrites
from tests.redis.harnesses import LongWayStore

Connect = Callable[..., Any]
Interference = Callable[[RedisStateStore], Awaitable[Any]]

START: dict[str, Any] = {"n": 1, "items": [1], "object": {"a": 1}, "text": "old", "empty": []}


async def _session(store: RedisStateStore) -> None:
    await store.create_session("a", agent_type="agent", custom_state=START)


async def _stage(store: RedisStateStore, step: int, *calls: StepWrites) -> None:
    for place, each in enumerate(calls):
        await store.stage_changes("a", f"step-{step}", each, tool_call_id=f"call-{place}", index=place)


async def _commit(store: RedisStateStore, step: int, version: int | None = None, **fields: Any) -> int:
    """The commit of a step; the version after it."""
    state, texts = plain_state("a", **fields), [user(f"{step}.{place}") for place in range(step % 3)]
    done = await store.save_state_and_promote_staging(
        "a", state, texts, meta(step, f"step-{step}"), expected_version=version
    )
    return done.new_version


async def _known_scripts(client: Any) -> list[bool]:
    """Whether the server knows the script of the short way and that of the long one."""
    return [bool(each) for each in await client.script_exists(STEP_COMMIT.digest, COMMIT.digest)]


async def _spread(client: Any, prefix: str) -> int:
    """Milliseconds between the first and the last of a session's keys to expire; the server's clock, read together."""
    keys = [key async for key in client.scan_iter(match=f"{prefix}:session*")]
    async with client.pipeline(transaction=True) as pipe:
        for key in keys:
            pipe.pttl(key)
        left = await pipe.execute()
    assert min(left) > 0, dict(zip(keys, left, strict=True))
    return int(max(left) - min(left))


@pytest.mark.parametrize("version", [None, 1])
async def test_the_commit_of_a_step_goes_the_short_way(connect: Connect, prefix: str, version: int | None) -> None:
    client = connect()
    store = RedisStateStore(client, prefix=prefix)
    await _session(store)
    await _stage(store, 1, writes(add("n"), push("items", items=[2])), writes(push("items", items=[3])))
    await client.script_flush()
    assert await _commit(store, 1, version) == 2
    assert await _known_scripts(client) == [True, False]


# What keeps a commit from the short way, or makes the script of the short way stand back: done by another store object,
# after the tools have staged and before the commit.


async def _count(other: RedisStateStore) -> None:
    await other.merge_custom_state("a", writes(add("n", by=10)))


async def _become_text(other: RedisStateStore) -> None:
    await other.merge_custom_state("a", writes(put("items", value="no list")))


async def _stage_more(other: RedisStateStore) -> None:
    await other.stage_changes("a", "step-1", writes(add("n", by=100)), tool_call_id="another")


async def _stage_again(other: RedisStateStore) -> None:
    await other.stage_changes("a", "step-1", writes(add("n", by=100)), tool_call_id="call-0")


async def _discard(other: RedisStateStore) -> None:
    await other.discard_staging("a", "step-1")


async def _fail(other: RedisStateStore) -> None:
    await other.compare_and_set_status("a", ["active"], "failed", error="it broke", failure_reason="x")


async def _label(other: RedisStateStore) -> None:
    await other.save_state("a", plain_state("a", user_id="someone", tags=("t",)))


async def _expire_later(other: RedisStateStore) -> None:
    await other.save_state("a", plain_state("a", expires_at=int(time.time() * 1000) + 3_600_000))


INTERFERENCES = [_count, _become_text, _stage_more, _stage_again, _discard, _fail, _label, _expire_later]


@pytest.mark.parametrize("interfere", INTERFERENCES, ids=lambda each: each.__name__.strip("_"))
async def test_what_another_changed_is_found_by_the_long_way(
    connect: Connect, prefix: str, interfere: Interference
) -> None:
    portraits = []
    for way in (RedisStateStore, LongWayStore):
        client, own = connect(), f"{prefix}-{way.__name__}"
        store, other = way(client, prefix=own), way(client, prefix=own)
        await _session(store)
        await _stage(store, 1, writes(add("n"), push("items", items=[2])))
        await interfere(other)
        await client.script_flush()
        await _commit(store, 1)
        assert (await _known_scripts(client))[1]
        assert await _spread(client, own) <= 1
        portraits.append(await portrait(store, "a"))
    assert portraits[0] == portraits[1]


CHANGES = {
    "a list over a text": writes(put("text", value=[1])),
    "a text over a list": writes(put("items", value="text")),
    "a text over an object": writes(put("object", value=None)),
    "a member": writes(put("object", "a", value=2)),
    "an item": writes(put("items", 0, value=2)),
    "a key that goes": writes(drop("text")),
    "a key that is new": writes(put("new", value=1)),
    "a text over a text": writes(put("text", value="new")),
    "an empty list that grows": writes(push("empty", items=[1, 2])),
    "nothing": writes(),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_both_ways_make_the_same_changes(connect: Connect, prefix: str, change: str) -> None:
    portraits = []
    for way in (RedisStateStore, LongWayStore):
        client, own = connect(), f"{prefix}-{way.__name__}"
        store = way(client, prefix=own)
        await _session(store)
        await _commit(store, 1)  # a checkpoint to come back to
        for step in (2, 3):
            await _stage(store, step, CHANGES[change])
            await _commit(store, step, step)
        first = (await store.list_checkpoints("a")).items[-1].checkpoint_id
        portraits.append(await portrait(store, "a"))
        assert await _spread(client, own) <= 1
        await store.restore_checkpoint("a", first)
        portraits.append(await portrait(store, "a"))
    assert portraits[:2] == portraits[2:]


async def test_a_version_that_is_not_expected_is_refused(connect: Connect, prefix: str) -> None:
    client = connect()
    store, other = RedisStateStore(client, prefix=prefix), RedisStateStore(client, prefix=prefix)
    await _session(store)
    await _stage(store, 1, writes(add("n")))
    await other.update_status("a", "active")
    before = await portrait(store, "a")
    with pytest.raises(VersionConflict):
        await _commit(store, 1, 1)
    assert await portrait(store, "a") == before


async def test_a_commit_with_another_status_is_found_under_it(connect: Connect, prefix: str) -> None:
    store = RedisStateStore(connect(), prefix=prefix)
    await _session(store)
    for step, status in enumerate(("paused", "active", "completed"), start=1):
        await _commit(store, step, status=status, tags=("t",))
        for filters in ({"status": status}, {"tags": ["t"]}):
            assert [each.session_id for each in (await store.list_sessions(**filters)).items] == ["a"]


async def test_staged_rows_of_other_steps_stay(connect: Connect, prefix: str) -> None:
    store = RedisStateStore(connect(), prefix=prefix)
    await _session(store)
    await _stage(store, 1, writes(add("n")))
    await _stage(store, 11, writes(add("n")))
    await _commit(store, 1)
    assert await store.list_staged("a", "step-1") == []
    assert len(await store.list_staged("a", "step-11")) == 1


async def test_step_commits_alone_keep_a_session_alive(connect: Connect, prefix: str) -> None:
    client = connect()
    store = RedisStateStore(client, prefix=prefix, ttl=1)
    await _session(store)
    until = time.monotonic() + 2
    step = 0
    while time.monotonic() < until:
        step += 1
        await _commit(store, step)
        assert await _spread(client, prefix) <= 1
        await asyncio.sleep(0.05)
    state = await store.load_state("a")
    assert state is not None
    assert state.custom_state == START


async def test_the_first_value_of_a_session_expires_with_it(connect: Connect, prefix: str) -> None:
    client = connect()
    store = RedisStateStore(client, prefix=prefix)
    await store.create_session("a", agent_type="agent")
    await _stage(store, 1, writes(put("n", value=1)))
    await client.script_flush()
    await _commit(store, 1)
    assert await _known_scripts(client) == [True, False]
    assert await _spread(client, prefix) <= 1


def _random_call(chance: random.Random) -> StepWrites:
    ops: list[dict[str, Any]] = []
    for _ in range(chance.randint(0, 3)):
        key = chance.choice(["n", "items", "text", "new", "empty", 'a \x1f"key"', "\ud800"])
        ops.append(
            chance.choice(
                [
                    add(key),
                    push(key, items=[chance.randint(0, 9) for _ in range(chance.randint(0, 3))]),
                    put(key, value=chance.choice([1, "text \x1f", None, 2**70, 1.0, [], [1], {"a": 1}])),
                    put("object", chance.choice("ab"), value=chance.randint(0, 9)),
                    drop(key),
                ]
            )
        )
    return writes(*ops)


@pytest.mark.parametrize("seed", range(5))
async def test_many_random_steps_leave_the_same_both_ways(connect: Connect, prefix: str, seed: int) -> None:
    portraits = []
    for way in (RedisStateStore, LongWayStore):
        chance = random.Random(seed)
        client, own = connect(), f"{prefix}-{way.__name__}"
        stores = [way(client, prefix=own) for _ in range(2)]
        await _session(stores[0])
        for step in range(1, 16):
            store = chance.choice(stores)
            await _stage(store, step, *(_random_call(chance) for _ in range(chance.randint(0, 2))))
            if chance.random() < 0.3:
                await chance.choice(stores).merge_custom_state("a", _random_call(chance))
            fields = {"error": f"at {step}"} if chance.random() < 0.1 else {"output": step}
            await _commit(chance.choice([store, *stores]), step, **fields)
            if chance.random() < 0.1:
                listed = (await store.list_checkpoints("a", limit=200)).items
                await store.restore_checkpoint("a", chance.choice(listed).checkpoint_id)
        assert await _spread(client, own) <= 1
        portraits.append(await portrait(stores[0], "a"))
    assert portraits[0] == portraits[1]


async def test_steps_of_any_size_are_committed(connect: Connect, prefix: str) -> None:
    store = RedisStateStore(connect(), prefix=prefix)
    await _session(store)
    many = list(range(9_000))
    await _stage(store, 1, writes(push("items", items=many)), *[writes(add("n")) for _ in range(120)])
    texts = [user(str(number)) for number in many]
    done = await store.save_state_and_promote_staging("a", plain_state("a"), texts, meta(1, "step-1"))
    assert done.message_count == len(many)
    state = await store.load_state("a")
    assert state is not None
    assert state.custom_state == {**START, "n": 121, "items": [1, *many]}
    assert await store.list_staged("a", "step-1") == []
