"""How the kit's executor checks open our own backends: by address, as any user would."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

from helix_agents.backends.registry import Stores, open_stores
from helix_agents.conformance.options import Options


class MemoryExecutorHarness:
    """Data lives in one process: every set of stores is the same one."""

    def __init__(self) -> None:
        self.options = Options()
        self._stack = AsyncExitStack()
        self._stores: Stores | None = None

    async def open(self) -> Stores:
        if self._stores is None:
            self._stores = await self._stack.enter_async_context(open_stores("memory:"))
        return self._stores

    async def dispose(self) -> None:
        await self._stack.aclose()

    def child_spec(self) -> str | None:
        return None


class UrlExecutorHarness:
    """Every set of stores is opened anew at one address."""

    def __init__(self, url: str) -> None:
        self.options = Options()
        self._stack = AsyncExitStack()
        self._url = url

    async def open(self) -> Stores:
        return await self._stack.enter_async_context(open_stores(self._url))

    async def dispose(self) -> None:
        await self._stack.aclose()

    def child_spec(self) -> str | None:
        return f"helix_agents.backends.registry:open_stores {self._url}"


def sqlite_harness(folder: Path) -> UrlExecutorHarness:
    """SQLite in a file; without waiting for the disk, since only processes are killed here, not the machine."""
    return UrlExecutorHarness(f"sqlite:{folder / 'executor.db'}?synchronous=OFF")
