"""Workers for the concurrency checks: real processes on the same data that start at the same moment."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from ..harness import Harness
from ..registry import NotApplicable

ANSWER_SECONDS = 120
_LINE_BYTES = 2**26
_HEAD_START_SECONDS = 0.02
"""Time for every child to read its job, so that all start at the same moment and race."""


def spec_of(harness: Harness) -> str:
    """Return how a child opens the harness's data; raise `NotApplicable` where none can."""
    spec = harness.child_spec()
    if spec is None:
        raise NotApplicable("the data lives in one process")
    return spec


async def start_child(mode: str, spec: str) -> Process:
    """Start a child that finds the same modules as this process."""
    path = os.pathsep.join(entry or os.curdir for entry in sys.path)
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "helix_agents.conformance.tools.child",
        mode,
        spec,
        stdin=PIPE,
        stdout=PIPE,
        env={**os.environ, "PYTHONPATH": path},
        limit=_LINE_BYTES,
    )


async def stop_child(child: Process) -> None:
    """End a child and wait until it is gone."""
    if child.returncode is None:
        child.kill()
    await child.communicate()


async def hear(child: Process) -> Any:
    """Return the next line that a child prints."""
    assert child.stdout is not None
    line = await asyncio.wait_for(child.stdout.readline(), ANSWER_SECONDS)
    if not line:
        raise AssertionError("a child process ended without a reply; its standard error says why")
    return json.loads(line)


async def tell(child: Process, request: Any) -> None:
    """Send one line to a child."""
    assert child.stdin is not None
    child.stdin.write(json.dumps(request).encode() + b"\n")
    await child.stdin.drain()


class Crew:
    """Running processes that wait for jobs."""

    def __init__(self, children: Sequence[Process]) -> None:
        self._children = children

    def __len__(self) -> int:
        return len(self._children)

    async def run(self, job: str, params: Sequence[dict[str, Any]]) -> list[Any]:
        """Send the n-th parameters to the n-th process, all concurrently; return their results."""
        return await self.run_mixed([(job, each) for each in params])

    async def run_mixed(self, jobs: Sequence[tuple[str, dict[str, Any]]]) -> list[Any]:
        """Like `run`, with a separate job for each."""
        busy = self._children[: len(jobs)]
        start_at = time.time() + _HEAD_START_SECONDS
        for child, (job, params) in zip(busy, jobs, strict=True):
            await tell(child, {"job": job, "params": params, "start_at": start_at})
        replies = await asyncio.gather(*(hear(child) for child in busy))
        for reply in replies:
            if "error" in reply:
                raise AssertionError(f"a worker process failed: {reply['error']}")
        return [reply["answer"] for reply in replies]


@asynccontextmanager
async def crew(harness: Harness, size: int | None = None, *, spec: str | None = None) -> AsyncIterator[Crew]:
    """Yield processes that have the harness's data open."""
    where = spec or spec_of(harness)
    children: list[Process] = []
    try:
        for _ in range(size or harness.options.processes):
            children.append(await start_child("jobs", where))
        for word in await asyncio.gather(*(hear(child) for child in children)):
            if word != "ready":
                raise AssertionError(f"a worker process said {word!r} instead of being ready")
        yield Crew(children)
    finally:
        await asyncio.gather(*(stop_child(child) for child in children))
