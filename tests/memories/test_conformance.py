"""The memory checks of the kit on our own backends."""

from __future__ import annotations

from pathlib import Path

import pytest

from helix_agents.backends.inmemory.memory_store import InMemoryMemoryStore
from helix_agents.backends.sql.memory_store import SqlMemoryStore
from helix_agents.backends.sql.self_migrating import MigratedDriver
from helix_agents.backends.sqlite.driver import SqliteDriver
from helix_agents.conformance.memory.checks import MEMORY_STORE, MemoryHarness
from helix_agents.conformance.options import Options
from helix_agents.conformance.registry import Check
from helix_agents.stores.memory.contract import Embedder, MemoryStore

CHECKS = MEMORY_STORE.select()


class InMemoryHarness:
    def __init__(self) -> None:
        self.options = Options()
        self._store: MemoryStore | None = None

    async def open_memory(self, *, embedder: Embedder | None = None) -> MemoryStore:
        self._store = self._store or InMemoryMemoryStore(embedder=embedder)
        return self._store


class SqliteHarness:
    """Every store has a connection of its own to one file, as other processes would."""

    def __init__(self, path: Path, *, d1_limits: bool = False) -> None:
        self.options = Options()
        self._path = path
        self._d1_limits = d1_limits
        self._drivers: list[MigratedDriver] = []

    async def open_memory(self, *, embedder: Embedder | None = None) -> MemoryStore:
        driver = SqliteDriver(self._path, synchronous="OFF", d1_limits=self._d1_limits)
        self._drivers.append(MigratedDriver(driver, prefix="app"))
        return SqlMemoryStore(self._drivers[-1], prefix="app", embedder=embedder)

    async def dispose(self) -> None:
        for driver in self._drivers:
            await driver.close()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
async def test_in_memory(check: Check[MemoryHarness]) -> None:
    await check.run(InMemoryHarness())


@pytest.mark.parametrize("d1_limits", [False, True], ids=["", "d1"])
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
async def test_sqlite(check: Check[MemoryHarness], tmp_path: Path, d1_limits: bool) -> None:
    harness = SqliteHarness(tmp_path / "memory.db", d1_limits=d1_limits)
    try:
        await check.run(harness)
    finally:
        await harness.dispose()
