"""Specific to SQLite: waking other processes, the file, what is left in the tables."""

from __future__ import annotations

import asyncio
import os
import socket
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from helix_agents.backends.sqlite import wakeup
from helix_agents.backends.sqlite.stream_manager import SqliteStreamManager
from helix_agents.backends.sqlite.wakeup import SqliteWakeup

TABLES = ("__agents_streams", "__agents_stream_chunks", "__agents_stream_producers")


def _manager(path: Path, **options: Any) -> SqliteStreamManager:
    return SqliteStreamManager(path, synchronous="OFF", **options)


def _rows(path: Path, prefix: str = "") -> list[int]:
    with sqlite3.connect(path) as connection:
        found = [connection.execute(f"SELECT COUNT(*) FROM {prefix}{table}").fetchone()[0] for table in TABLES]
    connection.close()
    return found


def _sockets(tmp_path: Path) -> Path:
    """Return the sockets beside the file, or in the temporary folder if the test's path is too long for a socket."""
    return Path(wakeup._folder(os.path.realpath(tmp_path / "s.db")))


async def _write(manager: SqliteStreamManager, count: int, stream_id: str = "s") -> None:
    async with await manager.create_writer(stream_id, "run", "agent") as writer:
        for number in range(count):
            await writer.write({"type": "a", "n": number})


async def _follow(manager: SqliteStreamManager) -> asyncio.Task[list[int]]:
    reader = await manager.create_reader("s")
    assert reader is not None

    async def drain() -> list[int]:
        return [chunk["n"] async for chunk in reader]

    return asyncio.create_task(drain())


async def test_no_wakeup_arrives_and_the_reader_notices_by_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SqliteWakeup, "announce", lambda self, stream_id: None)
    here, there = _manager(tmp_path / "s.db"), _manager(tmp_path / "s.db")
    await _write(here, 3)
    task = await _follow(there)
    await _write(here, 2)
    await here.end_stream("s")
    assert await asyncio.wait_for(task, 30) == [0, 1, 2, 0, 1]
    await here.close()
    await there.close()


async def test_where_no_socket_can_be_bound_the_files_are_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: SqliteWakeup) -> None:
        raise PermissionError("read-only folder")

    monkeypatch.setattr(SqliteWakeup, "_bind", refuse)
    here, there = _manager(tmp_path / "s.db"), _manager(tmp_path / "s.db")
    await _write(here, 1)
    task = await _follow(there)
    await here.end_stream("s")
    assert await asyncio.wait_for(task, 30) == [0]
    await here.close()
    await there.close()


async def test_a_path_too_long_for_a_socket_works(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    here, there = _manager(folder / "s.db"), _manager(folder / "s.db")
    await _write(here, 1)
    task = await _follow(there)
    assert len(os.listdir(wakeup._folder(str(folder / "s.db")))) == 1
    await here.end_stream("s")
    assert await asyncio.wait_for(task, 30) == [0]
    await here.close()
    await there.close()


async def test_the_socket_of_a_dead_process_is_removed_by_the_next_writer(tmp_path: Path) -> None:
    folder = _sockets(tmp_path)
    folder.mkdir()
    dead = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    dead.bind(str(folder / "dead"))
    dead.close()
    manager = _manager(tmp_path / "s.db")
    await _write(manager, 1)
    assert os.listdir(folder) == []
    await manager.close()


async def test_a_listener_that_never_listens_does_not_hold_up_the_writer(tmp_path: Path) -> None:
    folder = _sockets(tmp_path)
    folder.mkdir()
    unsubscribe = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    unsubscribe.bind(str(folder / "unsubscribe"))
    manager, other = _manager(tmp_path / "s.db"), _manager(tmp_path / "s.db")
    await manager.create_writer("s", "run", "agent")
    task = await _follow(other)
    for _ in range(700):  # more than any queue of datagrams holds
        manager._wakeup.announce("s")
    await _write(manager, 2)
    await manager.end_stream("s")
    assert await asyncio.wait_for(task, 30) == [0, 1]
    unsubscribe.close()
    await manager.close()
    await other.close()


async def test_nothing_is_left_beside_the_file_when_all_have_closed(tmp_path: Path) -> None:
    managers = [_manager(tmp_path / "s.db") for _ in range(3)]
    await _write(managers[0], 1)
    for manager in managers:
        await manager.create_reader("s")
    assert len(os.listdir(_sockets(tmp_path))) == 3
    for manager in managers:
        await manager.close()
    assert not _sockets(tmp_path).exists()


async def test_delete_leaves_no_row(tmp_path: Path) -> None:
    manager = _manager(tmp_path / "s.db")
    await _write(manager, 5)
    assert _rows(tmp_path / "s.db") == [1, 5, 1]
    await manager.delete_stream("s")
    assert _rows(tmp_path / "s.db") == [0, 0, 0]
    await manager.close()


async def test_retention_removes_the_rows_in_the_end(tmp_path: Path) -> None:
    manager = _manager(tmp_path / "s.db", max_chunks=100)
    for _ in range(20):
        await _write(manager, 100)
    assert 100 <= _rows(tmp_path / "s.db")[1] < 100 + 256
    await manager.close()


async def test_expired_streams_are_purged(tmp_path: Path) -> None:
    now = 1_700_000_000_000
    manager = _manager(tmp_path / "s.db", ttl=60, clock=lambda: now)
    for name in ("a", "b", "c"):
        await _write(manager, 2, name)
    now += 3_600_000
    await _write(manager, 1, "d")
    assert _rows(tmp_path / "s.db") == [4, 1, 1]  # the counters stay
    await manager.close()


async def test_applications_with_other_prefixes_do_not_meet(tmp_path: Path) -> None:
    one, two = _manager(tmp_path / "s.db", prefix="one"), _manager(tmp_path / "s.db", prefix="two")
    await _write(one, 2)
    assert await two.get_stream_info("s") is None
    assert _rows(tmp_path / "s.db", "one") == [1, 2, 1]
    await one.close()
    await two.close()
