"""A lock for each name, first come first served, within one event loop.

An `asyncio.Lock` for each name would have to be kept as long as it might be asked for; here a name takes room only
while it is held, and a lock without contention costs a dictionary entry.
"""

from __future__ import annotations

import asyncio


class KeyedLock:
    """Which names are locked, and which tasks wait for them."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}

    def take_if_free(self, name: str) -> bool:
        """Take the lock without waiting, if it is free. The caller must `give` it back."""
        if name in self._waiting:
            return False
        self._waiting[name] = []
        return True

    async def take(self, name: str) -> None:
        """Wait until the lock is free, and take it."""
        if self.take_if_free(name):
            return
        mine = asyncio.get_running_loop().create_future()
        self._waiting[name].append(mine)
        try:
            await mine
        except asyncio.CancelledError:
            if not mine.cancelled():
                self.give(name)  # the turn came in the moment of cancellation
            raise

    def give(self, name: str) -> None:
        """Let the next one go, or forget the name."""
        waiting = self._waiting[name]
        while waiting:
            following = waiting.pop(0)
            if not following.done():  # else it was cancelled
                following.set_result(None)
                return
        del self._waiting[name]
