"""X2 on every engine: processes are killed and frozen in the middle of steps, and runs end as if nothing had happened.

Transcripts, states and streams equal those of an undisturbed run; what was committed or staged is not done again; a
process that wakes up after others continued changes nothing.
"""

from __future__ import annotations

import sqlite3
import uuid
from contextlib import closing
from pathlib import Path

import asyncpg
import pytest

from tests.runtimes.worker_crashes import CrashRuns, Unlocked, WorkerForks, crash_runs
from tests.servers.temporal import TemporalServer

Ends = list[tuple[int, str]]
CALLS = 11
"""How many tool calls the scenario executes, including those of sub-agents."""
SHORT: Ends = [(5, "kill"), (1, "freeze")]
EVERY: Ends = [(last, end) for last in range(1, CALLS + 1) for end in ("kill", "freeze")]
ENDS = [pytest.param(SHORT, id="short"), pytest.param(EVERY, id="every call", marks=pytest.mark.soak)]
"""In which call, and how."""


async def _crash(runs: CrashRuns, ends: Ends) -> None:
    for last, end in ends:
        await runs.run(f"{end}-in-call-{last}-{uuid.uuid4().hex[:6]}", last=last, end=end)


def sqlite_unlocked(*files: Path) -> Unlocked:
    async def unlocked() -> bool:
        try:
            for file in files:
                with closing(sqlite3.connect(file, timeout=0.2, isolation_level=None)) as connection:
                    connection.execute("BEGIN IMMEDIATE")
                    connection.execute("ROLLBACK")
        except sqlite3.OperationalError:
            return False
        return True

    return unlocked


async def never_locked() -> bool:
    """Redis runs each write to its end."""
    return True


def postgres_unlocked(url: str) -> Unlocked:
    async def unlocked() -> bool:
        connection = await asyncpg.connect(url)
        try:
            found = await connection.fetchval(
                "SELECT count(*) FROM pg_stat_activity"
                " WHERE datname = current_database() AND xact_start IS NOT NULL AND pid <> pg_backend_pid()"
            )
        finally:
            await connection.close()
        return bool(found == 0)

    return unlocked


@pytest.mark.parametrize("ends", ENDS)
async def test_dbos_on_sqlite(forks: WorkerForks, tmp_path: Path, ends: Ends) -> None:
    store, own = tmp_path / "agents.db", tmp_path / "dbos.db"
    unlocked = sqlite_unlocked(store, own)
    async with crash_runs(forks, "dbos", f"sqlite:{store}", f"sqlite:///{own}", tmp_path, unlocked) as runs:
        await _crash(runs, ends)


@pytest.mark.parametrize("ends", ENDS)
async def test_dbos_on_postgres(forks: WorkerForks, tmp_path: Path, postgres_url: str, ends: Ends) -> None:
    unlocked = postgres_unlocked(postgres_url)
    async with crash_runs(forks, "dbos", postgres_url, postgres_url, tmp_path, unlocked) as runs:
        await _crash(runs, ends)


@pytest.mark.parametrize("ends", ENDS)
async def test_temporal(forks: WorkerForks, tmp_path: Path, temporal_server: TemporalServer, ends: Ends) -> None:
    store, where = tmp_path / "agents.db", temporal_server.address
    async with crash_runs(forks, "temporal", f"sqlite:{store}", where, tmp_path, sqlite_unlocked(store)) as runs:
        await _crash(runs, ends)


@pytest.mark.parametrize("ends", ENDS)
async def test_a_pool_on_sqlite(forks: WorkerForks, tmp_path: Path, ends: Ends) -> None:
    store = tmp_path / "agents.db"
    async with crash_runs(forks, "pool", f"sqlite:{store}", "", tmp_path, sqlite_unlocked(store)) as runs:
        await _crash(runs, ends)


@pytest.mark.soak
async def test_a_pool_on_postgres(forks: WorkerForks, tmp_path: Path, postgres_url: str) -> None:
    async with crash_runs(forks, "pool", postgres_url, "", tmp_path, postgres_unlocked(postgres_url)) as runs:
        await _crash(runs, EVERY)


@pytest.mark.soak
async def test_a_pool_on_redis(forks: WorkerForks, tmp_path: Path, redis_url: str) -> None:
    async with crash_runs(forks, "pool", redis_url, "", tmp_path, never_locked) as runs:
        await _crash(runs, EVERY)


@pytest.mark.soak
async def test_a_pool_on_a_redis_cluster(forks: WorkerForks, tmp_path: Path, redis_cluster_url: str) -> None:
    async with crash_runs(forks, "pool", redis_cluster_url, "", tmp_path, never_locked) as runs:
        await _crash(runs, EVERY)
