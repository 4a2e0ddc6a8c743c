"""Step commits that share a transaction: each has its own outcome, and sees what the one before it wrote."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from helix_agents import CheckpointMeta, Committed, SessionState, SqliteStateStore, VersionConflict
from helix_agents.backends.sqlite.driver import SqliteDriver
from helix_agents.state import StateTracker

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
    """A step that counts, appends and sets members, all of them `size` times, and says as many messages."""
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


@pytest.mark.parametrize("size", [1, 7, 300])
async def test_each_of_many_sessions_gets_its_own_commit(store: SqliteStateStore, size: int) -> None:
    names = [f"session {number}" for number in range(11)]
    await create(store, names)
    done = await asyncio.gather(*(commit(store, name, version=1, size=size) for name in names))
    assert [(each.new_version, each.message_count) for each in done] == [(2, size)] * len(names)
    for name in names:
        await expect_whole(store, name, size)


async def test_who_is_late_is_refused_and_nobody_else(store: SqliteStateStore) -> None:
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
    await stores[1].load_state("session")  # its schema is looked at now, not then
    busy, go_on = threading.Event(), threading.Event()

    def take_time(_: sqlite3.Connection, items: Sequence[None]) -> Sequence[None]:
        busy.set()
        go_on.wait()
        return items

    first = driver.call(take_time, None)
    await asyncio.to_thread(busy.wait)
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
    go_on.set()
    await first
    done = await asyncio.gather(*tasks, return_exceptions=True)
    assert sorted(type(each).__name__ for each in done) == ["Committed", "VersionConflict"]
    assert await stores[0].get_message_count("session") == 1
