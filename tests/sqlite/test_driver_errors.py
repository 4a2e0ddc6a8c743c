"""Errors of SQLite: what a caller gets, and whether anything can have been written."""

from __future__ import annotations

import sqlite3

import pytest

from helix_agents.backends.sql_shared.driver import BatchRefused
from helix_agents.backends.sqlite.driver_errors import translated
from helix_agents.errors import InvalidArgument, StoreCorrupt, StoreError, StoreUnavailable

Broken = sqlite3.OperationalError


@pytest.mark.parametrize(
    ("error", "expected", "nothing_written"),
    [
        (Broken("database is locked"), StoreUnavailable, True),
        (Broken("attempt to write a readonly database"), StoreUnavailable, True),
        (Broken("database or disk is full"), StoreUnavailable, True),
        (Broken("unable to open database file"), StoreUnavailable, True),
        (Broken("disk I/O error"), StoreUnavailable, False),
        (sqlite3.DatabaseError("file is not a database"), StoreCorrupt, None),
        (sqlite3.DatabaseError("database disk image is malformed"), StoreCorrupt, None),
        (sqlite3.DataError("string or blob too big"), StoreError, None),
        (sqlite3.IntegrityError("CHECK constraint failed: guard_version"), BatchRefused, None),
        (sqlite3.IntegrityError("NOT NULL constraint failed: a.b"), StoreError, None),
        (OverflowError("Python int too large"), InvalidArgument, None),
    ],
)
def test_an_error_of_the_driver_becomes_one_of_ours(
    error: Exception, expected: type[BaseException], nothing_written: bool | None
) -> None:
    ours = translated(error, "x.db")
    assert type(ours) is expected
    assert ours.__cause__ is error
    assert getattr(ours, "nothing_written", None) is nothing_written


def test_an_error_of_ours_stays_as_it_is() -> None:
    ours = StoreError("x")
    assert translated(ours, "x.db") is ours
