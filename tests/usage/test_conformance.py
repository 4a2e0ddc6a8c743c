"""The usage checks of the kit on our own backends."""

from __future__ import annotations

from pathlib import Path

import pytest

from helix_agents.backends.inmemory.usage_store import InMemoryUsageStore
from helix_agents.backends.sql.self_migrating import MigratedDriver
from helix_agents.backends.sql.usage_store import SqlUsageStore
from helix_agents.backends.sqlite.driver import SqliteDriver
from helix_agents.conformance.options import Options
from helix_agents.conformance.registry import Check
from helix_agents.conformance.usage.checks import USAGE_STORE, UsageHarness
from helix_agents.stores.usage.contract import UsageStore

CHECKS = USAGE_STORE.select()


class InMemoryHarness:
    def __init__(self) -> None:
        self.options = Options()
        self._store = InMemoryUsageStore()

    async def open_usage(self) -> UsageStore:
        return self._store


class SqliteHarness:
    """Every store has a connection of its own to one file, as other processes would."""

    def __init__(self, path: Path, *, d1_limits: bool = False) -> None:
        self.options = Options()
        self._path = path
        self._d1_limits = d1_limits
        self._drivers: list[MigratedDriver] = []

    async def open_usage(self) -> UsageStore:
        driver = SqliteDriver(self._path, synchronous="OFF", d1_limits=self._d1_limits)
        self._drivers.append(MigratedDriver(driver, prefix="app"))
        return SqlUsageStore(self._drivers[-1], prefix="app")

    async def dispose(self) -> None:
        for driver in self._drivers:
            await driver.close()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
async def test_in_memory(check: Check[UsageHarness]) -> None:
    await check.run(InMemoryHarness())


@pytest.mark.parametrize("d1_limits", [False, True], ids=["", "d1"])
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
async def test_sqlite(check: Check[UsageHarness], tmp_path: Path, d1_limits: bool) -> None:
    harness = SqliteHarness(tmp_path / "usage.db", d1_limits=d1_limits)
    try:
        await check.run(harness)
    finally:
        await harness.dispose()
