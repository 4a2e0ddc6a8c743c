"""Effects once (X10) on SQLite under D1's limits, where streams live in another store."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from helix_agents.backends.registry import Stores
from helix_agents.backends.sqlite.state_store import SqliteStateStore
from helix_agents.conformance.pytest import conformance_tests
from tests.executor.harnesses import SqliteHarness


class D1Harness(SqliteHarness):
    """In short form: a few runs that die between calls."""

    name: ClassVar[str] = "effects under D1's limits"

    def __init__(self) -> None:
        super().__init__()
        self.options = replace(self.options, steps=40)

    async def open_stores(self) -> Stores:
        stores = await super().open_stores()
        state = SqliteStateStore(f"{self._directory}/executor.db", synchronous="OFF", d1_limits=True)
        self.stack.push_async_callback(state.close)
        return stores._replace(state=state)


CHECKS = (
    "X10.dead_at_any_point",
    "X10.switched_branches",
    "X10.aborted_with_an_open_step",
    "X10.taken_back",
    "X10.undo_fails",
)
test_d1 = conformance_tests(D1Harness, only=CHECKS)
