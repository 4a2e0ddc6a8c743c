"""The SQLite driver: one connection, one worker thread, group commit.

The event loop never waits for the disk: a batch is handed to the worker thread, which replies through the loop. While
the worker is syncing one transaction, further batches queue up; they share the next transaction, so that one sync pays
for many commits. A conflict in one batch does not affect the others: the group then starts over with a savepoint for
each. Should the shared transaction be lost as a whole (a full disk), every batch is tried alone and gets its own
result. If others wait already, a group is answered when the next one goes to the disk: until then the worker needs the
interpreter itself, and from then on the event loop can have it.

An acknowledged batch survives power loss: WAL with `synchronous=FULL`.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from ...errors import StoreUnavailable
from ..sql_shared.driver import Dialect, Row, Statement
from .driver_errors import translated
from .file import create_private_file
from .jobs import Answer, Item, Job, JobQueue, Work, answer, by_kind, run

Synchronous = Literal["FULL", "NORMAL", "OFF"]

CACHE_KILOBYTES = 16_000
D1_LIMITS = {
    sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER: 100,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 100_000,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 50,
    sqlite3.SQLITE_LIMIT_COLUMN: 100,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 100,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 5,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 10,
    sqlite3.SQLITE_LIMIT_LENGTH: 2_000_000,
}
"""The limits of Cloudflare D1, so that fast local tests also run within them."""


class SqliteDriver:
    """`SqlDriver` on one SQLite file (or `:memory:`). Opens on first use; `close` ends the thread."""

    def __init__(
        self,
        path: str | Path,
        *,
        synchronous: Synchronous = "FULL",
        busy_timeout_seconds: float = 30.0,
        d1_limits: bool = False,
    ) -> None:
        self.path = str(path)
        self._synchronous = synchronous
        self._busy_timeout_seconds = busy_timeout_seconds
        self._d1_limits = d1_limits
        self._jobs = JobQueue()
        self._unanswered: list[Job] = []
        """Jobs whose writes are on disk, and whose callers are notified with the next sync."""
        self._sync_is_cheap = False
        """Whether the last sync took less time than the work before it, so that smaller groups pay off."""
        self._patient = True
        self._thread: threading.Thread | None = None
        self._closed = False

    @property
    def dialect(self) -> Dialect:
        return "sqlite"

    @property
    def max_parameter_bytes(self) -> int:
        return 1_000_000 if self._d1_limits else 500_000_000

    async def batch(self, statements: Sequence[Statement], *, read_only: bool = False) -> list[list[Row]]:
        return await self._submit(_snapshots if read_only else _batches, statements, read_only=read_only)

    def call(self, work: Work[Item, Answer], item: Item) -> asyncio.Future[Answer]:
        """Run a function that reads and writes in a transaction, on the worker thread; calls of the same function that
        wait at the same time become one call with all their items.

        It may be run again if the transaction was lost, so it must change nothing but the database.
        """
        return self._submit(work, item)

    def _submit(self, work: Work[Item, Answer], item: Item, *, read_only: bool = False) -> asyncio.Future[Answer]:
        if self._closed:
            raise StoreUnavailable(f"The store on {self.path} is closed: open it again.", nothing_written=True)
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=f"helix-sqlite {self.path}", daemon=True)
            self._thread.start()
        job = Job(work, item, read_only)
        self._jobs.put(job)
        return job.future

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._thread is not None:
            self._jobs.close()
            await asyncio.to_thread(self._thread.join)

    # -- the worker thread: everything below runs there

    def _work(self) -> None:
        connection: sqlite3.Connection | None = None
        while not self._jobs.drained:
            was_idle = not self._unanswered
            jobs = self._jobs.take(halve=was_idle and self._sync_is_cheap)
            try:
                connection = connection or self._connect()
            except Exception as error:
                for each in jobs:
                    each.error = translated(error, self.path)
            else:
                jobs = self._serve(connection, jobs)
            self._answer_last_group()
            self._unanswered = jobs
            if not self._jobs.has_more:
                self._answer_last_group()
        if connection is not None:
            _close(connection)

    def _answer_last_group(self) -> None:
        """Resolve the jobs of the previous group."""
        answer(self._unanswered)
        self._unanswered = []

    def _connect(self) -> sqlite3.Connection:
        create_private_file(self.path)
        connection = sqlite3.connect(
            self.path, timeout=self._busy_timeout_seconds, isolation_level=None, cached_statements=512
        )
        try:
            _enable_wal(connection, self._busy_timeout_seconds)
            connection.execute(f"PRAGMA synchronous={self._synchronous}")
            # Only macOS tells the two kinds of fsync apart; elsewhere this does nothing.
            connection.execute("PRAGMA fullfsync=ON")
            connection.execute("PRAGMA temp_store=MEMORY")
            # Deleted conversations must not stay readable in the file. Builds of SQLite differ in the default.
            connection.execute("PRAGMA secure_delete=ON")
            # The default of 2 MB holds the indexes of a few sessions only; a page that fell out is read again.
            connection.execute(f"PRAGMA cache_size=-{CACHE_KILOBYTES}")
            if self._d1_limits:
                for limit, value in D1_LIMITS.items():
                    connection.setlimit(limit, value)
        except BaseException:
            connection.close()
            raise
        return connection

    def _serve(self, connection: sqlite3.Connection, jobs: list[Job]) -> list[Job]:
        """Run the jobs; resolve those that only read, and return the others."""
        # A job that was cancelled while it waited is never done: it must not overtake a later look.
        jobs = [job for job in jobs if not job.future.cancelled()]
        reads = [job for job in jobs if job.read_only]
        if reads:
            self._answer_last_group()  # a read may take any time
            self._read(connection, reads)
            answer(reads)  # reads do not wait until the writes of others are on the disk
        writes = [job for job in jobs if not job.read_only]
        # Savepoints cost as much as two small statements a batch, and most groups hold no conflict: those that do
        # start over with savepoints, and where even that is lost, every batch is tried alone.
        if writes and not (
            self._commit_together(connection, writes) or self._commit_together(connection, writes, savepoints=True)
        ):
            for job in writes:
                self._commit_together(connection, [job])
        return writes

    def _read(self, connection: sqlite3.Connection, jobs: list[Job]) -> None:
        """Run the jobs on one snapshot; if one fails, run each on its own."""
        try:
            self._set_patience(connection)
            run(connection, jobs)
        except Exception as error:  # whatever it is, a caller waits for a result
            if len(jobs) == 1:
                jobs[0].error = translated(error, self.path)
                return
            for job in jobs:
                self._read(connection, [job])

    def _commit_together(self, connection: sqlite3.Connection, jobs: list[Job], *, savepoints: bool = False) -> bool:
        """Run the jobs in one transaction. Return False if it was lost as a whole and some job deserves another try."""
        try:
            self._begin(connection)
            begun = time.perf_counter()
            if savepoints:
                for job in jobs:
                    self._in_savepoint(connection, job)
            else:
                for alike in by_kind(jobs):
                    run(connection, alike)
            self._answer_last_group()
            done = time.perf_counter()
            connection.execute("COMMIT")
            self._sync_is_cheap = time.perf_counter() - done < done - begun
        except Exception as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            for job in jobs:
                job.error = translated(error, self.path)
            return len(jobs) == 1
        return True

    def _begin(self, connection: sqlite3.Connection) -> None:
        if self._unanswered:
            # They have what they came for: should another process have the lock, they do not wait for it with us.
            self._set_patience(connection, patient=False)
            try:
                connection.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError:
                self._answer_last_group()
        self._set_patience(connection)
        connection.execute("BEGIN IMMEDIATE")

    def _set_patience(self, connection: sqlite3.Connection, *, patient: bool = True) -> None:
        """Set whether to wait for locks of other processes."""
        if patient != self._patient:
            seconds = self._busy_timeout_seconds if patient else 0
            connection.execute(f"PRAGMA busy_timeout={round(seconds * 1000)}")
            self._patient = patient

    def _in_savepoint(self, connection: sqlite3.Connection, job: Job) -> None:
        connection.execute("SAVEPOINT job")
        try:
            run(connection, [job])
        except Exception as error:
            if not connection.in_transaction:
                raise  # SQLite has undone the neighbours too (disk full, I/O error)
            connection.execute("ROLLBACK TO job")
            job.error = translated(error, self.path)
        connection.execute("RELEASE job")


def _batches(connection: sqlite3.Connection, batches: Sequence[Sequence[Statement]]) -> list[list[list[Row]]]:
    return [[_rows(connection, statement) for statement in statements] for statements in batches]


def _snapshots(connection: sqlite3.Connection, batches: Sequence[Sequence[Statement]]) -> list[list[list[Row]]]:
    if len(batches) == len(batches[0]) == 1:
        return _batches(connection, batches)
    connection.execute("BEGIN")
    try:
        return _batches(connection, batches)
    finally:
        connection.execute("COMMIT")


def _rows(connection: sqlite3.Connection, statement: Statement) -> list[Row]:
    return connection.execute(statement.sql, statement.params).fetchall()


def _close(connection: sqlite3.Connection) -> None:
    """Close. A connection that wrote first empties the log, which holds copies of deleted rows, if no other process
    uses it."""
    if connection.total_changes:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("PRAGMA busy_timeout=0")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def _enable_wal(connection: sqlite3.Connection, timeout_seconds: float) -> None:
    # Switching to WAL does not wait for a lock as other statements do, so processes that start together must retry.
    deadline = time.monotonic() + timeout_seconds
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
        time.sleep(0.005)
