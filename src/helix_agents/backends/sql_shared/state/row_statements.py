"""Statements for any number of rows: one call into SQLite instead of one for each row.

A call costs more than the row it writes, and every call gives up the interpreter and has to ask for it again. The
number of rows is part of the text of a statement, so rows are cut into a few sizes, whose statements stay prepared.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Protocol

from ..driver import Row, Value
from ..queries import Queries

SIZES = (256, 128, 64, 48, 32, 24, 16, 12, 8, 6, 5, 4, 3, 2, 1)
"""How many rows one statement takes."""


class RowConnection(Protocol):
    """A database that runs statements immediately, inside a transaction that the caller starts and ends."""

    def execute(self, sql: str, row: Sequence[Value], /) -> Iterable[Row]:
        """Run a statement with its parameters and return the rows that it found."""


class RowStatements:
    """The statements of one file by name: `name` for one row (if it has a form of its own), `name_rows` for many."""

    def __init__(self, queries: Queries, max_parameters: int) -> None:
        self._texts = queries.texts
        self._max_parameters = max_parameters
        self._sized: dict[tuple[str, int], str] = {}

    def run(self, connection: RowConnection, name: str, rows: Sequence[Row]) -> list[Row]:
        """Run a statement for all rows; return the rows it found, in any order."""
        if not rows:
            return []
        width = len(rows[0])
        if len(rows) == 1:
            return list(connection.execute(self._text(name, 1, width), rows[0]))
        found: list[Row] = []
        at, left, most = 0, len(rows), self._max_parameters // width
        for size in SIZES:
            while left >= size <= most:
                part = tuple(chain.from_iterable(rows[at : at + size]))
                found += connection.execute(self._text(name, size, width), part)
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
