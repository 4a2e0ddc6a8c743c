"""X2 with real processes: kill -9 at random moments, and SIGSTOP while another finishes the session."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from ..expect import expect, expect_same
from ..harness import Harness, StoreSet
from ..registry import NotApplicable
from ..tools.crew import hear, stop_child, tell
from .cast import make_author, make_llm
from .harness import Clockwork, check, chunks_of, custom_state, executing, family, transcript
from .play import (
    AGENT,
    FAILED,
    Remains,
    StagedLedger,
    answer_all,
    expect_same_remains,
    is_over,
    remains_of,
    staged_calls,
)
from .view import View, follow

LEASE_SECONDS = 30.0
DELAY_SECONDS = 0.0005
MAX_ATTEMPTS = 60
LOOK_AGAIN_SECONDS = 0.005
STILL_LOOKS = 60


@asynccontextmanager
async def worker(harness: Harness) -> AsyncIterator[Process]:
    """Yield a worker process on the harness's data."""
    spec = harness.stores_child_spec()
    if spec is None:
        raise NotApplicable("the data lives in one process")
    path = os.pathsep.join(entry or os.curdir for entry in sys.path)
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "helix_agents.conformance.executor.worker",
        spec,
        stdin=PIPE,
        stdout=PIPE,
        env={**os.environ, "PYTHONPATH": path},
    )
    try:
        expect_same(await hear(child), "ready", "the first line of the worker")
        yield child
    finally:
        await stop_child(child)


class WorkerRuns:
    """Runs the scenario in worker processes, with a reader attached from start to end."""

    def __init__(self, stores: StoreSet, child: Process, folder: Path) -> None:
        self._stores = stores
        self._child = child
        self._folder = folder

    async def run(self, session_id: str, kills: list[float]) -> tuple[Remains, float]:
        """Kill one process after each of these times, then let the last one finish; return how long all attempts
        took."""
        journal = self._folder / f"{session_id}.journal"
        journal.touch()
        ledger, view, clock = StagedLedger(), View(), Clockwork()
        spent = 0.0
        reading = asyncio.create_task(follow(self._stores.streams, session_id, view))
        try:
            for _ in range(MAX_ATTEMPTS):
                if await is_over(self._stores, session_id):
                    break
                async with executing(self._stores, make_llm(), agents=[make_author(print)], clock=clock) as executor:
                    await answer_all(executor, session_id)
                began = time.perf_counter()
                await self._attempt(session_id, journal, clock, kills.pop(0) if kills else None)
                spent += time.perf_counter() - began
                ledger.note(await staged_calls(self._stores, session_id), journal.read_text().splitlines())
                clock.pass_seconds(LEASE_SECONDS + 1)
            await asyncio.wait_for(reading, 60)
        finally:
            reading.cancel()
        ledger.settle(journal.read_text().splitlines())
        return await remains_of(self._stores, session_id, view), spent

    async def _attempt(self, session_id: str, journal: Path, clock: Clockwork, kill_after: float | None) -> None:
        request = {
            "session_id": session_id,
            "journal": str(journal),
            "ahead_ms": clock.ahead_ms,
            "lease_seconds": LEASE_SECONDS,
            "delay_seconds": DELAY_SECONDS,
        }
        await tell(self._child, request)
        pid = (await hear(self._child))["pid"]
        if kill_after is not None:
            await asyncio.sleep(kill_after)
            with suppress(ProcessLookupError):  # it may have finished already
                os.kill(pid, signal.SIGKILL)
        ended = (await hear(self._child))["exit"]
        expect(ended != FAILED, f"the worker failed on session {session_id}; its standard error says why")


@check("X2", "a run killed at random moments ends with the same conversation, state and stream", kind="processes")
async def killed_at_random_moments(harness: Harness) -> None:
    rng = random.Random(harness.options.seed)
    with tempfile.TemporaryDirectory() as folder:
        async with worker(harness) as child:
            runs = WorkerRuns(await harness.open_stores(), child, Path(folder))
            expected, spent = await runs.run("undisturbed", [])
            for number in range(max(1, harness.options.steps // 50)):
                kills = [rng.uniform(0, spent / 3) for _ in range(rng.choice((1, 2, 3, 5)))]
                actual, _ = await runs.run(f"case {number}", list(kills))
                plan = ", ".join(f"{seconds * 1000:.1f} ms" for seconds in kills)
                expect_same_remains(actual, expected, f"killed after {plan} (seed {harness.options.seed})")


@check(
    "X2", "a stopped process that continues after another process finished its session writes nothing", kind="processes"
)
async def stopped_and_continued(harness: Harness) -> None:
    stores = await harness.open_stores()
    clock = Clockwork()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        journal = folder / "journal"
        request = {
            "session_id": "s",
            "journal": str(journal),
            "ahead_ms": 0,
            "lease_seconds": 1.0,
            "delay_seconds": 0.0,
            "hold": str(folder / "go on"),
            "poll_seconds": 3600.0,
        }
        async with worker(harness) as child:
            await tell(child, request)
            pid = (await hear(child))["pid"]
            await asyncio.wait_for(_lines_in(journal, 3), 30)
            # A process that is stopped inside a write to SQLite blocks all others, including its successor.
            await asyncio.wait_for(_still(stores), 30)
            os.kill(pid, signal.SIGSTOP)
            clock.pass_seconds(10)
            async with executing(stores, make_llm(), agents=[make_author(lambda line: None)], clock=clock) as executor:
                status = (await (await executor.resume(AGENT, "s")).result()).status
                while status != "completed":
                    await answer_all(executor, "s")
                    status = (await (await executor.resume(AGENT, "s")).result()).status
            before = await _dump(stores)
            (folder / "go on").touch()
            os.kill(pid, signal.SIGCONT)
            await hear(child)
            expect_same(await _dump(stores), before, "what is stored after the process woke up")


async def _still(stores: StoreSet) -> None:
    """Wait until the other process has written nothing for a while: its tools wait for a file."""
    seen, looks = -1, 0
    while looks < STILL_LOOKS:
        info = await stores.streams.get_stream_info("s")
        latest = info.latest_sequence if info else -1
        seen, looks = latest, looks + 1 if latest == seen else 0
        await asyncio.sleep(LOOK_AGAIN_SECONDS)


def _count_lines(journal: Path) -> int:
    return len(journal.read_text().splitlines()) if journal.exists() else 0


async def _lines_in(journal: Path, count: int) -> None:
    while _count_lines(journal) < count:  # noqa: ASYNC110  # another process writes them
        await asyncio.sleep(LOOK_AGAIN_SECONDS)


async def _dump(stores: StoreSet) -> dict[str, Any]:
    dump: dict[str, Any] = {}
    for member in await family(stores, "s"):
        dump[member] = [
            await transcript(stores, member),
            await custom_state(stores, member),
            [found.checkpoint_id for found in (await stores.state.list_checkpoints(member)).items],
            [(run.run_id, run.status, run.completed_at) for run in await stores.state.list_runs(member)],
            await chunks_of(stores, member),
        ]
    return dump
