"""The memory checks of the kit on our own backends."""

from __future__ import annotations

from typing import ClassVar

from helix_agents.backends.inmemory.memory_store import InMemoryMemoryStore
from helix_agents.backends.sql_shared.memory.store import SqlMemoryStore
from helix_agents.backends.sql_shared.schema.self_migrating import MigratedDriver
from helix_agents.backends.sqlite.driver import SqliteDriver
from helix_agents.conformance.harness import Harness
from helix_agents.conformance.pytest import conformance_tests
from helix_agents.stores.memory.contract import Embedder, MemoryStore
from tests.conformance.harnesses import FileHarness


class InMemoryHarness(Harness):
    name: ClassVar[str] = "memories in memory"

    def __init__(self) -> None:
        super().__init__()
        self._store: MemoryStore | None = None

    async def open_memory(self, *, embedder: Embedder | None = None) -> MemoryStore:
        self._store = self._store or InMemoryMemoryStore(embedder=embedder)
        return self._store


class SqliteHarness(FileHarness):
    """Every store has its own connection to one file, like another process."""

    name: ClassVar[str] = "memories on SQLite"
    d1_limits: ClassVar[bool] = False

    async def open_memory(self, *, embedder: Embedder | None = None) -> MemoryStore:
        driver = SqliteDriver(self.path, synchronous="OFF", d1_limits=self.d1_limits)
        return SqlMemoryStore(self.keep(MigratedDriver(driver, prefix="app")), prefix="app", embedder=embedder)


class D1LimitsHarness(SqliteHarness):
    name: ClassVar[str] = "memories under D1's limits"
    d1_limits: ClassVar[bool] = True


test_in_memory = conformance_tests(InMemoryHarness)
test_sqlite = conformance_tests(SqliteHarness)
test_sqlite_under_d1_limits = conformance_tests(D1LimitsHarness)
