"""The executor checks of the kit on memory and SQLite; servers are in `test_servers.py`."""

from __future__ import annotations

from helix_agents.conformance.pytest import conformance_tests
from tests.executor.harnesses import MemoryHarness, SqliteHarness

test_memory = conformance_tests(MemoryHarness)
test_sqlite = conformance_tests(SqliteHarness)
