"""The executor checks of the kit on memory and SQLite; servers are in `test_servers.py`."""

from __future__ import annotations

from helix_agents.conformance.pytest import conformance_tests
from tests.executor.harnesses import (
    FAULTS,
    OTHER_KINDS,
    ApartHarness,
    MemoryHarness,
    SqliteFaultsHarness,
    SqliteHarness,
)

test_memory = conformance_tests(MemoryHarness)
test_memory_apart = conformance_tests(ApartHarness, only=FAULTS)
test_sqlite = conformance_tests(SqliteHarness, only=OTHER_KINDS)
test_sqlite_faults = conformance_tests(SqliteFaultsHarness, only=FAULTS)
