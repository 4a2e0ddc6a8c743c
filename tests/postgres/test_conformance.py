"""The whole kit on a real server: plain, in a schema with a prefix, and as behind a transaction-mode pooler.

The whole of the two others is a soak test; by default they run what could differ.
"""

from __future__ import annotations

import pytest

from helix_agents.conformance.pytest import conformance_tests
from tests.postgres.harnesses import PostgresHarness, SchemaHarness, UncachedHarness

test_postgres = conformance_tests(PostgresHarness)
test_in_a_schema = conformance_tests(SchemaHarness, only=["S9", "S10", "S14", "T7", "U2", "M3"])
test_without_statement_cache = conformance_tests(UncachedHarness, only=["S6", "S12", "T5", "U2", "M3"])

test_all_in_a_schema = pytest.mark.soak(conformance_tests(SchemaHarness))
test_all_without_statement_cache = pytest.mark.soak(conformance_tests(UncachedHarness))
