"""Run an event loop in a separate thread, for commands whose main thread reads the terminal."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")


class LoopThread:
    """`with LoopThread() as loop: loop.run(coroutine)` returns the result of the coroutine, or raises its exception."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="helix-loop", daemon=True)

    def run(self, work: Coroutine[Any, Any, T], *, on_interrupt: Callable[[], Awaitable[None]] | None = None) -> T:
        """Wait for the coroutine. The first Ctrl-C calls `on_interrupt`; the next one ends the wait."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        while True:
            try:
                return future.result()
            except KeyboardInterrupt:
                if on_interrupt is None:
                    future.cancel()
                    raise
                asyncio.run_coroutine_threadsafe(_awaited(on_interrupt), self._loop)
                on_interrupt = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._finish(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _finish(self) -> None:
        """Cancel remaining tasks, as `asyncio.run` does."""
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        await self._loop.shutdown_asyncgens()
        await self._loop.shutdown_default_executor()


async def _awaited(act: Callable[[], Awaitable[None]]) -> None:
    await act()
