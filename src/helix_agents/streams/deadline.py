"""A reusable timeout: one timer serves many short waits.

A wait that ends early leaves the timer running; a timer that fires during a later wait is set again for the end of that
wait. So a reader of a busy stream sets a timer every few seconds, not one per chunk. That is cheaper everywhere, and
necessary inside a Cloudflare Worker: there a canceled timer stays allocated until its time, and an object may have
10,000.
"""

from __future__ import annotations

import asyncio

Waiter = asyncio.Future[bool | None]


class Deadline:
    """Times out waits, one at a time."""

    def __init__(self) -> None:
        self._waiter: Waiter | None = None
        self._due = 0.0
        self._timer: asyncio.Handle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._fires_at = 0.0

    def start(self, waiter: Waiter, due: float) -> None:
        """Start a wait: at loop time `due` the waiter's result becomes False, unless it has one or `end` was called."""
        self._waiter, self._due = waiter, due
        loop = waiter.get_loop()
        if self._timer is not None and self._loop is loop and self._fires_at <= due:
            return
        self.cancel()
        self._set(loop)

    def end(self) -> None:
        """End the wait. The timer stays for the next one."""
        self._waiter = None

    def cancel(self) -> None:
        """Cancel the timer: no wait will follow."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._fires_at = loop, self._due
        # Not `call_at`: Pyodide rejects a time that has just passed.
        self._timer = loop.call_later(max(0.0, self._due - loop.time()), self._fire)

    def _fire(self) -> None:
        self._timer = None
        waiter = self._waiter
        if waiter is None or waiter.done():
            return
        loop = waiter.get_loop()
        if loop.time() < self._due:
            self._set(loop)
        else:
            waiter.set_result(False)
