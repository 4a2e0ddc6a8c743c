"""`verify` finds what does not fit together."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from helix_agents import CheckpointMeta, StateStore, open_stores
from helix_agents.verify import verify_sessions


async def fill(store: StateStore) -> None:
    state = await store.create_session("s", agent_type="a", custom_state={"n": [1]})
    await store.create_run("s", "r1")
    for step in (1, 2, 3):
        await store.save_state_and_promote_staging(
            "s", state, [{"role": "user", "content": "x"}], CheckpointMeta(f"step-{step}", step)
        )


async def problems(path: Path) -> list[str]:
    async with open_stores(f"sqlite:{path}") as stores:
        return [problem async for _, found in verify_sessions(stores.state) for problem in found]


async def test_a_sound_store_has_no_problems(tmp_path: Path) -> None:
    async with open_stores(f"sqlite:{tmp_path / 'a.db'}") as stores:
        await fill(stores.state)
    assert await problems(tmp_path / "a.db") == []


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        ("DELETE FROM __agents_messages WHERE sequence = 1", "counts 3 messages and holds 2"),
        ("UPDATE __agents_custom_state SET value = '{oops' WHERE slot <> ''", "cannot be read"),
        ("UPDATE __agents_runs SET turn = 5", "turns of its runs"),
        ("UPDATE __agents_checkpoints SET version = 99 WHERE number = 1", "has version 99"),
        ("UPDATE __agents_checkpoints SET message_count = 99 WHERE number = 3", "counts 99 messages"),
    ],
)
async def test_damage_is_found(damage: str, says: str, tmp_path: Path) -> None:
    async with open_stores(f"sqlite:{tmp_path / 'a.db'}") as stores:
        await fill(stores.state)
    with sqlite3.connect(tmp_path / "a.db") as connection:
        connection.execute(damage)
    connection.close()
    found = await problems(tmp_path / "a.db")
    assert any(says in problem for problem in found), found


async def test_one_session_can_be_named(tmp_path: Path) -> None:
    async with open_stores(f"sqlite:{tmp_path / 'a.db'}") as stores:
        await fill(stores.state)
        assert [each async for each in verify_sessions(stores.state, "s")] == [("s", [])]
        assert [each async for each in verify_sessions(stores.state, "no")] == [("no", ["there is no such session"])]
