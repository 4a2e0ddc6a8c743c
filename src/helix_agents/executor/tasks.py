"""Run several jobs concurrently, or one that cancellation must not interrupt. Knows tasks, not runs."""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


async def gather_or_cancel(*jobs: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run jobs concurrently; the first error cancels the others and is raised once they have ended.

    Takes functions, so that a caller canceled before the start leaves no coroutine that was never awaited.
    """
    if len(jobs) == 1:
        return await jobs[0]()
    tasks = [asyncio.ensure_future(job()) for job in jobs]
    try:
        await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


async def finish_despite_cancel(job: Coroutine[Any, Any, None]) -> None:
    """Finish a job even if the caller is canceled, then raise the cancellation."""
    task = asyncio.ensure_future(job)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    task.result()
    if cancelled is not None:
        raise cancelled


def run_in_own_loop(job: Coroutine[Any, Any, Result]) -> Result:
    """Run a job in this thread's event loop and return its result."""
    return _runner().run(job)


_runners = threading.local()


def _runner() -> asyncio.Runner:
    """Return this thread's loop. It stays open, because stores are bound to the loop in which they were first used."""
    runner: asyncio.Runner | None = getattr(_runners, "runner", None)
    if runner is None:
        runner = _runners.runner = asyncio.Runner()
        if threading.current_thread() is threading.main_thread():
            atexit.register(runner.close)
    return runner
