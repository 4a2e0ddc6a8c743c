"""Append where a transaction can read before it writes: three statements, and retention only if it is due.

A batch elsewhere carries its guards with it; here the first statement says whether there is anything to do at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from ....streams.records import Append
from ..driver import BatchRefused, Row, Statement
from ..queries import Queries
from ..state.row_statements import RowConnection


class AppendPlan(NamedTuple):
    """An append, its chunks as rows, and the retention statements to run if they are due."""

    append: Append
    longest: int
    segments: list[tuple[int, int, str]]
    """Step, number of chunks, their texts as a JSON array."""
    expired_before: int
    max_chunks: int
    keep_newest: Statement
    keep_fresh: Statement
    ending: list[Statement]


Appended = tuple[int, list[Row]]
"""The sequence of the last chunk, and floors that retention has raised."""


class PlannedAppends:
    """Appends to tables with one prefix."""

    def __init__(self, prefix: str) -> None:
        self._texts = Queries("streams/planned_append", "sqlite", prefix).texts

    def run(self, connection: RowConnection, plans: Sequence[AppendPlan]) -> list[Appended | BatchRefused]:
        """Append all; a rejected append writes nothing."""
        return [self.one(connection, plan) for plan in plans]

    def one(self, connection: RowConnection, plan: AppendPlan) -> Appended | BatchRefused:
        """Append one."""
        texts, append = self._texts, plan.append
        stream_id, producer_id, counter, chunks, fence, now = (
            append.stream_id, append.producer_id, append.counter, append.chunks, append.fence, append.now,
        )  # fmt: skip
        about = (stream_id, len(chunks), plan.longest, now, plan.expired_before, fence, producer_id, counter)
        found = list(connection.execute(texts["advance_if_welcome"], about))
        if not found:
            repeated = list(connection.execute(texts["has_repeated"], (stream_id, producer_id, counter)))
            return BatchRefused("producer" if repeated else "stream")
        latest, total, created_at = found[0]
        first = latest - len(chunks) + 1
        for step, count, array in plan.segments:
            connection.execute(texts["insert_segment"], (stream_id, first, first + count - 1, step, now, array))
            first += count
        connection.execute(texts["remember"], (stream_id, producer_id, counter, latest, now))
        for statement in plan.ending:
            connection.execute(*statement)
        floors: list[Row] = []
        if plan.max_chunks and total > plan.max_chunks:
            floors += connection.execute(*plan.keep_newest)
        if plan.expired_before >= 0 and created_at <= plan.expired_before:
            floors += connection.execute(*plan.keep_fresh)
        return latest, floors


@cache
def planned_appends(prefix: str) -> PlannedAppends:
    """Return the object for tables with that prefix. Stores on one driver share it, and therefore transactions."""
    return PlannedAppends(prefix)
