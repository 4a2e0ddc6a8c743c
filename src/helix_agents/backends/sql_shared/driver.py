"""SqlDriver: the only verb that a SQL backend implements, an atomic batch.

D1 and Durable Objects have no interactive transactions, so nothing here may read and decide inside one. A batch
carries its own conditions: a statement that finds a precondition violated inserts into `__agents_guard`, a table
whose named CHECKs refuse every row, and so undoes the whole batch. The driver reports the name as `BatchRefused`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Protocol

Value = str | int | float | bytes | None
Row = tuple[Any, ...]
Dialect = Literal["sqlite", "postgres"]


class Statement(NamedTuple):
    """SQL with parameters ?1, ?2, ...; values only of the types every driver can carry."""

    sql: str
    params: tuple[Value, ...] = ()


class BatchRefused(Exception):  # an outcome that callers match on, not a failure
    """A batch undid itself; `reason` is the name of the guard (`version`, `missing`, `exists`, ...).

    Never leaves a backend: the store turns it into a return value or one of the library's errors.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class SqlDriver(Protocol):
    """A connection, pool or binding, seen as one atomic verb."""

    @property
    def dialect(self) -> Dialect:
        """Which wording of a statement this technology needs."""

    @property
    def max_parameter_bytes(self) -> int:
        """The longest text one parameter may hold; longer bulk data is split over statements."""

    async def batch(self, statements: Sequence[Statement], *, read_only: bool = False) -> list[list[Row]]:
        """Run all statements in one transaction, all of them or none; return the rows of each.

        `read_only` promises that nothing is written; the rows then come from one consistent snapshot.
        Raises `BatchRefused` when a guard undid the batch, `StoreUnavailable` and other `StoreError`s else.
        *Cancellation:* a cancelled batch has happened as a whole or not at all.
        """

    async def close(self) -> None:
        """Release what the driver opened itself."""
