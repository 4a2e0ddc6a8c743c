"""The base of all drivers for Cloudflare's SQLite: how statements are encoded, what is rejected, and what errors mean.

JavaScript has one kind of number and binds each of them as REAL, so an integer travels as text inside a CAST. Nothing
here knows how the database is reached: that is the one method `_send` of each driver.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from ...errors import InvalidArgument, StoreError, StoreUnavailable
from ..sql_shared.driver import Dialect, Row, Statement, Value
from ..sql_shared.state.refusals import refused_batch

BRIDGE_VERSION = 1
"""What the bridge Worker and this library speak with each other."""
MAX_INTEGER = 2**53 - 1
MAX_VALUE_BYTES = 2_000_000
MAX_PARAMETER_BYTES = 1_000_000
"""Where bulk data is split: quoting it once more may double it."""
GATHER_SECONDS = 0.2
"""How long chunks gather after the first ones. An append costs three rows, however many chunks it holds."""

_MARK = re.compile(r"\?(\d+)")
_REFUSED_BEFORE_RUNNING = ("overloaded", "too many requests", "queued for too long")
_UNKNOWN_OUTCOME = ("network connection lost", "reset", "exceeded timeout", "internal error", "object storage")

WireValue = str | float | None
WireStatement = tuple[str, list[WireValue]]


class Reply(NamedTuple):
    """The reply to a batch: the rows of each statement, and the numbers that Cloudflare bills."""

    results: Iterable[Iterable[Iterable[Any]]]
    rows_written: int = 0
    rows_read: int = 0
    size: int = 0


def reply_of(answer: Any) -> Reply:
    """Return the reply that another Worker or object sent, or raise what it rejected."""
    if answer.get("error"):
        raise refusal(str(answer["error"]))
    return Reply(answer["results"], answer.get("written", 0), answer.get("read", 0), answer.get("size", 0))


class MissingTable(StoreError):
    """The database has no tables, or lost them: a Durable Object that emptied itself looks like a new one."""


def to_wire(statement: Statement) -> WireStatement:
    """Return a statement as Cloudflare can carry it. Raises `InvalidArgument` for a value that it cannot hold."""
    params: list[WireValue] = []
    integers: list[int] = []
    for place, value in enumerate(statement.params, start=1):
        if isinstance(value, int):  # bool too
            integers.append(place)
        params.append(wire_value(value))
    return (_with_casts(statement.sql, tuple(integers)) if integers else statement.sql), params


def wire_value(value: Value) -> WireValue:
    """Return a value as it is sent: integers as text."""
    if isinstance(value, int):
        if not -MAX_INTEGER <= value <= MAX_INTEGER:
            raise InvalidArgument(f"Cloudflare cannot hold the integer {value}: it is beyond 2**53-1.")
        return str(int(value))
    if isinstance(value, bytes):
        raise InvalidArgument("Cloudflare's JSON cannot carry bytes: store text.")
    # A character takes at most four bytes: only near the limit is it worth counting them.
    if isinstance(value, str) and len(value) * 4 > MAX_VALUE_BYTES and (size := len(value.encode())) > MAX_VALUE_BYTES:
        raise InvalidArgument(
            f"A value of {size} bytes is larger than Cloudflare allows ({MAX_VALUE_BYTES}): keep large data elsewhere "
            "(R2) and store its address."
        )
    return value


@lru_cache(maxsize=2048)
def _with_casts(sql: str, integers: tuple[int, ...]) -> str:
    return _MARK.sub(lambda mark: f"CAST({mark[0]} AS INTEGER)" if int(mark[1]) in integers else mark[0], sql)


def refusal(text: str) -> Exception:
    """Return Cloudflare's error message as an outcome or an error of this library."""
    said = text.lower()
    if refused := refused_batch(text):
        return refused
    if "no such table" in said:
        return MissingTable(f"Cloudflare: {text}. Has this database been migrated?")
    if "too big" in said or "too large" in said:
        return InvalidArgument(f"Cloudflare rejected a value because of its size (a row holds 2 MB): {text}")
    if any(words in said for words in _REFUSED_BEFORE_RUNNING):
        return StoreUnavailable(f"Cloudflare is overloaded: {text}. Try again later.", nothing_written=True)
    if any(words in said for words in _UNKNOWN_OUTCOME):
        return StoreUnavailable(f"Cloudflare: {text}. Try again.")
    return StoreError(f"Cloudflare rejected a statement: {text}")


class CloudflareDriver(ABC):
    """`SqlDriver` over one `_send`. Counts what Cloudflare bills: `rows_written`, `rows_read`."""

    def __init__(self) -> None:
        self.rows_written = 0
        self.rows_read = 0
        self.size_bytes = 0

    @property
    def dialect(self) -> Dialect:
        """Return the SQL that the server speaks."""
        return "sqlite"

    @property
    def max_parameter_bytes(self) -> int:
        """Return how large a bound value may be."""
        return MAX_PARAMETER_BYTES

    async def batch(self, statements: Sequence[Statement], *, read_only: bool = False) -> list[list[Row]]:
        """Run statements in one transaction; return the rows of each."""
        if not statements:  # D1 refuses an empty batch
            return []
        return self.counted(await self._send([to_wire(each) for each in statements], read_only=read_only))

    def counted(self, reply: Reply) -> list[list[Row]]:
        """Return the rows of a reply, and add up its cost."""
        self.rows_written += reply.rows_written
        self.rows_read += reply.rows_read
        self.size_bytes = reply.size or self.size_bytes
        return [[tuple(row) for row in rows] for rows in reply.results]

    @abstractmethod
    async def _send(self, batch: list[WireStatement], *, read_only: bool) -> Reply:
        """Run the statements as one transaction. Raises the result of `refusal`."""

    async def close(self) -> None:
        """Release what the driver opened itself."""
