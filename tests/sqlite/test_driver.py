"""The SQLite driver: atomic batches, jobs of one group that do not affect each other, library errors."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from helix_agents import CheckpointMeta, InvalidArgument, StoreUnavailable
from helix_agents.backends.sql_shared.driver import BatchRefused, Statement
from helix_agents.backends.sqlite.driver import SqliteDriver
from helix_agents.errors import StoreCorrupt
from helix_agents.sqlite import SqliteStateStore
from tests.sqlite.held import Held

CREATE = "CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER NOT NULL, CONSTRAINT guard_small CHECK (n < 100))"


def put(n: int) -> Statement:
    return Statement("INSERT INTO t (n) VALUES (?1)", (n,))


COUNT = Statement("SELECT COUNT(*) FROM t")


@pytest.fixture
async def driver(tmp_path: Path) -> AsyncIterator[SqliteDriver]:
    driver = SqliteDriver(tmp_path / "t.db")
    await driver.batch([Statement(CREATE)])
    yield driver
    await driver.close()


async def count(driver: SqliteDriver) -> int:
    ((row,),) = await driver.batch([COUNT], read_only=True)
    return int(row[0])


async def test_a_batch_answers_the_rows_of_each_statement(driver: SqliteDriver) -> None:
    assert await driver.batch([put(1), COUNT, Statement("SELECT n FROM t")]) == [[], [(1,)], [(1,)]]


async def test_a_batch_that_trips_a_guard_leaves_nothing(driver: SqliteDriver) -> None:
    with pytest.raises(BatchRefused) as caught:
        await driver.batch([put(1), put(100)])
    assert caught.value.reason == "small"
    assert await count(driver) == 0


async def test_a_call_looks_and_writes_in_one_transaction(driver: SqliteDriver) -> None:
    def put_next(connection: sqlite3.Connection, steps: Sequence[int]) -> list[int]:
        (highest,) = connection.execute("SELECT COALESCE(MAX(n), 0) FROM t").fetchone()
        sums = list(accumulate(steps, initial=int(highest)))[1:]
        connection.executemany("INSERT INTO t (n) VALUES (?1)", [(n,) for n in sums])
        return sums

    answers = await asyncio.gather(*(driver.call(put_next, 2) for _ in range(5)))
    assert answers == [2, 4, 6, 8, 10]


async def test_a_call_that_trips_a_guard_leaves_nothing_and_no_mark_on_its_neighbours(driver: SqliteDriver) -> None:
    def refuse(connection: sqlite3.Connection, numbers: Sequence[int]) -> list[None]:
        connection.executemany("INSERT INTO t (n) VALUES (?1)", [(n,) for n in numbers])
        raise BatchRefused("version")

    first, refused, last = await asyncio.gather(
        driver.batch([put(1)]), driver.call(refuse, 50), driver.batch([put(2)]), return_exceptions=True
    )
    assert first == last == [[]]
    assert isinstance(refused, BatchRefused)
    assert refused.reason == "version"
    assert await count(driver) == 2


async def test_calls_of_one_kind_that_wait_together_are_made_together(driver: SqliteDriver) -> None:
    groups: list[list[int]] = []

    def odd_only(connection: sqlite3.Connection, numbers: Sequence[int]) -> list[int | BatchRefused]:
        groups.append(list(numbers))
        return [n if n % 2 else BatchRefused("even") for n in numbers]

    answers = await asyncio.gather(*(driver.call(odd_only, n) for n in range(20)), return_exceptions=True)
    assert [isinstance(answer, BatchRefused) for answer in answers] == [n % 2 == 0 for n in range(20)]
    assert [n for group in groups for n in group] == list(range(20)), (
        "each once: a tripped guard is no lost transaction"
    )
    assert len(groups) < 20


async def test_a_conflict_never_spoils_its_neighbours(driver: SqliteDriver) -> None:
    answers = await asyncio.gather(
        *(driver.batch([put(n), put(n)]) for n in (1, 2, 100, 3, 200, 4)), return_exceptions=True
    )
    assert [isinstance(answer, BatchRefused) for answer in answers] == [False, False, True, False, True, False]
    assert await count(driver) == 8


async def test_waiting_batches_share_a_transaction(driver: SqliteDriver) -> None:
    # Every commit of a transaction grows the change counter that PRAGMA data_version shows to other connections.
    path = driver.path
    other = sqlite3.connect(path)
    commits = 0
    seen = other.execute("PRAGMA data_version").fetchone()
    tasks = [asyncio.create_task(driver.batch([put(1)])) for _ in range(200)]
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        now = other.execute("PRAGMA data_version").fetchone()
        commits += now != seen
        seen = now
    other.close()
    assert await count(driver) == 200
    assert commits < 100, "200 batches that wait together must share syncs"


async def test_a_cancelled_batch_happened_as_a_whole_or_not_at_all(driver: SqliteDriver) -> None:
    for _ in range(50):
        task = asyncio.create_task(driver.batch([put(1), put(2)]))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await driver.batch([put(1), put(2)])
    assert await count(driver) % 2 == 0


async def test_a_batch_cancelled_while_it_waits_never_happens(driver: SqliteDriver) -> None:
    held = Held()
    first = driver.call(held.work, None)
    await held.begun()
    second = asyncio.create_task(driver.batch([put(1)]))
    await asyncio.sleep(0)  # it is in the queue now
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    held.let_go()
    await first
    assert [await count(driver), await count(driver)] == [0, 0]


async def test_a_read_is_answered_before_the_writes_that_wait_with_it(driver: SqliteDriver) -> None:
    first, second = Held(), Held()
    before = driver.call(first.work, None)
    await first.begun()
    reading = asyncio.create_task(count(driver))
    await asyncio.sleep(0)
    writing = driver.call(second.work, None)
    first.let_go()
    try:
        assert await asyncio.wait_for(reading, 20) == 0
    finally:
        second.let_go()
    await asyncio.gather(before, writing)


async def test_a_read_that_fails_does_not_spoil_those_that_wait_with_it(driver: SqliteDriver) -> None:
    held = Held()
    first = driver.call(held.work, None)
    await held.begun()
    reads = [COUNT, Statement("SELECT nothing FROM nowhere"), COUNT]
    waiting = asyncio.gather(*(driver.batch([each], read_only=True) for each in reads), return_exceptions=True)
    await asyncio.sleep(0)
    held.let_go()
    await first
    one, wrong, other = await waiting
    assert one == other == [[(0,)]]
    assert isinstance(wrong, StoreUnavailable)


async def test_reads_see_what_was_acknowledged(driver: SqliteDriver) -> None:
    for n in range(20):
        await driver.batch([put(n)])
        assert await count(driver) == n + 1


async def test_a_closed_driver_says_so(tmp_path: Path) -> None:
    driver = SqliteDriver(tmp_path / "t.db")
    await driver.batch([Statement(CREATE)])
    await driver.close()
    with pytest.raises(StoreUnavailable, match="is closed"):
        await driver.batch([COUNT])


async def test_the_file_and_its_log_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    driver = SqliteDriver(tmp_path / "a.db")
    await driver.batch([Statement("CREATE TABLE t (x)")])
    modes = {name: (tmp_path / name).stat().st_mode & 0o777 for name in ("a.db", "a.db-wal", "a.db-shm")}
    assert set(modes.values()) == {0o600}, modes
    await driver.close()


async def test_a_file_that_exists_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "a.db").touch(0o640)
    driver = SqliteDriver(tmp_path / "a.db")
    await driver.batch([Statement("CREATE TABLE t (x)")])
    await driver.close()
    assert (tmp_path / "a.db").stat().st_mode & 0o777 == 0o640


async def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    driver = SqliteDriver(tmp_path / "no" / "t.db")
    with pytest.raises(StoreUnavailable, match="cannot be opened"):
        await driver.batch([COUNT])
    await driver.close()


async def test_a_file_that_is_no_database_is_corrupt(tmp_path: Path) -> None:
    (tmp_path / "t.db").write_bytes(b"this is certainly no database" * 100)
    driver = SqliteDriver(tmp_path / "t.db")
    with pytest.raises(StoreCorrupt, match="damaged or not a SQLite database"):
        await driver.batch([COUNT])
    await driver.close()
    assert (tmp_path / "t.db").read_bytes().startswith(b"this is certainly")


async def test_a_full_disk_is_reported_and_loses_nothing(tmp_path: Path) -> None:
    driver = SqliteDriver(tmp_path / "t.db")
    await driver.batch([Statement("CREATE TABLE t (x BLOB)")])
    [[(pages,)]] = await driver.batch([Statement("PRAGMA page_count")])
    await driver.batch([Statement(f"PRAGMA max_page_count={pages + 20}")], read_only=True)
    with pytest.raises(StoreUnavailable, match="full"):
        await driver.batch([Statement("INSERT INTO t VALUES (zeroblob(1000000))")])
    small = Statement("INSERT INTO t VALUES (zeroblob(10))")
    big = Statement("INSERT INTO t VALUES (zeroblob(1000000))")
    answers = await asyncio.gather(*(driver.batch([s]) for s in (small, big, small)), return_exceptions=True)
    assert [isinstance(answer, StoreUnavailable) for answer in answers] == [False, True, False]
    assert await count(driver) == 2
    await driver.close()


async def test_a_read_only_database_is_reported(tmp_path: Path) -> None:
    driver = SqliteDriver(tmp_path / "t.db")
    await driver.batch([Statement("CREATE TABLE t (n INTEGER)")])
    await driver.batch([Statement("PRAGMA query_only=ON")], read_only=True)
    with pytest.raises(StoreUnavailable, match="cannot be written"):
        await driver.batch([put(1)])
    assert await count(driver) == 0
    await driver.close()


async def test_another_process_s_lock_is_waited_for(driver: SqliteDriver) -> None:
    other = sqlite3.connect(driver.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    waiting = asyncio.create_task(driver.batch([put(1)]))
    done, _ = await asyncio.wait([waiting], timeout=0.05)
    assert not done
    other.execute("COMMIT")
    other.close()
    await waiting
    assert await count(driver) == 1


async def test_a_read_behind_writes_that_did_not_wait_for_locks_waits_for_them(driver: SqliteDriver) -> None:
    patience = Statement("PRAGMA busy_timeout")
    held = Held()
    first = driver.call(held.work, None)
    await held.begun()
    # The group behind another one does not wait for locks while that one's reply is pending.
    second = asyncio.create_task(driver.batch([patience]))
    await asyncio.sleep(0)
    held.let_go()
    await first
    assert await second == [[(0,)]]
    assert await driver.batch([patience], read_only=True) == [[(30_000,)]]


async def test_a_lock_that_is_never_released_is_reported(tmp_path: Path) -> None:
    driver = SqliteDriver(tmp_path / "t.db", busy_timeout_seconds=0.05)
    await driver.batch([Statement(CREATE)])
    other = sqlite3.connect(driver.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="locked by another process"):
        await driver.batch([put(1)])
    other.close()
    await driver.batch([put(1)])
    await driver.close()


@pytest.mark.parametrize("value", [2**70, "\ud800"])
@pytest.mark.parametrize("read_only", [True, False])
async def test_a_value_that_sqlite_cannot_hold_is_an_answer_too(
    driver: SqliteDriver, value: int | str, read_only: bool
) -> None:
    with pytest.raises(InvalidArgument, match="cannot be stored"):
        await driver.batch([Statement("SELECT ?1", (value,))], read_only=read_only)
    assert await count(driver) == 0


async def test_a_commit_against_a_lock_waits_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = SqliteDriver(tmp_path / "t.db", busy_timeout_seconds=0.05)
    store = SqliteStateStore(driver.path, driver=driver)
    state = await store.create_session("s", agent_type="a")
    other = sqlite3.connect(tmp_path / "t.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    tries = 0
    apply = store._apply

    async def counted(*args: Any, **more: Any) -> Any:
        nonlocal tries
        tries += 1
        return await apply(*args, **more)

    monkeypatch.setattr(store, "_apply", counted)
    with pytest.raises(StoreUnavailable, match="locked") as caught:
        await store.save_state_and_promote_staging("s", state, [], CheckpointMeta("step-1", 1))
    assert (tries, caught.value.nothing_written) == (1, True)
    other.close()
    assert await store.get_latest_checkpoint("s") is None
    await driver.close()
