"""Lets the n-th call to a database, in the steps and requests of a session, never return: there a test kills workerd.

Every call has two points: before it is sent, and after it has been carried out but its reply is lost. Once a session
has reached its point, none of its calls is sent any more, as in a dead process. Nothing here survives a restart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from helix_agents.backends.cloudflare.wire import CloudflareDriver

POINTS: dict[str, int] = {}
"""How many points each session has passed."""
LAST: dict[str, int] = {}
"""The point at which a session dies."""
COUNTED: ContextVar[str] = ContextVar("COUNTED", default="")
"""The root session that the current step or request works for; empty where nothing dies."""
_batch = CloudflareDriver.batch


def has_died(session_id: str) -> bool:
    return POINTS.get(session_id, 0) >= LAST.get(session_id, 10**9)


async def _pass() -> None:
    session_id = COUNTED.get()
    if not session_id:
        return
    if not has_died(session_id):
        POINTS[session_id] = POINTS.get(session_id, 0) + 1
    if has_died(session_id):
        await asyncio.sleep(3600)


async def batch(self: Any, statements: Any, *, read_only: bool = False) -> Any:
    await _pass()
    found = await _batch(self, statements, read_only=read_only)
    await _pass()
    return found


CloudflareDriver.batch = batch  # type: ignore[method-assign]


@contextmanager
def immortal() -> Iterator[None]:
    """Make calls that count for no session."""
    token = COUNTED.set("")
    try:
        yield
    finally:
        COUNTED.reset(token)


def mortal(runtime: Any) -> None:
    """Count what the steps of this runtime do."""
    for name in ("advance", "wait_ms"):
        setattr(runtime, name, _counted(getattr(runtime, name)))


def _counted(work: Any) -> Any:
    async def counted(kept: Any) -> Any:
        COUNTED.set(kept["session_id"])
        return await work(kept)

    return counted
