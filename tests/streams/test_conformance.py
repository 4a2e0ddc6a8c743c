"""The stream checks of the kit on our own backends."""

from __future__ import annotations

from helix_agents.conformance.pytest import conformance_tests

from .harnesses import InMemoryHarness, SqliteHarness

test_in_memory = conformance_tests(InMemoryHarness)
test_sqlite = conformance_tests(SqliteHarness)
