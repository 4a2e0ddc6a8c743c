"""Many sessions on four workers, one of which is killed again and again: all sessions finish, no step is done twice."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from helix_agents import open_stores
from helix_agents.backends.registry import Stores
from tests.executor.pool_agents import STEPS, agent, executor

WORKERS = 4
STEPS_PER_KILL = 16
"""A worker has up to eight runs. Deaths at a pace of the clock would leave a busy machine no time for a step: a run
would fail, because it seems to kill every process that works on it."""
POLL_SECONDS = 0.05
LIMIT_SECONDS = 600
SHORT, LONG = 24, 200
SIZES = [pytest.param(SHORT, id="short"), pytest.param(LONG, id="long", marks=pytest.mark.soak)]


class Workers:
    """Worker processes, always four of them."""

    def __init__(self, url: str) -> None:
        path = os.pathsep.join(entry or os.curdir for entry in sys.path)
        self._nursery = subprocess.Popen(
            [sys.executable, "-m", "tests.executor.pool_worker", url],
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._pids = [self._fork() for _ in range(WORKERS)]
        self.kills = 0

    def _fork(self) -> int:
        assert self._nursery.stdin is not None
        assert self._nursery.stdout is not None
        self._nursery.stdin.write("\n")
        self._nursery.stdin.flush()
        return int(self._nursery.stdout.readline())

    def kill_one(self) -> None:
        place = random.randrange(WORKERS)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pids[place], signal.SIGKILL)
        self._pids[place] = self._fork()
        self.kills += 1

    def close(self) -> None:
        for pid in self._pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._nursery.communicate()


async def _expect_done_once(stores: Stores, name: str) -> None:
    state = await stores.state.load_state(name)
    assert state is not None
    assert (state.status, state.custom_state) == ("completed", {"done": list(range(STEPS))}), name
    roles = [message["role"] for message in (await stores.state.get_messages(name)).items]
    assert roles == ["user", *["assistant", "tool"] * STEPS, "assistant"], name
    told = [stored.chunk for stored in await stores.streams.get_all_chunks(name)]
    commits = [chunk["step_count"] for chunk in told if chunk["type"] == "step_committed"]
    assert commits == list(range(1, STEPS + 2)), name


async def _storm(url: str, sessions: int) -> None:
    names = [f"s{number}" for number in range(sessions)]
    async with open_stores(url) as stores, executor(stores) as front:
        workers = Workers(url)
        try:
            handles = [await front.submit(agent, "Go", session_id=name) for name in names]
            waiting = asyncio.gather(*(handle.result() for handle in handles))
            async with asyncio.timeout(LIMIT_SECONDS):
                next_kill = 0
                while not waiting.done():
                    page = await stores.state.list_sessions(limit=200, count=False)
                    steps = sum(session.step_count for session in page.items)
                    if steps >= next_kill:
                        workers.kill_one()
                        next_kill = steps + STEPS_PER_KILL
                    await asyncio.wait({waiting}, timeout=POLL_SECONDS)
            assert [result for result in waiting.result() if result.status != "completed"] == []
            assert workers.kills >= 1
            for name in names:
                await _expect_done_once(stores, name)
        finally:
            workers.close()


@pytest.mark.parametrize("sessions", SIZES)
async def test_a_storm_over_a_pool_on_sqlite(tmp_path: Path, sessions: int) -> None:
    await _storm(f"sqlite:{tmp_path / 'pool.db'}", sessions)


@pytest.mark.parametrize("sessions", SIZES)
async def test_a_storm_over_a_pool_on_postgres(postgres_url: str, sessions: int) -> None:
    await _storm(postgres_url, sessions)


@pytest.mark.soak
async def test_a_storm_over_a_pool_on_redis(redis_url: str) -> None:
    await _storm(redis_url, LONG)


@pytest.mark.soak
async def test_a_storm_over_a_pool_on_a_redis_cluster(redis_cluster_url: str) -> None:
    await _storm(redis_cluster_url, LONG)
