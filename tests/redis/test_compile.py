"""Commits store the same as the in-memory reference, with and without a script, and all keys expire together."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from helix_agents.backends.inmemory.state_store import InMemoryStateStore
from helix_agents.backends.redis.sessions.store import RedisStateStore
from helix_agents.conformance.tools.dump import portrait
from helix_agents.conformance.tools.sample import add, drop, meta, plain_state, push, put, user, writes
from helix_agents.errors import VersionConflict
from helix_agents.state import StepWrites
from helix_agents.stores.state.contract import StateStore

Connect = Callable[..., Any]
Interference = Callable[[StateStore], Awaitable[Any]]
Make = Callable[[], StateStore]

WAYS = ["valkey", "valkey_without_scripts"]

START: dict[str, Any] = {"n": 1, "items": [1], "object": {"a": 1}, "text": "old", "empty": []}
START |= {"long": [*range(8)], "wide": {"a": 0, "b": 1, "c": 2, "d": 3}}


async def _session(store: StateStore) -> None:
    await store.create_session("a", agent_type="agent", custom_state=START)


async def _stage(store: StateStore, step: int, *calls: StepWrites) -> None:
    for place, each in enumerate(calls):
        await store.stage_changes("a", f"step-{step}", each, tool_call_id=f"call-{place}", index=place)


async def _commit(store: StateStore, step: int, version: int | None = None, **fields: Any) -> int:
    """Commit a step; return the version after it."""
    state, texts = plain_state("a", **fields), [user(f"{step}.{place}") for place in range(step % 3)]
    done = await store.save_state_and_promote_staging(
        "a", state, texts, meta(step, f"step-{step}"), expected_version=version
    )
    return done.new_version


async def _left_ms(client: Any, prefix: str) -> list[int]:
    """Return how long each key of the sessions still lives, by the server's clock, read together."""
    keys = [key async for key in client.scan_iter(match=f"{prefix}:session*")]
    async with client.pipeline(transaction=True) as pipe:
        for key in keys:
            pipe.pttl(key)
        left = await pipe.execute()
    assert min(left) > 0, dict(zip(keys, left, strict=True))
    return list(left)


async def _spread(client: Any, prefix: str) -> int:
    """Return the milliseconds between the first and the last of a session's keys to expire."""
    left = await _left_ms(client, prefix)
    return max(left) - min(left)


@pytest.fixture(params=WAYS)
def redis_and_memory(
    request: pytest.FixtureRequest, connect: Connect, prefix: str
) -> tuple[Make, Make, Callable[[], Awaitable[int]]]:
    """How to make stores that share their data on Redis, and in memory; and the spread of the former's deadlines."""
    client = connect(request.getfixturevalue(request.param))
    memory = InMemoryStateStore()
    return lambda: RedisStateStore(client, prefix=prefix), lambda: memory, lambda: _spread(client, prefix)


Pair = tuple[Make, Make, Callable[[], Awaitable[int]]]


# Changes that make a commit read again: another store object makes them between staging and commit.


async def _count(other: StateStore) -> None:
    await other.merge_custom_state("a", writes(add("n", by=10)))


async def _become_text(other: StateStore) -> None:
    await other.merge_custom_state("a", writes(put("items", value="no list")))


async def _stage_more(other: StateStore) -> None:
    await other.stage_changes("a", "step-1", writes(add("n", by=100)), tool_call_id="another")


async def _stage_again(other: StateStore) -> None:
    await other.stage_changes("a", "step-1", writes(add("n", by=100)), tool_call_id="call-0")


async def _discard(other: StateStore) -> None:
    await other.discard_staging("a", "step-1")


async def _fail(other: StateStore) -> None:
    await other.compare_and_set_status("a", ["active"], "failed", error="it broke", failure_reason="x")


async def _label(other: StateStore) -> None:
    await other.save_state("a", plain_state("a", tags=("t",)))


async def _expire_later(other: StateStore) -> None:
    await other.save_state("a", plain_state("a", expires_at=int(time.time() * 1000) + 3_600_000))


INTERFERENCES = [_count, _become_text, _stage_more, _stage_again, _discard, _fail, _label, _expire_later]


@pytest.mark.parametrize("interfere", INTERFERENCES, ids=lambda each: each.__name__.strip("_"))
async def test_what_another_changed_is_noticed(redis_and_memory: Pair, interfere: Interference) -> None:
    *makes, spread = redis_and_memory
    portraits = []
    for make in makes:
        store, other = make(), make()
        await _session(store)
        await _stage(store, 1, writes(add("n"), push("items", items=[2])))
        await interfere(other)
        await _commit(store, 1)
        portraits.append(await portrait(store, "a"))
    assert portraits[0] == portraits[1]
    assert await spread() <= 1


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
    "a list with another item": writes(put("long", value=[0, 1, 2, "new", 4, 5, 6, 7])),
    "a list with one more": writes(put("long", value=[*range(9)])),
    "a shorter list": writes(put("long", value=[0, 1])),
    "an object with another member": writes(put("wide", value={**START["wide"], "a": 9})),
    "an object with one less": writes(put("wide", value={"a": 0, "b": 1, "c": 2})),
    "another object": writes(put("wide", value={"z": 0})),
    "an empty list over a list": writes(put("long", value=[])),
    "an empty object over an object": writes(put("wide", value={})),
    "the same list and object": writes(put("long", value=START["long"]), put("wide", value=START["wide"])),
    "all": writes(put(value={"text": "old", "long": [0], "new": {"a": [1]}})),
    "nothing": writes(),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_every_change_is_made_and_taken_back(redis_and_memory: Pair, change: str) -> None:
    *makes, spread = redis_and_memory
    portraits = []
    for make in makes:
        store = make()
        await _session(store)
        await _commit(store, 1)  # a checkpoint to come back to
        for step in (2, 3):
            await _stage(store, step, CHANGES[change])
            await _commit(store, step, step)
        first = (await store.list_checkpoints("a")).items[-1].checkpoint_id
        portraits.append(await portrait(store, "a"))
        await store.restore_checkpoint("a", first)
        portraits.append(await portrait(store, "a"))
    assert portraits[:2] == portraits[2:]
    assert await spread() <= 1


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
    store = RedisStateStore(client, prefix=prefix, ttl=20)
    await _session(store)
    step, moved = 0, False
    async with asyncio.timeout(60):
        while not moved:  # once a tenth of the time to live has passed
            step += 1
            before = await _left_ms(client, prefix)
            await _commit(store, step)
            after = await _left_ms(client, prefix)
            assert max(after) - min(after) <= 1
            moved = min(after) > max(before)
            await asyncio.sleep(0.05)
    state = await store.load_state("a")
    assert state is not None
    assert state.custom_state == START


async def test_the_first_value_of_a_session_expires_with_it(connect: Connect, prefix: str) -> None:
    client = connect()
    store = RedisStateStore(client, prefix=prefix)
    await store.create_session("a", agent_type="agent")
    await _stage(store, 1, writes(put("n", value=1)))
    await _commit(store, 1)
    assert await _spread(client, prefix) <= 1


async def test_a_long_list_is_not_kept_twice_when_it_is_assigned_with_one_more(connect: Connect, prefix: str) -> None:
    client = connect()
    store = RedisStateStore(client, prefix=prefix)
    items = [f"{number}:{'x' * 100}" for number in range(200)]
    await store.create_session("a", agent_type="agent", custom_state={"items": items, "object": dict.fromkeys(items)})
    await _commit(store, 1)
    for step in range(2, 12):
        items.append(f"step {step}")
        await _stage(store, step, writes(put("items", value=items), put("object", value=dict.fromkeys(items))))
        await _commit(store, step)
    assert await client.keys(f"{prefix}:session:history*") == []
    assert (await store.load_state("a")).custom_state == {"items": items, "object": dict.fromkeys(items)}  # type: ignore[union-attr]


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


@pytest.mark.parametrize("seed", range(3))
async def test_many_random_steps_leave_what_the_reference_leaves(redis_and_memory: Pair, seed: int) -> None:
    *makes, spread = redis_and_memory
    portraits = []
    for make in makes:
        chance = random.Random(seed)
        stores = [make() for _ in range(2)]
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
        portraits.append(await portrait(stores[0], "a"))
    assert portraits[0] == portraits[1], f"seed {seed}"
    assert await spread() <= 1


@pytest.mark.parametrize("way", WAYS)
async def test_steps_of_any_size_are_committed(
    connect: Connect, prefix: str, request: pytest.FixtureRequest, way: str
) -> None:
    store = RedisStateStore(connect(request.getfixturevalue(way)), prefix=prefix)
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
