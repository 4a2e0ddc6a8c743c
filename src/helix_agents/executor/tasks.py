"""Jobs: several side by side, and one that nothing may break off. Knows tasks and nothing of runs."""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


async def gather_or_cancel(*jobs: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run jobs concurrently; the first error cancels the others and is raised once they have ended.

    Takes functions, so that a caller cancelled before it starts leaves no coroutine that was never awaited.
    """
    tasks = [asyncio.ensure_future(job()) for job in jobs]
    try:
        await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


async def finish_despite_cancel(job: Coroutine[Any, Any, None]) -> None:
    """Finish a job even if the caller is cancelled, then raise the cancellation."""
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
    """Run a job in the event loop of this thread, and return its result."""
    return _runner().run(job)


_runners = threading.local()


def _runner() -> asyncio.Runner:
    """Return the loop of this thread. Stores cling to the loop in which they were used first, so it stays."""
    runner: asyncio.Runner | None = getattr(_runners, "runner", None)
    if runner is None:
        runner = _runners.runner = asyncio.Runner()
        if threading.current_thread() is threading.main_thread():
            atexit.register(runner.close)
    return runner
