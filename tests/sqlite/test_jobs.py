"""Groups of jobs: which of them share a transaction, in which order they run, and that none is lost."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest

from helix_agents.backends.sqlite.driver import SqliteDriver
from helix_agents.backends.sqlite.jobs import MAX_GROUP, MIN_GROUP_TO_SPLIT, Job, JobQueue


def same(connection: sqlite3.Connection, items: Sequence[int]) -> Sequence[int]:
    return items


def waiting(count: int) -> JobQueue:
    queue = JobQueue()
    for number in range(count):
        queue.put(Job(same, number, read_only=False))
    return queue


def numbers(jobs: list[Job]) -> list[int]:
    return [job.item for job in jobs]


async def test_all_that_wait_are_one_group() -> None:
    assert numbers(waiting(20).take(halve=False)) == list(range(20))


async def test_a_group_has_an_end() -> None:
    queue = waiting(MAX_GROUP + 1)
    assert len(queue.take(halve=False)) == MAX_GROUP
    assert numbers(queue.take(halve=False)) == [MAX_GROUP]


async def test_half_of_many_may_go_first_and_the_others_next() -> None:
    queue = waiting(20)
    assert numbers(queue.take(halve=True)) == list(range(10))
    assert queue.has_more
    queue.put(Job(same, 20, read_only=False))
    assert numbers(queue.take(halve=False)) == list(range(10, 21))
    assert not queue.has_more


async def test_few_are_not_divided() -> None:
    assert len(waiting(MIN_GROUP_TO_SPLIT - 1).take(halve=True)) == MIN_GROUP_TO_SPLIT - 1


async def test_a_closed_queue_is_drained_when_the_second_half_is_taken() -> None:
    queue = waiting(20)
    queue.close()
    assert len(queue.take(halve=True)) == 10
    assert not queue.drained
    assert len(queue.take(halve=False)) == 10
    assert queue.drained
    assert queue.take(halve=True) == []


@pytest.mark.parametrize("tasks", [1, MIN_GROUP_TO_SPLIT, 50])
async def test_everybody_is_answered_also_when_the_driver_closes(tmp_path: Path, tasks: int) -> None:
    driver = SqliteDriver(tmp_path / "a.db")

    async def several(first: int) -> list[int]:
        return [await driver.call(same, first + number) for number in range(20)]

    answers = await asyncio.gather(*map(several, range(tasks)))
    assert answers == [list(range(first, first + 20)) for first in range(tasks)]
    last = [driver.call(same, number) for number in range(tasks)]
    await driver.close()
    assert await asyncio.gather(*last) == list(range(tasks))


async def test_who_is_done_does_not_wait_for_the_lock_of_another_process(tmp_path: Path) -> None:
    driver = SqliteDriver(tmp_path / "a.db")
    done = Job(same, 1, read_only=False)
    driver._unanswered = [done]
    other = sqlite3.connect(tmp_path / "a.db", isolation_level=None, check_same_thread=False)
    other.execute("PRAGMA journal_mode=WAL")
    other.execute("BEGIN IMMEDIATE")

    def begin() -> None:
        connection = driver._connect()
        driver._begin(connection)
        connection.execute("COMMIT")
        connection.close()

    beginning = asyncio.create_task(asyncio.to_thread(begin))
    try:
        await asyncio.wait_for(done.future, 20)
        assert not beginning.done()
    finally:
        other.execute("ROLLBACK")
    await beginning
    other.close()
