"""The kit's scenario, run by worker processes that are killed and frozen, and what it must leave."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helix_agents import open_stores
from helix_agents.backends.registry import Stores
from helix_agents.conformance.executor.cast import make_author, make_llm
from helix_agents.conformance.executor.harness import executing, family, transcript
from helix_agents.conformance.executor.play import (
    Remains,
    StagedLedger,
    answer_all,
    begin_or_go_on,
    expect_same_remains,
    is_over,
    remains_of,
    staged_calls,
)
from helix_agents.conformance.executor.view import View, follow
from helix_agents.conformance.tools.dump import dump
from tests.servers.process import is_alive

LIMIT_SECONDS = 120
LOOK_AGAIN_SECONDS = 0.02
STILL_LOOKS = 15

Unlocked = Callable[[], Awaitable[bool]]
"""Whether no process holds a lock in a database: a process that is frozen with a lock stops all others."""


@dataclass
class CrashRuns:
    """One kind of engine, on some stores."""

    stores: Stores
    forks: WorkerForks
    place: dict[str, str]
    folder: Path
    unlocked: Unlocked
    expected: Remains | None = None

    async def run(self, session_id: str, *, last: int | None = None, end: str = "kill") -> None:
        """Run the scenario, end the process that executes the `last` tool call, and check what is left."""
        run = CrashRun(self, session_id)
        reading = asyncio.create_task(follow(self.stores.streams, session_id, run.view))
        try:
            async with asyncio.timeout(LIMIT_SECONDS):
                first = run.start_process(last, end)
                if last is not None and end == "kill":
                    await _until(lambda: not is_alive(first))
                    await run.note_staged()
                    run.start_process()
                elif last is not None:
                    await run.freeze(first)
                    run.start_process()
                while not await is_over(self.stores, session_id):
                    run.ensure_no_fault()
                    await asyncio.sleep(LOOK_AGAIN_SECONDS)
                await reading
                if last is not None and end == "freeze":
                    await run.thaw(first)
                await _until(lambda: not any(map(is_alive, run.pids)))
            await run.judge()
        finally:
            reading.cancel()
            for pid in run.pids:
                _send(pid, signal.SIGKILL)


class CrashRun:
    """One run of the scenario."""

    def __init__(self, runs: CrashRuns, session_id: str) -> None:
        self.view = View()
        self.pids: list[int] = []
        self._runs = runs
        self._session_id = session_id
        self._ledger = StagedLedger()
        self._journal = runs.folder / f"{session_id}.journal"
        self._journal.touch()

    def start_process(self, last: int | None = None, end: str = "kill") -> int:
        """Let one more process take part."""
        go = self._runs.folder / f"{self._session_id}.go{len(self.pids)}"
        go.touch()
        request = {
            **self._runs.place,
            "session_id": self._session_id,
            "journal": str(self._journal),
            "fault": str(self._runs.folder / f"{self._session_id}.fault{len(self.pids)}"),
            "go": str(go),
            "last": last,
            "end": end,
        }
        self.pids.append(self._runs.forks.fork(request))
        return self.pids[-1]

    async def freeze(self, pid: int) -> None:
        """Stop a process whose tools wait for a file, once it holds no lock."""
        go = self._runs.folder / f"{self._session_id}.go0"
        await _until(lambda: not go.exists())
        await self._still()
        while True:
            _send(pid, signal.SIGSTOP)
            if await self._runs.unlocked():
                break
            _send(pid, signal.SIGCONT)
            await asyncio.sleep(LOOK_AGAIN_SECONDS)
        await self.note_staged()

    async def thaw(self, pid: int) -> None:
        """Let a frozen process continue after the end: it must change nothing."""
        await _until(lambda: not any(is_alive(other) for other in self.pids if other != pid))
        before = await _everything(self._runs.stores, self._session_id)
        (self._runs.folder / f"{self._session_id}.go0").touch()
        _send(pid, signal.SIGCONT)
        await _until(lambda: not is_alive(pid))
        assert await _everything(self._runs.stores, self._session_id) == before, "a process that woke up late wrote"

    async def note_staged(self) -> None:
        """Record what had been done when a process ended: none of it may be done again."""
        stores = self._runs.stores
        done = await staged_calls(stores, self._session_id)
        for member in await family(stores, self._session_id):
            for message in await transcript(stores, member):
                if message["role"] == "tool":
                    done.add(f"{member} {message['tool_call_id']}")
        self._ledger.note(done, self._lines())

    async def judge(self) -> None:
        """Fail unless the scenario left what it leaves without faults."""
        stores, session_id = self._runs.stores, self._session_id
        self.ensure_no_fault()
        self._ledger.settle(self._lines())
        remains = await remains_of(stores, session_id, self.view)
        if self._runs.expected is None:
            self._runs.expected = await _undisturbed(stores)
        expect_same_remains(remains, self._runs.expected, session_id)
        for member in await family(stores, session_id):
            open_runs = [run.run_id for run in await stores.state.list_runs(member) if run.status == "running"]
            assert open_runs == [], f"{member}: runs without an end"
            assert await stores.state.discard_staging(member) == 0, f"{member}: staged rows were left behind"

    def ensure_no_fault(self) -> None:
        """Fail if a process failed."""
        faults = [path.read_text() for path in self._runs.folder.glob(f"{self._session_id}.fault*")]
        assert faults == [], "\n".join(faults)

    def _lines(self) -> list[str]:
        return self._journal.read_text().splitlines()

    async def _still(self) -> None:
        """Wait until nothing has been streamed for a while."""
        seen, looks = -1, 0
        while looks < STILL_LOOKS:
            info = await self._runs.stores.streams.get_stream_info(self._session_id)
            latest = info.latest_sequence if info else -1
            seen, looks = latest, looks + 1 if latest == seen else 0
            await asyncio.sleep(LOOK_AGAIN_SECONDS)


async def _undisturbed(stores: Stores) -> Remains:
    view = View()
    reading = asyncio.create_task(follow(stores.streams, "calm", view))
    async with executing(stores, make_llm(), agents=[make_author(lambda line: None)]) as executor:
        while not await is_over(stores, "calm"):
            await answer_all(executor, "calm")
            await begin_or_go_on(executor, "calm")
    await reading
    return await remains_of(stores, "calm", view)


async def _everything(stores: Stores, session_id: str) -> dict[str, Any]:
    chunks = {each: await stores.streams.get_all_chunks(each) for each in await family(stores, session_id)}
    return {"state": await dump(stores.state), "chunks": chunks}


async def _until(true: Callable[[], bool]) -> None:
    while not true():  # noqa: ASYNC110  # there is no event to wait for in a foreign process
        await asyncio.sleep(LOOK_AGAIN_SECONDS)


def _send(pid: int, what: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, what)


class WorkerForks:
    """A process that forks workers, which is cheaper than starting them."""

    def __init__(self) -> None:
        path = os.pathsep.join(entry or os.curdir for entry in sys.path)
        command = [sys.executable, "-m", "tests.runtimes.engine_worker"]
        values = {**os.environ, "PYTHONPATH": path}
        self._process = subprocess.Popen(command, env=values, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def fork(self, request: dict[str, Any]) -> int:
        """Return one more process, and its id."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        """End it, and wait until it has."""
        self._process.communicate()


@contextlib.asynccontextmanager
async def crash_runs(
    forks: WorkerForks, engine: str, stores_url: str, where: str, folder: Path, unlocked: Unlocked
) -> AsyncIterator[CrashRuns]:
    """Runs the scenario on an engine."""
    async with open_stores(stores_url) as stores:
        place = {"engine": engine, "stores": stores_url, "where": where}
        yield CrashRuns(stores, forks, place, folder, unlocked)
