"""A lock for each name, first come first served, within one event loop.

An `asyncio.Lock` for each name would have to be kept as long as anybody might ask for it; here a name takes room only
while somebody has its turn, and a turn that nobody disputes costs a dictionary entry.
"""

from __future__ import annotations

import asyncio


class KeyedLock:
    """Who is at work on which name, and who waits for it."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}

    def take_if_free(self, name: str) -> bool:
        """Take the turn without waiting, if nobody has it. Whoever has taken it must `give` it back."""
        if name in self._waiting:
            return False
        self._waiting[name] = []
        return True

    async def take(self, name: str) -> None:
        """Wait until nobody else has the turn, and take it."""
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
