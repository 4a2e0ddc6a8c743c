"""A wake-up by polling, for streams in D1, which has no notifications."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from ...streams.wakeup import Wake, Wakeup


class Polling(Wakeup):
    """Wakes the readers of all watched streams at an interval, and does nothing while there are none."""

    def __init__(self, interval_seconds: float) -> None:
        self._interval_seconds = interval_seconds
        self._watched: set[str] = set()
        self._wake: Wake = lambda stream_id: None
        self._looking: asyncio.Task[None] | None = None

    async def start(self, wake: Wake) -> None:
        self._wake = wake

    def watch(self, stream_id: str) -> None:
        self._watched.add(stream_id)
        if self._looking is None:
            self._looking = asyncio.get_running_loop().create_task(self._look(), name="helix-polling")

    def unwatch(self, stream_id: str) -> None:
        self._watched.discard(stream_id)

    async def _look(self) -> None:
        while self._watched:
            await asyncio.sleep(self._interval_seconds)
            for stream_id in list(self._watched):
                self._wake(stream_id)
        self._looking = None

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            with suppress(asyncio.CancelledError):
                await self._looking
