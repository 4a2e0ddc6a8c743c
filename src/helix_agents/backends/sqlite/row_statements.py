"""Statements for any number of rows: one call into SQLite where there would be one for each row.

A call costs more than the row it writes, and every call gives up the interpreter and has to ask for it again. The
number of rows is part of the text of a statement, so rows are cut into a few sizes, whose statements stay prepared.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from itertools import chain

from ..sql.driver import Row
from ..sql.queries import Queries

SIZES = (256, 128, 64, 48, 32, 24, 16, 12, 8, 6, 5, 4, 3, 2, 1)
"""How many rows one statement takes; the widest row times the most stays far below SQLite's 32,766 parameters."""


class RowStatements:
    """The statements of one file by name: `name` for one row (if it needs words of its own), `name_rows` for many."""

    def __init__(self, queries: Queries) -> None:
        self._texts = queries.texts
        self._sized: dict[tuple[str, int], str] = {}

    def run(self, connection: sqlite3.Connection, name: str, rows: Sequence[Row]) -> list[Row]:
        """Run a statement for all rows and answer what it found, in no order."""
        if not rows:
            return []
        if len(rows) == 1:
            return connection.execute(self._text(name, 1, len(rows[0])), rows[0]).fetchall()
        found: list[Row] = []
        at, left = 0, len(rows)
        for size in SIZES:
            while left >= size:
                part = tuple(chain.from_iterable(rows[at : at + size]))
                found += connection.execute(self._text(name, size, len(rows[at])), part).fetchall()
                at += size
                left -= size
        return found

    def _text(self, name: str, size: int, width: int) -> str:
        text = self._sized.get((name, size))
        if text is None:
            text = self._texts.get(name) if size == 1 else None
            if text is None:
                row = f"({', '.join('?' * width)})"
                text = self._texts[f"{name}_rows"].replace(":rows", ", ".join([row] * size))
            self._sized[name, size] = text
        return text
