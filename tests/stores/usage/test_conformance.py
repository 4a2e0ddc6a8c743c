"""The usage checks of the kit on our own backends."""

from __future__ import annotations

from typing import ClassVar

from helix_agents.backends.inmemory.usage_store import InMemoryUsageStore
from helix_agents.backends.sql_shared.schema.self_migrating import MigratedDriver
from helix_agents.backends.sql_shared.usage.store import SqlUsageStore
from helix_agents.backends.sqlite.driver import SqliteDriver
from helix_agents.conformance.harness import Harness
from helix_agents.conformance.pytest import conformance_tests
from helix_agents.stores.usage.contract import UsageStore
from tests.conformance.harnesses import FileHarness


class InMemoryHarness(Harness):
    name: ClassVar[str] = "usage in memory"

    def __init__(self) -> None:
        super().__init__()
        self._store = InMemoryUsageStore()

    async def open_usage(self) -> UsageStore:
        return self._store


class SqliteHarness(FileHarness):
    """Every store has its own connection to one file, like another process."""

    name: ClassVar[str] = "usage on SQLite"
    d1_limits: ClassVar[bool] = False

    async def open_usage(self) -> UsageStore:
        driver = SqliteDriver(self.path, synchronous="OFF", d1_limits=self.d1_limits)
        return SqlUsageStore(self.keep(MigratedDriver(driver, prefix="app")), prefix="app")


class D1LimitsHarness(SqliteHarness):
    name: ClassVar[str] = "usage under D1's limits"
    d1_limits: ClassVar[bool] = True


test_in_memory = conformance_tests(InMemoryHarness)
test_sqlite = conformance_tests(SqliteHarness)
test_sqlite_under_d1_limits = conformance_tests(D1LimitsHarness)
