"""A pool of workers: how soon a submitted run starts, what an idle pool costs, and what finding work costs.

    python -m benchmarks.workers [url] [--runs 200] [--idle 20]

The pool is a process of its own. `start`: from the call of `submit` until its `run_started` chunk reaches this process.
`idle`: processor time of the pool while nothing happens. `finding`: `list_claimable` with ten sessions that wait, among
100 and 100,000 that are done (SQLite; the rows are put in by plain SQL, since only reading is measured).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import resource
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

from benchmarks import machine
from helix_agents.agent import Agent
from helix_agents.backends.registry import Stores, open_stores
from helix_agents.executor import AgentExecutor, WorkerPool
from helix_agents.llm import ScriptedLLM

AGENT = Agent("bench")
SMALL, LARGE, WAITING = 100, 100_000, 10
LOOKS = 300
NAMED = {"__agents_states": ("session_id", "stream_id"), "__agents_runs": ("session_id", "run_id")}
"""The tables of sessions and runs, and the columns that must differ."""


def executing(stores: Stores) -> AgentExecutor:
    """The executor of both processes."""
    return AgentExecutor(stores, ScriptedLLM(lambda request: "Done."), agents=[AGENT])


async def work(url: str) -> None:
    """The child: a pool that tells its processor time whenever it is asked."""
    async with open_stores(url) as stores, executing(stores) as executor, WorkerPool(executor):
        print("ready", flush=True)
        while await asyncio.to_thread(sys.stdin.readline):
            used = resource.getrusage(resource.RUSAGE_SELF)
            print(used.ru_utime + used.ru_stime, flush=True)


@contextlib.asynccontextmanager
async def pool_process(url: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A pool in another process."""
    path = os.pathsep.join(entry or os.curdir for entry in sys.path)
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.workers", url, "--work"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert child.stdout is not None
    await child.stdout.readline()
    yield child
    child.kill()
    await child.wait()


async def used_seconds(child: asyncio.subprocess.Process) -> float:
    """The processor time of the pool so far."""
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(b"\n")
    await child.stdin.drain()
    return float(await child.stdout.readline())


async def measure_pool(url: str, runs: int, idle_seconds: float) -> None:
    """How soon runs start, and what the pool uses while there are none."""
    async with open_stores(url) as stores, executing(stores) as executor, pool_process(url) as child:
        times = []
        for number in range(runs + 5):
            began = time.perf_counter()
            handle = await executor.submit(AGENT, "Go", session_id=f"s{number}")
            async for chunk in handle.stream(wait=True):
                if chunk["type"] == "run_started":
                    times.append((time.perf_counter() - began) * 1000)
            await handle.result()
        found = sorted(times[5:])
        p50, p95 = statistics.median(found), found[int(len(found) * 0.95)]
        print(f"start     p50 {p50:.1f} ms, p95 {p95:.1f} ms of {runs} (goal: p50 at most 50 ms)")
        before, began = await used_seconds(child), time.perf_counter()
        await asyncio.sleep(idle_seconds)
        used = (await used_seconds(child) - before) / (time.perf_counter() - began)
        print(f"idle      {used:.2%} of a core over {idle_seconds:g} s (goal: under 1 %)")


def fill(file: Path, count: int) -> None:
    """Copy the session `done` and its run so often."""
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)"
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as connection:
        for table, keys in NAMED.items():
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            values = ", ".join(f"{name} || '-' || i" if name in keys else name for name in columns)
            connection.execute(
                f"{numbers} INSERT INTO {table} ({', '.join(columns)}) SELECT {values} FROM {table}, n"
                " WHERE session_id = 'done'",
                (count,),
            )
        connection.execute("ANALYZE")


async def measure_finding(folder: Path, count: int) -> float:
    """The median time of a look, in milliseconds."""
    file = folder / f"finding-{count}.db"
    async with open_stores(f"sqlite:{file}") as stores, executing(stores) as executor:
        await (await executor.execute(AGENT, "Go", session_id="done")).result()
        for number in range(WAITING):
            await executor.submit(AGENT, "Go", session_id=f"waiting-{number}")
        await asyncio.to_thread(fill, file, count)
        times = []
        for _ in range(LOOKS):
            began = time.perf_counter()
            found = await stores.state.list_claimable(executor.services.clock(), agent_types=["bench"], limit=200)
            times.append((time.perf_counter() - began) * 1000)
            assert len(found) == WAITING
    return statistics.median(times)


async def main(url: str | None, folder: Path, runs: int, idle_seconds: float) -> None:
    """All three."""
    print(machine.describe())
    await measure_pool(url or f"sqlite:{folder / 'pool.db'}", runs, idle_seconds)
    small, large = await measure_finding(folder, SMALL), await measure_finding(folder, LARGE)
    print(f"finding   {small:.3f} ms among {SMALL:,} sessions, {large:.3f} ms among {LARGE:,} (goal: the same)")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", nargs="?")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--idle", type=float, default=20)
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        asyncio.run(work(given.url))
    else:
        with tempfile.TemporaryDirectory() as place:
            asyncio.run(main(given.url, Path(place), given.runs, given.idle))
