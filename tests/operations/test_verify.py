"""`verify` finds what does not fit together."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import asyncpg
import pytest

from helix_agents import CheckpointMeta, StateStore, open_stores
from helix_agents.operations.verify import repair_session, session_problems, verify_sessions
from helix_agents.types import RunRecord, SubSessionRef


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


async def test_what_hangs_in_the_air_is_found(tmp_path: Path) -> None:
    async with open_stores(f"sqlite:{tmp_path / 'h.db'}") as stores:
        await stores.state.create_session("below", agent_type="a", parent_session_id="gone", root_session_id="gone")
        await stores.state.create_session("above", agent_type="a")
        await stores.state.add_sub_session_refs("above", [SubSessionRef("never", "a", "c1")])
        found = {session_id: problems async for session_id, problems in verify_sessions(stores.state)}
    assert found["below"] == ["its parent 'gone' is missing", "its root 'gone' is missing"]
    assert found["above"] == ["notes a child 'never' that is missing"]


async def test_what_a_dead_process_left_open_is_closed(tmp_path: Path) -> None:
    async with open_stores(f"sqlite:{tmp_path / 'h.db'}") as stores:
        await stores.state.create_session("s", agent_type="a")
        await stores.state.create_run("s", "r", lease_until=1)
        async with await stores.streams.create_writer("s", "r", "a") as writer:
            await writer.write({"type": "text_delta", "delta": "x"})
        await stores.state.update_status("s", "completed")
        assert len(await session_problems(stores.state, "s")) == 1
        assert await repair_session(stores.state, stores.streams, "s") == ["closed the record of run r and its stream"]
        assert await repair_session(stores.state, stores.streams, "s") == []
        assert await session_problems(stores.state, "s") == []
        info = await stores.streams.get_stream_info("s")
        assert info is not None
        assert info.status == "ended"


async def test_what_a_dead_process_left_open_of_a_waiting_session_is_closed(tmp_path: Path) -> None:
    async with open_stores(f"sqlite:{tmp_path / 'h.db'}") as stores:
        await stores.state.create_session("s", agent_type="a", run=RunRecord("r", "s", 1, lease_until=1))
        async with await stores.streams.create_writer("s", "r", "a") as writer:
            await writer.write({"type": "text_delta", "delta": "x"})
        await stores.state.update_status("s", "suspended_client_tool")
        assert len(await repair_session(stores.state, stores.streams, "s")) == 1
        info, (run,) = await stores.streams.get_stream_info("s"), await stores.state.list_runs("s")
        assert info is not None
        assert (info.status, run.status) == ("paused", "suspended_client_tool")
        assert await session_problems(stores.state, "s") == []


async def test_what_is_still_at_work_is_left_alone(tmp_path: Path) -> None:
    async with open_stores(f"sqlite:{tmp_path / 'h.db'}") as stores:
        await stores.state.create_session("s", agent_type="a")
        await stores.state.create_run("s", "r", lease_until=2**52)
        await stores.state.update_status("s", "completed")
        assert await session_problems(stores.state, "s") == []
        assert await repair_session(stores.state, stores.streams, "s") == []


async def test_rows_without_a_session_are_found_and_removed(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    async with open_stores(f"sqlite:{path}") as stores:
        await fill(stores.state)
        await stores.state.create_session("sound", agent_type="a", tags=["t"])
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM __agents_states WHERE session_id = 's'")
    connection.close()
    assert await problems(path) == ["it has stored rows, but there is no such session"]
    async with open_stores(f"sqlite:{path}") as stores:
        assert await repair_session(stores.state, stores.streams, "s") == ["removed what was left of it"]
        assert await repair_session(stores.state, stores.streams, "s") == []
        assert await stores.state.drop_orphan("sound") is False
        assert (await stores.state.list_sessions(tags=["t"])).total == 1
    assert await problems(path) == []
    with sqlite3.connect(path) as connection:
        left = connection.execute("SELECT COUNT(*) FROM __agents_messages").fetchone()[0]
    connection.close()
    assert left == 0


async def test_rows_without_a_session_are_found_on_postgres(postgres_url: str) -> None:
    async with open_stores(postgres_url) as stores:
        await fill(stores.state)
        connection = await asyncpg.connect(postgres_url)
        await connection.execute("DELETE FROM __agents_states WHERE session_id = 's'")
        await connection.close()
        assert [each async for each in verify_sessions(stores.state)] == [
            ("s", ["it has stored rows, but there is no such session"])
        ]
        assert await repair_session(stores.state, stores.streams, "s") == ["removed what was left of it"]
        assert [each async for each in verify_sessions(stores.state)] == []
