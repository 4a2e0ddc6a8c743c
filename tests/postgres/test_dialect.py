"""Shared statements in the words of asyncpg."""

from __future__ import annotations

from typing import Any

import pytest

from helix_agents.backends.postgres.dialect import checked_schema, numbered, one_snapshot, parameter_count, qualified
from helix_agents.backends.sql_shared.driver import Statement
from helix_agents.errors import InvalidArgument


def test_parameters_are_numbered_from_an_offset() -> None:
    assert numbered("a = ?1 AND b = ?12", 2) == "a = $3 AND b = $14"
    assert parameter_count("a = ?3 OR b = ?1") == 3
    assert parameter_count("SELECT 1") == 0


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT * FROM p__agents_runs", 'SELECT * FROM "S".p__agents_runs'),
        ("CREATE INDEX __agents_i ON __agents_runs (a)", 'CREATE INDEX __agents_i ON "S".__agents_runs (a)'),
        ("DROP INDEX __agents_i", 'DROP INDEX "S".__agents_i'),
        ('SELECT * FROM "S".__agents_runs', 'SELECT * FROM "S".__agents_runs'),
    ],
)
def test_tables_are_qualified_and_indexes_are_created_beside_them(sql: str, expected: str) -> None:
    assert qualified(sql, "S") == expected
    assert qualified(sql, None) == sql


@pytest.mark.parametrize("schema", ["a b", 'a"', "1a", "", "x" * 64])
def test_a_schema_that_is_not_a_plain_name_is_rejected(schema: Any) -> None:
    with pytest.raises(InvalidArgument, match="plain identifier"):
        checked_schema(schema)


def test_several_reads_are_one_statement() -> None:
    sql, params = one_snapshot([Statement("SELECT ?1", (1,)), Statement("SELECT ?1, ?2", (2, 3))])
    assert sql == "SELECT ARRAY(SELECT r FROM (SELECT $1) AS r), ARRAY(SELECT r FROM (SELECT $2, $3) AS r)"
    assert params == [1, 2, 3]
