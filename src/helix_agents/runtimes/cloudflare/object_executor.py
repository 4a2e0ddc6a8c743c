"""ObjectExecutor: the executor of an `AgentServer`, which sets the object's alarm before any work starts.

If the object dies in the middle, nothing but its alarm wakes it again. Imported only inside a Worker.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from ...backends.cloudflare import fetching
from ...executor import AgentExecutor, Request, RunHandle


class ObjectExecutor(AgentExecutor):
    """An executor that calls `wake` before a run starts or continues, and when work is stored for later."""

    def __init__(self, *parts: Any, wake: Callable[[], Awaitable[None]], **options: Any) -> None:
        super().__init__(*parts, **options)
        self._outbox.post = fetching.post
        self._wake = wake

    async def execute(self, *given: Any, **options: Any) -> RunHandle:
        """Do what `AgentExecutor.execute` does."""
        await self._wake()
        return await super().execute(*given, **options)

    async def resume(self, *given: Any, **options: Any) -> RunHandle:
        """Do what `AgentExecutor.resume` does."""
        await self._wake()
        return await super().resume(*given, **options)

    async def retry(self, *given: Any, **options: Any) -> RunHandle:
        """Do what `AgentExecutor.retry` does."""
        await self._wake()
        return await super().retry(*given, **options)

    async def recover(self, *, limit: int = 100) -> list[RunHandle]:
        """Do what `AgentExecutor.recover` does, and wait until the events that are due have been sent."""
        handles = await super().recover(limit=limit)
        await self._outbox.settle()
        return handles

    async def _start_branch(self, request: Request) -> RunHandle:
        await self._wake()
        return await super()._start_branch(request)

    async def _announce_work(self) -> None:
        await self._wake()
