"""Four sample sessions: one finished, one that waits for a person, one running, one that survived a kill -9.

They are real runs of the demo agents on the given stores. Existing sessions are left unchanged, so a restarted server
shows what happened to them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import AsyncIterator

from ..backends.registry import Stores
from ..errors import HelixError
from ..executor import AgentExecutor
from ..lifecycle import SUSPENDED
from .researcher import QUESTION

FINISHED, WAITING, AT_WORK, RECOVERED = "ants-finished", "ants-waiting", "colony-watch", "ants-recovered"
LOOK_AGAIN_SECONDS = 0.2
CRASH_LIMIT_SECONDS = 30
CRASHING = ("0.05", "sven", "science", "night")
"""The arguments of the worker that dies: slow typing, so that it is killed in the middle of a step; its user and
tags."""

logger = logging.getLogger("helix_agents.demo")


@contextlib.asynccontextmanager
async def gallery(executor: AgentExecutor, stores: Stores, url: str) -> AsyncIterator[None]:
    """Create the sessions in the background, while the server is already running."""
    tasks = [asyncio.create_task(_logged(work)) for work in (_finish(executor), _wait(executor), _work(executor))]
    if not url.startswith("memory"):  # another process could not see the data
        tasks.append(asyncio.create_task(_logged(_crash(executor, stores, url))))
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _logged(work: object) -> None:
    """Log a session that cannot be created; the server continues without it."""
    assert asyncio.iscoroutine(work)
    try:
        await work
    except HelixError as error:
        logger.warning("A demo session could not be made: %s", error)


async def _is_new(executor: AgentExecutor, session_id: str) -> bool:
    return not await executor.services.store.session_exists(session_id)


async def _finish(executor: AgentExecutor) -> None:
    if await _is_new(executor, FINISHED):
        await executor.execute("researcher", QUESTION, session_id=FINISHED, user_id="mara", tags=["science", "brief"])
        await _agree(executor, FINISHED)


async def _wait(executor: AgentExecutor) -> None:
    if await _is_new(executor, WAITING):
        await executor.execute("researcher", QUESTION, session_id=WAITING, user_id="jules", tags=["science"])


async def _work(executor: AgentExecutor) -> None:
    if await _is_new(executor, AT_WORK):
        await executor.execute("watcher", "Watch the colony.", session_id=AT_WORK, user_id="mara", tags=["live"])


async def _crash(executor: AgentExecutor, stores: Stores, url: str) -> None:
    """Kill a process in the middle of a step; the server picks up the run when its lease expires."""
    if await _is_new(executor, RECOVERED):
        await _let_die(stores, url)
        await _agree(executor, RECOVERED)


async def _let_die(stores: Stores, url: str) -> None:
    path = os.pathsep.join(entry or os.curdir for entry in sys.path)
    worker = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        f"{__package__}.worker",
        url,
        RECOVERED,
        *CRASHING,
        env={**os.environ, "PYTHONPATH": path},
    )
    try:
        async with asyncio.timeout(CRASH_LIMIT_SECONDS):
            while not await _is_in_the_middle(stores):  # noqa: ASYNC110  # another process does it
                await asyncio.sleep(LOOK_AGAIN_SECONDS / 4)
    except TimeoutError:
        logger.warning("The worker that should have crashed did nothing for %s s.", CRASH_LIMIT_SECONDS)
    finally:
        if worker.returncode is None:
            worker.kill()
        await worker.wait()


async def _is_in_the_middle(stores: Stores) -> bool:
    """Return whether one step is committed and the sub-agent of the next one is running."""
    chunks = await stores.streams.get_all_chunks(RECOVERED)
    return any(stored.chunk["type"] == "subagent_start" for stored in chunks)


async def _agree(executor: AgentExecutor, session_id: str) -> None:
    """Act as the person: approve the session's request once there is one."""
    while True:
        session = await executor.services.store.load_state(session_id)
        if session is None or session.status in ("completed", "failed"):
            return
        if session.status in SUSPENDED:
            for call in session.pending_client_tool_calls.values():
                await executor.submit_tool_result(session_id, call.tool_call_id, approved=True)
            with contextlib.suppress(HelixError):  # not suspended yet, or another process was faster
                await executor.resume("researcher", session_id)
        await asyncio.sleep(LOOK_AGAIN_SECONDS)
