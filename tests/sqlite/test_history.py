"""Where earlier states are kept: beside the checkpoint that a commit makes, and in rows where it makes none."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from helix_agents import CheckpointMeta, SessionState
from helix_agents.backends.sql_shared.driver import Statement
from helix_agents.backends.sqlite.driver import SqliteDriver
from helix_agents.codec import decode
from helix_agents.sqlite import SqliteStateStore

SESSION = "session"


@pytest.fixture
async def driver(tmp_path: Path) -> AsyncIterator[SqliteDriver]:
    driver = SqliteDriver(tmp_path / "t.db")
    yield driver
    await driver.close()


async def checkpoint(store: SqliteStateStore, custom_state: dict[str, Any], number: int) -> str:
    state = SessionState(SESSION, "test", SESSION, custom_state=custom_state)
    done = await store.save_state_and_promote_staging(SESSION, state, [], CheckpointMeta("step", number, 0))
    return done.checkpoint_id


async def ask(driver: SqliteDriver, sql: str) -> list[Any]:
    (found,) = await driver.batch([Statement(sql)], read_only=True)
    return [row[0] for row in found]


async def test_a_step_keeps_what_it_overwrote_in_the_row_of_its_checkpoint(driver: SqliteDriver) -> None:
    store = SqliteStateStore(driver.path, driver=driver)
    await store.create_session(SESSION, agent_type="test", custom_state={"n": 0, "items": ["a"]})
    await checkpoint(store, {"n": 1, "items": ["a", "b"]}, 1)  # no checkpoint has the earlier value
    await checkpoint(store, {"n": 2, "items": ["a"], "said": 'a "word"'}, 2)
    await checkpoint(store, {"n": 2, "items": ["a"], "said": "more"}, 3)
    kept = await ask(driver, "SELECT overwritten FROM __agents_checkpoints ORDER BY number")
    assert [each and sorted(decode(each)) for each in kept] == [
        None,
        [["items", "#0000000001", '"b"', 0], ["n", "", "1", 0]],
        [["said", "", '"a \\"word\\""', 1]],
    ]
    assert await ask(driver, "SELECT COUNT(*) FROM __agents_past") == [0]


async def test_a_change_without_a_checkpoint_keeps_rows(driver: SqliteDriver) -> None:
    store = SqliteStateStore(driver.path, driver=driver)
    await store.create_session(SESSION, agent_type="test", custom_state={"n": 0, "gone": 0})
    await checkpoint(store, {"n": 1, "gone": 1}, 1)
    for n in (2, 3):  # no checkpoint has the value in between
        await store.save_state(SESSION, SessionState(SESSION, "test", SESSION, custom_state={"n": n}))
    past = "SELECT key || ' ' || value || ' ' || number FROM __agents_past ORDER BY key"
    assert await ask(driver, past) == ["gone 1 2", "n 1 2"]


def some_state(chance: random.Random) -> dict[str, Any]:
    values: list[Any] = [0, 1, "x", [], [1], [1, 2], ["1", 2, 3], {}, {"a": 1}, {"a": 2, "b": []}, None]
    return {key: chance.choice(values) for key in chance.sample(["k", "l", "m", 'q"\\', ""], chance.randint(0, 5))}


@pytest.mark.parametrize("seed", range(3))
async def test_a_writer_that_looks_and_one_that_sends_guarded_batches_share_one_history(
    driver: SqliteDriver, seed: int
) -> None:
    """They take turns on the same session, with and without checkpoints."""
    chance = random.Random(seed)
    planned = SqliteStateStore(driver.path, driver=driver)
    guarded = SqliteStateStore(driver.path, d1_limits=True)
    await planned.create_session(SESSION, agent_type="test", custom_state=some_state(chance))
    seen: dict[str, dict[str, Any]] = {}
    for number in range(40):
        store, state = chance.choice([planned, guarded]), some_state(chance)
        action = chance.random()
        if action < 0.3:
            await store.save_state(SESSION, SessionState(SESSION, "test", SESSION, custom_state=state))
        elif action < 0.9 or not seen:
            seen[await checkpoint(store, state, number)] = state
        else:
            target = chance.choice(list(seen)[-4:])
            await store.restore_checkpoint(SESSION, target)
            for later in list(seen)[list(seen).index(target) + 1 :]:
                del seen[later]
    assert len(seen) > 3
    for store in (planned, guarded):
        for place, (checkpoint_id, expected) in enumerate(seen.items()):
            then = await store.get_checkpoint(SESSION, checkpoint_id)
            assert then is not None
            assert then.state.custom_state == expected
            fork = await store.fork_session(SESSION, f"{id(store)} {place}", checkpoint_id=checkpoint_id)
            assert fork.custom_state == expected
    for checkpoint_id, expected in reversed(seen.items()):
        await chance.choice([planned, guarded]).restore_checkpoint(SESSION, checkpoint_id)
        now = await planned.load_state(SESSION)
        assert now is not None
        assert now.custom_state == expected
    await guarded.close()
