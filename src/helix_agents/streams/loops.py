"""Close objects that were used in another event loop, whose tasks cannot be awaited here."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any


async def wait_for(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Wait for the tasks of this loop. Skip tasks of other loops: they ended with their loop or run in its thread."""
    here = asyncio.get_running_loop()
    await asyncio.gather(*(task for task in tasks if task.get_loop() is here), return_exceptions=True)


async def end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks, each in its own loop, and wait for those of this loop."""
    given = list(tasks)
    for task in given:
        cancel(task)
    await wait_for(given)


def cancel(task: asyncio.Task[Any]) -> None:
    """Cancel a task whose loop may be another one, or closed."""
    loop = task.get_loop()
    if is_foreign(loop):
        if not loop.is_closed():
            loop.call_soon_threadsafe(task.cancel)
    else:
        task.cancel()


def is_foreign(loop: asyncio.AbstractEventLoop) -> bool:
    """Return whether this is not the running loop."""
    try:
        return asyncio.get_running_loop() is not loop
    except RuntimeError:
        return True
