"""S17 with real processes: two regenerate the same turn at the same moment."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from ...errors import AlreadyRunning, VersionConflict
from ...llm.contract import ModelEvent, ModelRequest
from ...llm.scripted import ScriptedLLM
from ..expect import expect_same
from ..harness import Harness, StoreSet
from ..tools.crew import hear, tell
from .harness import Clockwork, check, executing, transcript
from .x2_kill import worker
from .x9_branches import AGENT, completed

PROCESSES = 2
POLL_SECONDS = 0.005
PATIENCE_SECONDS = 60
WON = "won"


class Held(ScriptedLLM):
    """A model that does not reply until a file exists, so that the winning run lasts until all have tried."""

    def __init__(self, path: str) -> None:
        super().__init__(["Again."] * 9)
        self._path = path

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        await _file(self._path)
        async for event in super().stream(request):
            yield event


async def regenerate_once(
    stores: StoreSet, session_id: str, request: dict[str, Any], note: Callable[[str, str], None]
) -> None:
    """Regenerate as soon as the file `go` exists, and record the outcome. Runs in the worker process."""
    async with executing(
        stores, Held(request["all_tried"]), agents=[AGENT], lease_seconds=PATIENCE_SECONDS
    ) as executor:
        await _file(request["go"])
        try:
            handle = await executor.regenerate(session_id)
        except (AlreadyRunning, VersionConflict):
            note(request["journal"], "refused")
            return
        note(request["journal"], WON)
        await handle.result()


async def _file(path: str) -> None:
    while not Path(path).exists():  # noqa: ASYNC110, ASYNC240  # processes share files
        await asyncio.sleep(POLL_SECONDS)


async def _lines(journal: Path, count: int) -> list[str]:
    while True:
        lines = journal.read_text().splitlines()  # noqa: ASYNC240  # processes share files
        if len(lines) >= count:
            return lines
        await asyncio.sleep(POLL_SECONDS)


@check(
    "S17", "of two processes that regenerate concurrently, one succeeds and the other leaves nothing", kind="processes"
)
async def two_processes_regenerate(harness: Harness) -> None:
    stores = await harness.open_stores()
    await completed(stores, Clockwork(), "s")
    said = len(await transcript(stores, "s"))
    async with AsyncExitStack() as stack, asyncio.timeout(PATIENCE_SECONDS):
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        journal, go, all_tried = folder / "journal", folder / "go", folder / "all tried"
        journal.touch()
        request = {"regenerate": "s", "journal": str(journal), "go": str(go), "all_tried": str(all_tried)}
        children = [await stack.enter_async_context(worker(harness)) for _ in range(PROCESSES)]
        for child in children:
            await tell(child, request)
        await _lines(journal, PROCESSES)
        go.touch()
        outcomes = (await _lines(journal, 2 * PROCESSES))[PROCESSES:]
        all_tried.touch()
        for child in children:
            await hear(child)
            expect_same((await hear(child))["exit"], 0, "the exit status of a process")
    expect_same(sorted(outcomes), ["refused"] * (PROCESSES - 1) + [WON], "the outcomes")
    branches = await stores.state.list_branches("s")
    expect_same([(it.message_count, it.is_active) for it in branches], [(said, False), (said - 2, True)], "branches")
    runs = [run.status for run in await stores.state.list_runs("s")]
    expect_same(runs, ["completed"] * 3, "the runs: two turns, and the one that won")
