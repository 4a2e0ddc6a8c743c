"""How statements are sent to Cloudflare, and how its errors are mapped."""

from __future__ import annotations

import re

import pytest

from helix_agents import InvalidArgument, StoreUnavailable
from helix_agents.backends.cloudflare.wire import MissingTable, refusal, to_wire
from helix_agents.backends.sql_shared.driver import BatchRefused, Statement
from helix_agents.backends.sql_shared.queries import Queries
from helix_agents.errors import StoreError


def test_integers_travel_as_text_and_become_integers_again() -> None:
    sql, params = to_wire(Statement("SELECT ?1, ?2, ?3, ?1 LIMIT ?10", (7, "a", 1.5, *[None] * 6, True)))
    assert sql == "SELECT CAST(?1 AS INTEGER), ?2, ?3, CAST(?1 AS INTEGER) LIMIT CAST(?10 AS INTEGER)"
    assert params == ["7", "a", 1.5, *[None] * 6, "1"]


@pytest.mark.parametrize("value", [2**53, -(2**53), 2**62])
def test_an_integer_that_javascript_cannot_hold_is_refused(value: int) -> None:
    with pytest.raises(InvalidArgument, match=re.escape("beyond 2**53-1")):
        to_wire(Statement("SELECT ?1", (value,)))
    assert to_wire(Statement("SELECT ?1", (2**53 - 1,)))[1] == [str(2**53 - 1)]


@pytest.mark.parametrize("text", ["a" * 2_100_000, "€" * 700_000])
def test_a_value_of_more_than_two_megabytes_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="2100000 bytes is larger than Cloudflare allows"):
        to_wire(Statement("SELECT ?1", (text,)))


@pytest.mark.parametrize(
    ("said", "kind", "nothing_written"),
    [
        ("D1 DB is overloaded. Too many requests queued.", StoreUnavailable, True),
        ("D1 DB is overloaded. Requests queued for too long.", StoreUnavailable, True),
        ("Network connection lost.", StoreUnavailable, False),
        ("D1 DB storage operation exceeded timeout which caused object to be reset.", StoreUnavailable, False),
        ("Internal error in D1 DB storage caused object to be reset.", StoreUnavailable, False),
        ("no such table: __agents_states: SQLITE_ERROR", MissingTable, None),
        ("string or blob too big: SQLITE_TOOBIG", InvalidArgument, None),
        ('near "SELCT": syntax error', StoreError, None),
    ],
)
def test_refusals_are_read_from_what_cloudflare_says(
    said: str, kind: type[Exception], nothing_written: bool | None
) -> None:
    error = refusal(said)
    assert type(error) is kind
    assert getattr(error, "nothing_written", None) is nothing_written


def test_guards_are_read_from_what_sqlite_says() -> None:
    for said, reason in [
        ("CHECK constraint failed: guard_version: SQLITE_CONSTRAINT", "version"),
        ("UNIQUE constraint failed: __agents_states.session_id: SQLITE_CONSTRAINT", "unique __agents_states"),
    ]:
        refused = refusal(said)
        assert isinstance(refused, BatchRefused)
        assert refused.reason == reason


@pytest.mark.parametrize(
    "file", ["state/queries", "streams/stream_queries", "usage/usage_queries", "memory/memory_queries"]
)
def test_every_parameter_has_a_number_so_that_it_can_be_cast(file: str) -> None:
    queries = Queries(file, "sqlite")
    for name in queries.names():
        text = re.sub(r"'[^']*'", "''", queries[name])
        if text.startswith(("SELECT", "INSERT", "UPDATE", "DELETE", "WITH")):  # else a part of one
            assert not re.search(r"\?(?!\d)", text), f"{file}: {name} has a parameter without a number"
