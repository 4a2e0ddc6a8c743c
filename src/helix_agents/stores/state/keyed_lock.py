"""A lock for each name, first come first served, within one event loop.

An `asyncio.Lock` for each name would have to be stored as long as it might be needed. Here a name uses memory only
while it is locked, and a lock without contention costs a dictionary entry.

Inside a Cloudflare Worker a request must not be woken by another: it would continue in the wrong context, and the
runtime ends both. There each request polls with its own timer, for a limited time: a request that was cut off never
releases its lock.
"""

from __future__ import annotations

import asyncio
import sys

from ...errors import StoreUnavailable
from ...retry import TURN


class KeyedLock:
    """Which names are locked, and which tasks wait for them."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}

    def take_if_free(self, name: str) -> bool:
        """Take the lock without waiting, if it is free. The caller must release it with `give`."""
        if name in self._waiting:
            return False
        self._waiting[name] = []
        return True

    async def take(self, name: str) -> None:
        """Wait until the lock is free, and take it."""
        if self.take_if_free(name):
            return
        if sys.platform == "emscripten":
            await self._take_when_free(name)
            return
        mine = asyncio.get_running_loop().create_future()
        self._waiting[name].append(mine)
        try:
            await mine
        except asyncio.CancelledError:
            if not mine.cancelled():
                self.give(name)  # the lock was granted at the moment of cancellation
            raise

    async def _take_when_free(self, name: str) -> None:
        looks = 0
        while not self.take_if_free(name):
            if looks * TURN.first_seconds >= TURN.within_seconds:
                raise StoreUnavailable(
                    f"Another request has held {name!r} of this store for {TURN.within_seconds:g} s, or was canceled: "
                    "create a store for each request: requests cannot wait for each other, so they must not share "
                    "one in a module variable.",
                    nothing_written=True,
                )
            looks += 1
            await asyncio.sleep(TURN.first_seconds)

    def give(self, name: str) -> None:
        """Release the lock: wake the next task, or forget the name."""
        waiting = self._waiting[name]
        while waiting:
            following = waiting.pop(0)
            if not following.done():  # else it was cancelled
                following.set_result(None)
                return
        del self._waiting[name]
