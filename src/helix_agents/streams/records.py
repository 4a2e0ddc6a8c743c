"""The values passed between `streams/base.py` and a backend. Data only; no policy, no storage.

A backend sees chunks as JSON strings with a step and never parses one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from ..chunks import Chunk
from ..codec import decode, decode_many
from ..types import StreamStatus


class NewChunk(msgspec.Struct, frozen=True, gc=False):
    """A chunk to be stored: its step, and its JSON string.

    `chunk` is the decoded chunk if it is known and all its values are immutable; else None. A backend that stores
    objects may use it; others ignore it.
    """

    step: int
    text: str
    chunk: Chunk | None = None


class StreamEnd(NamedTuple):
    """How a stream stops being active; output and error as JSON strings."""

    status: StreamStatus
    final_output: str | None = None
    error: str | None = None


class Append(msgspec.Struct, frozen=True):
    """Chunks of one producer for a stream, as a value that another store's write can carry.

    The fields are those of `StreamManagerBase._append`. `ends`: the stream stops being active after these chunks, of
    which there must be at least one.
    """

    stream_id: str
    producer_id: str
    counter: int
    chunks: Sequence[NewChunk]
    fence: int | None
    now: int
    ends: StreamEnd | None = None


class StreamStart(msgspec.Struct, frozen=True):
    """An empty, active stream for a new turn, as a value that another store's write can carry.

    `latest_sequence`: the stream's when it was read; None if there was no stream. `marker` announces the reset. If the
    stream has changed since it was read, or its fence is larger, nothing is written.
    """

    stream_id: str
    incarnation: str
    marker: NewChunk
    fence: int
    now: int
    latest_sequence: int | None

    @property
    def sequence(self) -> int:
        """The sequence before the turn's first chunk."""
        return 0 if self.latest_sequence is None else self.latest_sequence + 1


class StoredText(msgspec.Struct, gc=False):
    """A chunk that was read. `chunk` as in `NewChunk`: it is never returned or changed, only copied.

    `frame`: the bytes that a server sends for it, cached by the first one. Readers of a process share rows, so a chunk
    is encoded once for all clients.
    """

    sequence: int
    step: int
    text: str
    chunk: Chunk | None = None
    frame: bytes | None = None


def fresh_chunks(rows: list[StoredText]) -> list[Chunk]:
    """Return copies of chunks, so that one reader's changes do not affect others."""
    if all(row.chunk is None for row in rows):
        return decode_many([row.text for row in rows])
    return [decode(row.text) if row.chunk is None else row.chunk.copy() for row in rows]


def fill_in(rows: list[StoredText]) -> None:
    """Decode flat chunks once, for rows that will be returned more than once."""
    # `dict.copy` isolates two readers only if no value can be changed in place. A bracket inside a string also fails
    # this test, which costs a little time and nothing else.
    missing = [row for row in rows if row.chunk is None and "[" not in row.text and row.text.find("{", 1) < 0]
    if missing:
        for row, chunk in zip(missing, decode_many([row.text for row in missing]), strict=True):
            row.chunk = chunk


class StreamHead(msgspec.Struct, frozen=True):
    """The row of one stream, as of one consistent read.

    `incarnation` distinguishes a stream from an earlier, deleted one of the same id. `revision` goes up with every
    change that is not an append, so `(revision, latest_sequence)` orders any two heads of one incarnation in time.
    `floor` is the highest sequence that *retention* has dropped (0 if none): a reader with a cursor below it has missed
    chunks, whereas gaps above it come from rewinds and are legitimate. `final_output` and `error` are JSON strings.
    `fence` only grows; an owner with a smaller one has been replaced.
    """

    stream_id: str
    incarnation: str
    status: StreamStatus
    revision: int
    latest_sequence: int
    floor: int
    first_sequence: int
    total_chunks: int
    final_output: str | None
    error: str | None
    created_at: int
    updated_at: int
    fence: int

    @property
    def moment(self) -> tuple[int, int]:
        """The position of this head in the stream's history; compare only within one incarnation."""
        return (self.revision, self.latest_sequence)


class StreamPage(NamedTuple):
    """Stored chunks after a cursor and the stream's head, from one snapshot."""

    head: StreamHead
    rows: list[StoredText]
