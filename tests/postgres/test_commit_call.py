"""The commit function in difficult cases: lists that others changed, unusual names, single fields, stored history."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import count

import asyncpg
import msgspec
import pytest

from helix_agents.backends.inmemory.state_store import InMemoryStateStore
from helix_agents.backends.postgres.state_store import PostgresStateStore
from helix_agents.codec import Json, decode
from helix_agents.conformance.tools.sample import add, full_state, meta, plain_state, push, put, user, writes
from helix_agents.state import Op
from helix_agents.stores.state.contract import StateStore

Scenario = Callable[[StateStore, StateStore], Awaitable[None]]


@pytest.fixture
async def pool(postgres_url: str) -> AsyncIterator[asyncpg.Pool]:
    async with asyncpg.create_pool(postgres_url, min_size=1, max_size=4) as made:
        yield made


_steps = count(1)


async def step(store: StateStore, *ops: Op) -> None:
    number = next(_steps)
    await store.stage_changes("a", f"step-{number}", writes(*ops), tool_call_id="call-1")
    await store.save_state_and_promote_staging("a", plain_state("a"), [user("x")], meta(number, f"step-{number}"))


async def start(store: StateStore, custom_state: dict[str, Json]) -> None:
    await store.create_session("a", agent_type="agent", custom_state=custom_state)


async def grown_by_another(one: StateStore, other: StateStore) -> None:
    await start(one, {"items": []})
    await step(one, push("items", items=[0]))
    await step(other, push("items", items=[1, 2, 3]))
    await step(one, push("items", items=[4]))
    await step(other, push("items", items=[5]))


async def cut_by_another(one: StateStore, other: StateStore) -> None:
    await start(one, {"items": []})
    await step(one, push("items", items=list(range(12))))
    await other.save_state("a", plain_state("a", custom_state={"items": ["first"]}))
    await step(one, push("items", items=["second", "third"]))


async def emptied_by_another(one: StateStore, other: StateStore) -> None:
    await start(one, {"items": [1]})
    await step(one, push("items", items=[2]))
    await other.save_state("a", plain_state("a", custom_state={"items": []}))
    await step(one, push("items", items=["only"]))


async def no_list_any_more(one: StateStore, other: StateStore) -> None:
    await start(one, {"items": [1]})
    await step(one, push("items", items=[2]))
    await other.save_state("a", plain_state("a", custom_state={"items": "a text"}))
    await step(one, push("items", items=[3]))


async def gone(one: StateStore, other: StateStore) -> None:
    await start(one, {"items": [1]})
    await step(one, push("items", items=[2]))
    await other.save_state("a", plain_state("a", custom_state={"n": 1}))
    await step(one, push("items", items=[3]), add("n"))


async def several_lists_and_counters(one: StateStore, other: StateStore) -> None:
    await start(one, {"a": [], "b": [1], "n": 0, "m": 5})
    for store in (one, other, one):
        await step(store, push("b", items=[2, 3]), add("n"), push("a", items=["x"]), add("m"), push("b", items=[4]))


async def odd_names(one: StateStore, other: StateStore) -> None:
    name = 'a "b" \\ \x1e\x1f\x00 ü'
    await start(one, {"": [], name: 0, "?": "?", "o": {"": 1, "?": 2}})
    await step(one, push("", items=["", "?"]), add(name), put("o", "", value=""), put("o", name, value="?"))
    await step(other, push("", items=[None]), add(name), put("o", "?", value=None), put("?", value=""))


async def members_that_come_and_change(one: StateStore, other: StateStore) -> None:
    await start(one, {"o": {"kept": 1}, "items": [{"n": 0}, {"n": 1}]})
    await step(one, put("o", "new", value=1), put("items", 1, value={"n": "one"}))
    await step(other, put("o", "new", value=2), put("o", "kept", value=1))
    await step(one, put("o", "new", value=3), push("items", items=[{"n": 2}]))


SCENARIOS: dict[str, Scenario] = {
    each.__name__: each
    for each in (
        grown_by_another,
        cut_by_another,
        emptied_by_another,
        no_list_any_more,
        gone,
        several_lists_and_counters,
        odd_names,
        members_that_come_and_change,
    )
}


async def histories(store: StateStore) -> list[object]:
    """Return custom state as it is, and as it was at every checkpoint."""
    state = await store.load_state("a")
    assert state is not None
    found: list[object] = [state.custom_state]
    for each in (await store.list_checkpoints("a")).items:
        checkpoint = await store.get_checkpoint("a", each.checkpoint_id)
        assert checkpoint is not None
        found.append(checkpoint.state.custom_state)
    return found


@pytest.mark.parametrize("name", SCENARIOS)
async def test_two_stores_on_one_session_do_what_memory_does(pool: asyncpg.Pool, name: str) -> None:
    model = InMemoryStateStore()
    await SCENARIOS[name](model, model)
    one, other = PostgresStateStore(pool), PostgresStateStore(pool)
    await SCENARIOS[name](one, other)
    assert await histories(one) == await histories(model)
    await one.close()
    await other.close()


FULL = full_state("a")
FIELDS: dict[str, object] = {
    field: getattr(FULL, field)
    for field in FULL.__struct_fields__
    if field
    not in ("session_id", "custom_state", "step_count", "interrupt_flag", "version", "created_at", "updated_at")
    and field not in ("agent_type", "user_id", "incarnation", "owner_epoch")
}


@pytest.mark.parametrize("field", FIELDS)
async def test_a_single_field_is_stored_and_taken_back(pool: asyncpg.Pool, field: str) -> None:
    store = PostgresStateStore(pool)
    await start(store, {"n": 0})
    plain = plain_state("a")
    for number, value in enumerate((FIELDS[field], getattr(plain, field), FIELDS[field]), start=1):
        state = msgspec.structs.replace(plain, **{field: value})
        await store.save_state_and_promote_staging("a", state, [], meta(number, f"step-{number}"))
        found = await store.load_state("a")
        assert found is not None
        assert getattr(found, field) == value
    await store.close()


async def test_an_empty_error_is_not_none(pool: asyncpg.Pool) -> None:
    store = PostgresStateStore(pool)
    await start(store, {})
    state = plain_state("a", error="", failure_reason="")
    await store.save_state_and_promote_staging("a", state, [], meta())
    found = await store.load_state("a")
    assert found is not None
    assert (found.error, found.failure_reason) == ("", "")
    await store.close()


async def test_ids_that_hold_the_separator_are_stored_as_they_are(pool: asyncpg.Pool) -> None:
    store = PostgresStateStore(pool, ids=lambda: "one\x1etwo" * 4)
    await start(store, {"items": []})
    await step(store, push("items", items=[1]))
    latest = await store.get_latest_checkpoint("a")
    assert latest is not None
    assert "\x1e" in latest.checkpoint_id
    assert latest.state.custom_state == {"items": [1]}
    await store.close()


async def stage_another_call(other: StateStore) -> int:
    await other.stage_changes("a", "step", writes(add("n")), tool_call_id="call-2")
    return 2


async def stage_the_same_call_again(other: StateStore) -> int:
    await other.stage_changes("a", "step", writes(add("n"), add("n"), add("n")), tool_call_id="call-1")
    return 3


async def discard(other: StateStore) -> int:
    assert await other.discard_staging("a", "step") == 1
    return 0


@pytest.mark.parametrize("change", [stage_another_call, stage_the_same_call_again, discard])
async def test_what_another_process_staged_or_discarded_counts(
    pool: asyncpg.Pool, change: Callable[[StateStore], Awaitable[int]]
) -> None:
    store, other = PostgresStateStore(pool), PostgresStateStore(pool)
    await start(store, {"n": 0})
    await store.stage_changes("a", "step", writes(add("n")), tool_call_id="call-1")
    expected = await change(other)
    # The staged rows that `store` has cached are outdated: the first attempt is rejected, and leaves nothing behind.
    await store.save_state_and_promote_staging("a", plain_state("a"), [user("x")], meta(1, "step"))
    state = await store.load_state("a")
    assert state is not None
    assert state.custom_state == {"n": expected}
    assert await store.get_message_count("a") == 1
    assert await store.list_staged("a", "step") == []
    await store.close()
    await other.close()


async def test_what_no_checkpoint_has_seen_is_not_kept(pool: asyncpg.Pool) -> None:
    store = PostgresStateStore(pool)
    await start(store, {"n": 0, "o": {"x": 0}})
    for _ in range(3):
        await store.merge_custom_state("a", writes(add("n"), put("o", "x", value=1)))
        await step(store, add("n"), put("o", "x", value=2))
    assert await pool.fetchval("SELECT count(*) FROM __agents_past WHERE since + 1 >= number") == 0
    # Between a checkpoint and a step comes a merge, which keeps what the checkpoint has seen in rows.
    assert await pool.fetchval("SELECT count(*) FROM __agents_past WHERE key = 'n'") == 2
    assert await pool.fetchval("SELECT count(overwritten) FROM __agents_checkpoints") == 0
    await store.close()


async def test_a_step_keeps_what_it_overwrote_in_the_row_of_its_checkpoint(pool: asyncpg.Pool) -> None:
    store = PostgresStateStore(pool)
    await start(store, {"n": 0, "o": {'a "b" \\': "\x00"}})
    expected: list[Json] = []
    for number in range(1, 6):
        if number % 2:
            await store.merge_custom_state("a", writes(add("n")))
        await step(store, add("n"), put("o", 'a "b" \\', value=f"{number} \x00 \\u0000"))
        state = await store.load_state("a")
        assert state is not None
        expected.append(state.custom_state)
    kept = await pool.fetch("SELECT overwritten FROM __agents_checkpoints ORDER BY number")
    # "n" was changed by the merge before every other step, and what nobody has seen is kept nowhere.
    assert [each["overwritten"] and len(decode(each["overwritten"])) for each in kept] == [None, 2, 1, 2, 1]
    made = (await store.list_checkpoints("a")).items[::-1]
    for number, (checkpoint, then) in enumerate(zip(made, expected, strict=True)):
        found = await store.get_checkpoint("a", checkpoint.checkpoint_id)
        assert found is not None
        assert found.state.custom_state == then
        fork = await store.fork_session("a", f"fork {number}", checkpoint_id=checkpoint.checkpoint_id)
        assert fork.custom_state == then
    for checkpoint, then in zip(made[::-2], expected[::-2], strict=True):
        await store.restore_checkpoint("a", checkpoint.checkpoint_id)
        state = await store.load_state("a")
        assert state is not None
        assert state.custom_state == then
    await store.close()
