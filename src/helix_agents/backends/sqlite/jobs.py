"""The queue of the worker thread of a SQLite file, and the way results return to the callers.

Jobs come from any event loop and are done on the one thread; whatever waits when the thread becomes free is a group.

Many sessions that commit one step after the other come back all at once as soon as their group is answered. If the next
group took them all again, loop and disk would take turns, and the one would be idle while the other works. So of many
that come together to an idle thread a group takes half; from then on the halves relieve each other: the loop resumes
one of them while the other is on its way to the disk.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, TypeVar

MAX_GROUP = 256
"""The most jobs that share one transaction, so that no job waits forever behind others."""

MIN_GROUP_TO_SPLIT = 8
"""Groups smaller than this stay whole: a transaction has costs of its own."""

Item = TypeVar("Item")
Answer = TypeVar("Answer")

Work = Callable[[sqlite3.Connection, Sequence[Item]], Sequence[Answer | Exception]]
"""What jobs of one kind do in their transaction, all in one call: it returns a result for each job. A job whose result
is an exception has written nothing; if the work raises, all of it is undone."""


class Job:
    """An item of work, and the future of its result. Created in the event loop of its caller."""

    __slots__ = ("answer", "error", "future", "item", "loop", "read_only", "work")

    def __init__(self, work: Work[Any, Any], item: Any, read_only: bool) -> None:
        self.work = work
        self.item = item
        self.read_only = read_only
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()
        self.answer: Any = None
        self.error: BaseException | None = None


class JobQueue:
    """Jobs in the order of their arrival."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._second_half: list[Job] = []
        self._ended = False

    def put(self, job: Job) -> None:
        """Add a job."""
        self._queue.put(job)

    def close(self) -> None:
        """Close the queue: no more jobs will come."""
        self._queue.put(None)

    @property
    def drained(self) -> bool:
        """Whether the last job has been taken."""
        return self._ended and not self._second_half

    @property
    def has_more(self) -> bool:
        """Whether more jobs wait already."""
        return bool(self._second_half) or not self._queue.empty()

    def take(self, *, halve: bool) -> list[Job]:
        """Return all waiting jobs, or half of them. If there are none, wait for one; empty once the queue is closed."""
        jobs, self._second_half = self._second_half, []
        while not self._ended and len(jobs) < MAX_GROUP and not (jobs and self._queue.empty()):
            job = self._queue.get()
            if job is None:
                self._ended = True
            else:
                jobs.append(job)
        if halve and len(jobs) >= MIN_GROUP_TO_SPLIT:
            half = len(jobs) // 2
            jobs, self._second_half = jobs[:half], jobs[half:]
        return jobs


def run(connection: sqlite3.Connection, jobs: Sequence[Job]) -> None:
    """Run jobs of one kind."""
    for job, answer in zip(jobs, jobs[0].work(connection, [job.item for job in jobs]), strict=True):
        refused = isinstance(answer, Exception)
        job.answer, job.error = (None, answer) if refused else (answer, None)  # there may be one of an earlier try


def by_kind(jobs: list[Job]) -> Iterable[list[Job]]:
    """Group the jobs by their work."""
    if len(jobs) == 1:
        return [jobs]
    kinds: dict[Work[Any, Any], list[Job]] = {}
    for job in jobs:
        kinds.setdefault(job.work, []).append(job)
    return kinds.values()


def answer(jobs: Sequence[Job]) -> None:
    """Resolve the futures of the jobs, from any thread."""
    if not jobs:
        return
    by_loop: dict[asyncio.AbstractEventLoop, list[Job]] = {}
    for job in jobs:
        by_loop.setdefault(job.loop, []).append(job)
    for loop, done in by_loop.items():
        with suppress(RuntimeError):  # that loop has been closed, and its futures with it
            loop.call_soon_threadsafe(_resolve, done)


def _resolve(jobs: list[Job]) -> None:
    for job in jobs:
        if job.future.done():
            continue  # the waiting task was cancelled
        if job.error is not None:
            job.future.set_exception(job.error)
        else:
            job.future.set_result(job.answer)
