"""Erasing a user deletes all of their data and none of other users."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from helix_agents.backends.registry import Stores, open_stores
from helix_agents.errors import SessionNotFound
from helix_agents.operations.erasure import erase_user
from helix_agents.stores.memory.contract import Memory
from tests.server.agents import make_executor, manager

SECRET = "ants-4111"


async def fill(stores: Stores, user_id: str, name: str, secret: str) -> None:
    """Store a finished session with a sub-agent, its fork, one that waits for a person, and a memory."""
    async with make_executor(stores) as executor:
        for saying, session_id in ((f"tell search {secret}", name), (f"delete {secret}", f"{name}-waits")):
            await (await executor.execute(manager, saying, session_id=session_id, user_id=user_id)).result()
    await stores.blobs.put(name, secret.encode())
    await stores.state.fork_session(name, f"{name}-fork")
    await stores.memory.save(Memory(entity_id=user_id, content=f"likes {secret}"))
    await stores.memory.save(Memory(entity_id=f"{user_id}@work", content=f"reads {secret}"))


async def test_everything_of_a_user_goes_on_sqlite(tmp_path: Path) -> None:
    await expect_erased(f"sqlite:{tmp_path / 'h.db'}")


async def test_everything_of_a_user_goes_on_redis(redis_url: str) -> None:
    await expect_erased(redis_url)


async def test_everything_of_a_user_goes_on_postgres(postgres_url: str) -> None:
    await expect_erased(postgres_url)


async def expect_erased(url: str) -> None:
    """Erase one of two users and look for traces."""
    async with open_stores(url) as stores:
        await fill(stores, "ann", "a", SECRET)
        await fill(stores, "bob", "b", "bees")
        async with make_executor(stores) as executor:
            erased = await erase_user(executor, stores.state, stores.memory, "ann", entities=["ann@work"])
            assert (erased.sessions, erased.memories) == (4, 2)
            again = await erase_user(executor, stores.state, stores.memory, "ann")
            assert (again.sessions, again.memories) == (0, 0)
        left = (await stores.state.list_sessions(limit=200)).items
        assert {session.user_id for session in left} == {"bob"}
        assert len(left) == 4
        assert await stores.state.list_orphans() == []
        for name in ("a", "a-fork", "a-waits"):
            assert await stores.streams.get_stream_info(name) is None
            assert await stores.usage.get_entries(name) == []
            assert (await stores.blobs.list(name)).items == []
            with pytest.raises(SessionNotFound):
                await stores.state.get_messages(name)
        assert (await stores.memory.list_memories("ann")).items == []
        assert [memory.content for memory in (await stores.memory.list_memories("bob")).items] == ["likes bees"]
        assert (await stores.usage.get_rollup("b")).tools["search"].calls == 1


async def test_the_command_erases_and_leaves_no_copy_in_the_file(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'h.db'}"
    async with open_stores(url) as stores:  # stays open, as a server would
        await fill(stores, "ann", "a", SECRET)
        await fill(stores, "bob", "b", "bees")
        assert main_in_a_process(["erase", "ann", "--url", url]) == 1
        assert await stores.state.session_exists("a")
        assert main_in_a_process(["erase", "ann", "--entity", "ann@work", "--yes", "--url", url]) == 0
        copies = count_copies(tmp_path)
        assert set(copies.values()) == {0}, copies
        assert (await stores.state.list_sessions(user_id="bob")).total == 4
    with sqlite3.connect(tmp_path / "h.db") as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


def count_copies(folder: Path) -> dict[str, int]:
    """Count the secret in the database and its log."""
    return {file.name: file.read_bytes().count(SECRET.encode()) for file in folder.glob("h.db*")}


def main_in_a_process(arguments: list[str]) -> int:
    """Run a command as a shell would: the event loop of this test is taken."""
    return subprocess.run([sys.executable, "-m", "helix_agents.cli", *arguments], capture_output=True).returncode
