"""How the kit's executor checks open our own backends: by address, as any user would."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import ClassVar

from helix_agents.backends.registry import Stores, open_stores
from helix_agents.conformance.harness import Harness
from helix_agents.stores.state.delegating import DelegatingStateStore

FAULTS = ("faults",)
OTHER_KINDS = ("example", "processes", "random", "tasks")


class Apart(DelegatingStateStore):
    """Sessions whose writes carry no chunks and no usage, as if streams were in another database."""

    def carries(self, *args: object) -> bool:
        return False


class UrlHarness(Harness):
    """Every set of stores is opened at one address, which a subclass or a fixture sets."""

    url: ClassVar[str] = ""

    def __init__(self) -> None:
        super().__init__()
        self.stack = AsyncExitStack()

    async def open_stores(self) -> Stores:
        return await self.stack.enter_async_context(open_stores(self.url))

    async def dispose(self) -> None:
        await self.stack.aclose()

    def stores_child_spec(self) -> str | None:
        return f"helix_agents.backends.registry:open_stores {self.url}"


class ShortHarness(UrlHarness):
    """Searches a fifth as long as on memory, unless `HELIX_SOAK=1`: the executor behaves the same on all backends.

    With `sometimes_apart`, every third seed takes sessions and streams apart.
    """

    sometimes_apart: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()
        if os.environ.get("HELIX_SOAK") != "1":
            self.options = replace(self.options, steps=50)

    async def open_stores(self) -> Stores:
        stores = await super().open_stores()
        apart = self.sometimes_apart and self.options.seed % 3 == 0
        return stores._replace(state=Apart(stores.state)) if apart else stores


class MemoryHarness(UrlHarness):
    """Data lives in one process: every set of stores is the same one."""

    name: ClassVar[str] = "executor in memory"
    url: ClassVar[str] = "memory:"

    def __init__(self) -> None:
        super().__init__()
        self._stores: Stores | None = None

    async def open_stores(self) -> Stores:
        if self._stores is None:
            self._stores = await super().open_stores()
        return self._stores

    def stores_child_spec(self) -> str | None:
        return None


class ApartHarness(MemoryHarness):
    """Sessions and streams in memory, apart from each other."""

    name: ClassVar[str] = "executor in memory, stores apart"

    async def open_stores(self) -> Stores:
        stores = await super().open_stores()
        return stores._replace(state=Apart(stores.state))


class SqliteHarness(ShortHarness):
    """SQLite in a file, without waiting for the disk: only processes are killed here, not the machine."""

    name: ClassVar[str] = "executor on SQLite"

    def __init__(self) -> None:
        super().__init__()
        self._directory = tempfile.mkdtemp(prefix="helix-executor-")
        self.url = f"sqlite:{self._directory}/executor.db?synchronous=OFF"  # type: ignore[misc]  # one a check

    async def dispose(self) -> None:
        await super().dispose()
        shutil.rmtree(self._directory)


class SqliteFaultsHarness(SqliteHarness):
    """The same; each third search for faults takes sessions and streams apart."""

    sometimes_apart = True
