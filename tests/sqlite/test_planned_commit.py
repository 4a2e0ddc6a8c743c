"""Commits that share a transaction: each has its own outcome, and sees what the one before it wrote."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from helix_agents import CheckpointMeta, InvalidArgument, SessionNotFound, SessionState, VersionConflict
from helix_agents.backends.sql_shared.driver import Statement
from helix_agents.backends.sqlite.driver import SqliteDriver
from helix_agents.sqlite import SqliteStateStore
from helix_agents.state import StateTracker
from helix_agents.types import Committed
from tests.sqlite.held import Held

START: dict[str, Any] = {"n": 0, "items": [], "by_name": {}}


@pytest.fixture
async def driver(tmp_path: Path) -> AsyncIterator[SqliteDriver]:
    driver = SqliteDriver(tmp_path / "t.db")
    yield driver
    await driver.close()


@pytest.fixture
def store(driver: SqliteDriver) -> SqliteStateStore:
    return SqliteStateStore(driver.path, driver=driver)


async def create(store: SqliteStateStore, names: list[str]) -> None:
    for name in names:
        await store.create_session(name, agent_type="test", custom_state=START)


async def commit(store: SqliteStateStore, name: str, *, version: int | None = None, size: int = 1) -> Committed:
    """Return a step that counts, appends and sets members, all of them `size` times, and adds as many messages."""
    tracker = StateTracker(START)

    def change(draft: Any) -> None:
        draft.increment("n")
        draft["items"].extend(range(size))
        for place in range(size):
            draft["by_name"][f"{name} {place}"] = place

    tracker.update(change)
    await store.stage_changes(name, "step", tracker.get_step_writes(), tool_call_id="call")
    return await store.save_state_and_promote_staging(
        name,
        SessionState(name, "test", name),
        [{"role": "user", "content": f"{name} {place}"} for place in range(size)],
        CheckpointMeta("step", 1, 0),
        expected_version=version,
    )


async def expect_whole(store: SqliteStateStore, name: str, size: int) -> None:
    state = await store.load_state(name)
    assert state is not None
    members = {f"{name} {place}": place for place in range(size)}
    assert state.custom_state == {"n": 1, "items": list(range(size)), "by_name": members}
    messages = (await store.get_messages(name, limit=None)).items
    assert [message["content"] for message in messages] == [f"{name} {place}" for place in range(size)]
    assert (await store.list_checkpoints(name)).total == 1
    assert await store.list_staged(name, "step") == []


async def test_commits_of_every_kind_share_a_transaction(driver: SqliteDriver, store: SqliteStateStore) -> None:
    await create(store, ["a", "b"])
    held = Held()
    waiting = asyncio.ensure_future(driver.call(held.work, None))
    await held.begun()
    together = asyncio.gather(
        store.create_session("c", agent_type="test", custom_state=START),
        store.create_run("a", "run-1"),
        store.create_run("a", "run-2"),
        store.create_run("b", "run-1"),  # the id is taken by then
        store.set_interrupt_flag("b"),
        store.append_messages("a", [{"role": "user", "content": "1"}]),
        store.append_messages("a", [{"role": "user", "content": "2"}]),
        store.update_status("b", "paused"),
        store.truncate_messages("b", 0),
        store.increment_step_count("missing"),
        return_exceptions=True,
    )
    await asyncio.sleep(0)
    held.let_go()
    await waiting
    outcomes = await together
    assert [type(each) for each in outcomes if isinstance(each, Exception)] == [InvalidArgument, SessionNotFound]
    assert [run.run_id for run in await store.list_runs("a")] == ["run-1", "run-2"]
    assert [message["content"] for message in (await store.get_messages("a")).items] == ["1", "2"]
    state = await store.load_state("b")
    assert state is not None
    assert (state.status, state.interrupt_flag is None) == ("paused", False)
    assert await store.session_exists("c")


@pytest.mark.parametrize("size", [1, 7, 300])
async def test_each_of_many_sessions_gets_its_own_commit(store: SqliteStateStore, size: int) -> None:
    names = [f"session {number}" for number in range(11)]
    await create(store, names)
    done = await asyncio.gather(*(commit(store, name, version=1, size=size) for name in names))
    assert [(each.new_version, each.message_count) for each in done] == [(2, size)] * len(names)
    for name in names:
        await expect_whole(store, name, size)


async def test_only_a_late_commit_is_rejected(store: SqliteStateStore) -> None:
    names = [f"session {number}" for number in range(20)]
    await create(store, names)
    versions = {name: 2 if name == "session 7" else 1 for name in names}
    done = await asyncio.gather(
        *(commit(store, name, version=version) for name, version in versions.items()), return_exceptions=True
    )
    assert [isinstance(each, VersionConflict) for each in done] == [name == "session 7" for name in names]
    for name in names:
        if name != "session 7":
            await expect_whole(store, name, 1)
    late = await store.load_state("session 7")
    assert late is not None
    assert (late.version, late.custom_state) == (1, START)
    assert (await store.get_messages("session 7")).items == []
    assert len(await store.list_staged("session 7", "step")) == 1


async def test_commits_of_one_session_see_each_other(driver: SqliteDriver) -> None:
    # Two stores on one driver do not wait for each other: behind work that takes its time, their commits meet.
    stores = [SqliteStateStore(driver.path, driver=driver) for _ in range(2)]
    await create(stores[0], ["session"])
    await stores[1].load_state("session")  # its schema is checked now, not later
    held = Held()
    first = driver.call(held.work, None)
    await held.begun()
    tasks = [
        asyncio.create_task(
            store.save_state_and_promote_staging(
                "session",
                SessionState("session", "test", "session"),
                [{"role": "user", "content": "hello"}],
                CheckpointMeta("step", 1, 0),
                expected_version=1,
            )
        )
        for store in stores
    ]
    await asyncio.sleep(0)  # both are in the queue now
    held.let_go()
    await first
    done = await asyncio.gather(*tasks, return_exceptions=True)
    assert sorted(type(each).__name__ for each in done) == ["Committed", "VersionConflict"]
    assert await stores[0].get_message_count("session") == 1


async def test_saves_of_one_session_that_meet_all_count(driver: SqliteDriver, store: SqliteStateStore) -> None:
    await create(store, ["session"])
    held = Held()
    first = driver.call(held.work, None)
    await held.begun()
    states = [SessionState("session", "test", "session", custom_state={"n": number}) for number in range(5)]
    saving = asyncio.gather(*(store.save_state("session", state) for state in states))
    await asyncio.sleep(0)
    held.let_go()
    await first
    assert await saving == [2, 3, 4, 5, 6]
    state = await store.load_state("session")
    assert state is not None
    assert (state.version, state.custom_state) == (6, {"n": 4})


async def test_sessions_that_end_together_share_a_transaction(driver: SqliteDriver, store: SqliteStateStore) -> None:
    names = [f"session {number}" for number in range(7)]
    await create(store, names)
    asked: list[str] = []
    await driver.call(lambda connection, items: [connection.set_trace_callback(asked.append)], None)
    held = Held()
    first = driver.call(held.work, None)
    await held.begun()
    ended = [
        SessionState(name, "test", name, status="completed", output=number, tags=(name,), metadata={"n": str(number)})
        for number, name in enumerate(names)
    ]
    saving = asyncio.gather(*(store.save_state(state.session_id, state) for state in ended))
    await asyncio.sleep(0)
    held.let_go()
    await asyncio.gather(first, saving)
    # A group in which a statement fails starts over with a savepoint for each, which only costs time.
    assert [each for each in asked if each.startswith(("UPDATE", "SAVEPOINT"))]
    assert not [each for each in asked if each.startswith("SAVEPOINT")]
    for number, name in enumerate(names):
        found = await store.list_sessions(tags=[name], metadata={"n": str(number)})
        assert [(each.session_id, each.status, each.output) for each in found.items] == [(name, "completed", number)]


WHOLE: list[dict[str, Any]] = [
    {"n": 1, "items": [1, 2, 3], "by_name": {"a": 1, "b": [2]}},
    {"n": 1, "items": [1, "2", 3, 4], "by_name": {"b": [2], "c": {}}},
    {"n": [], "items": [4], "by_name": 7, "more": {"x": {"y": []}}},
    {"n": {"0": 0}, "items": {"a": 1}},
    {},
    {"items": [], 'quote " and \\ back': [{"#1": ".a"}], "": {"": ""}, "#0000000001": [0]},
]
"""States that follow each other: members and items come, change and go, and keys change their kind."""


async def test_a_whole_state_in_every_commit_reads_back_at_every_checkpoint(store: SqliteStateStore) -> None:
    names = [f"session {number}" for number in range(9)]
    await create(store, names)
    made: dict[str, list[str]] = {name: [] for name in names}

    async def save(name: str, number: int) -> None:
        state = SessionState(name, "test", name, custom_state=WHOLE[number])
        if number % 2:
            await store.save_state(name, SessionState(name, "test", name, custom_state={"passing": [1, {"x": 1}]}))
        done = await store.save_state_and_promote_staging(name, state, [], CheckpointMeta("step", number, 0))
        made[name].append(done.checkpoint_id)

    for number in range(len(WHOLE)):
        await asyncio.gather(*(save(name, number) for name in names))
    for name in names:
        state = await store.load_state(name)
        assert state is not None
        assert state.custom_state == WHOLE[-1]
        then = [await store.get_checkpoint(name, each) for each in made[name]]
        assert [each.state.custom_state for each in then if each is not None] == WHOLE
    for name, target in zip(names, range(len(WHOLE)), strict=False):
        await store.restore_checkpoint(name, made[name][target])
        state = await store.load_state(name)
        assert state is not None
        assert state.custom_state == WHOLE[target]


async def test_what_no_checkpoint_has_seen_leaves_no_trace(driver: SqliteDriver, store: SqliteStateStore) -> None:
    await create(store, ["session"])
    for number in range(5):
        await store.save_state("session", SessionState("session", "test", "session", custom_state={"n": [number] * 9}))
    count = Statement("SELECT COUNT(*), (SELECT COUNT(*) FROM __agents_past) FROM __agents_custom_state")
    assert await driver.batch([count], read_only=True) == [[(10, 0)]]


async def test_a_state_that_did_not_change_writes_no_cell(driver: SqliteDriver, store: SqliteStateStore) -> None:
    await create(store, ["session"])
    state = SessionState("session", "test", "session", custom_state={"items": list(range(100))})
    await store.save_state_and_promote_staging("session", state, [], CheckpointMeta("step", 1, 0))
    await store.save_state_and_promote_staging("session", state, [], CheckpointMeta("step", 2, 0))
    since = Statement("SELECT DISTINCT since FROM __agents_custom_state")
    assert await driver.batch([since], read_only=True) == [[(0,)]]
