"""The reader: a cursor that moves from history into the live tail. Replay, resume and live reading share one path.

The position of the cursor decides each read: before the tail's buffer, it reads a page of history; inside the buffer,
it takes rows from there; at the end of a stream that is no longer active, it is done; otherwise it waits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Self, TypeVar

from ..chunks import Chunk
from ..codec import decode
from ..errors import StreamCursorAhead, StreamFailed, StreamTruncated
from .contract import StoredChunk, StreamOutcome, StreamReader
from .deadline import Deadline
from .hub import Hub
from .records import StoredText, StreamHead, fresh_chunks
from .tail import Tail

DELETED = StreamOutcome("ended", error="The stream was deleted.")


def ensure_readable(head: StreamHead, from_sequence: int) -> None:
    """Raise `StreamCursorAhead` or `StreamTruncated` unless the chunks after a position can be read."""
    if from_sequence > head.latest_sequence:
        raise StreamCursorAhead(head.stream_id, from_sequence, head.latest_sequence)
    if from_sequence < head.floor:
        raise StreamTruncated(head.stream_id, head.first_sequence, from_sequence)


def outcome_of(head: StreamHead) -> StreamOutcome:
    """Return the outcome of a stream that is no longer active."""
    output = None if head.final_output is None else decode(head.final_output)
    return StreamOutcome(head.status, output, None if head.error is None else decode(head.error))


class HubReader(StreamReader):
    """Reads one stream through the hub. `head` is the head with which the manager created the reader."""

    def __init__(self, hub: Hub, head: StreamHead, cursor: int) -> None:
        self._hub = hub
        self._head = head
        self._cursor = cursor
        self._outcome: StreamOutcome | None = None
        self._tail: Tail | None = None
        self._waiter: asyncio.Future[bool | None] | None = None
        self._deadline = Deadline()
        self._closed = False
        self._passed: tuple[int, int] | None = None  # the end or pause that `go_on` reads past

    @property
    def current_sequence(self) -> int:
        return self._cursor

    @property
    def outcome(self) -> StreamOutcome | None:
        return self._outcome

    def __aiter__(self) -> AsyncIterator[Chunk]:
        return _Iteration(self, lambda sequence, chunk: chunk)

    def stored(self) -> AsyncIterator[StoredChunk]:
        return _Iteration(self, StoredChunk)

    def __del__(self) -> None:
        self._detach()  # also releases the tail if a caller breaks out of a loop without closing

    async def read(self, *, timeout_seconds: float | None = None) -> list[StoredText]:
        try:
            rows = await self._next_rows(timeout_seconds)
        except StreamFailed:
            return []  # the outcome has the error
        if rows:
            self._cursor = rows[-1].sequence
        return rows

    def go_on(self) -> None:
        self._outcome = None
        self._passed = None if self._tail is None else self._tail.head.moment

    async def close(self) -> None:
        self._closed = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        self._detach()

    def _detach(self) -> None:
        tail, self._tail = self._tail, None
        self._deadline.cancel()
        if tail is not None:
            self._hub.detach(tail)

    async def _next_rows(self, timeout_seconds: float | None = None) -> list[StoredText]:
        """Return the next few rows; none if the stream ended, the reader was closed, or the timeout has passed."""
        # Computed once: the tail may wake this reader many times with nothing new for it.
        deadline = None if timeout_seconds is None else asyncio.get_running_loop().time() + timeout_seconds
        while not self._closed and self._outcome is None:
            tail = self._tail
            if tail is None:
                tail = self._tail = self._hub.attach(self._head, self._cursor)
            if tail.error is not None:
                raise tail.error
            if self._cursor < tail.start:
                rows = await self._history(tail)
            else:
                rows = tail.take(self._cursor)
            if rows:
                return rows
            if tail.gone:
                self._outcome = DELETED
            elif self._cursor < tail.start or self._finished(tail):
                continue
            elif not await self._change(tail, deadline):
                break
        return []

    async def _change(self, tail: Tail, deadline: float | None) -> bool:
        """Wait for a change of the tail or for `close`; return False on timeout."""
        if deadline is not None and asyncio.get_running_loop().time() >= deadline:
            return False
        self._waiter = waiter = tail.waiter()
        if deadline is not None:
            # A timer on the one future, not a task around it: a process may hold ten thousand waiting readers.
            self._deadline.start(waiter, deadline)
        try:
            return (await waiter) is None
        finally:
            self._deadline.end()
            tail.forget(waiter)
            self._waiter = None

    async def _history(self, tail: Tail) -> list[StoredText]:
        page = await self._hub.history(tail.head, self._cursor)
        if page is None:
            self._outcome = DELETED
            return []
        if page.head.floor > self._cursor:
            raise StreamTruncated(self._head.stream_id, page.head.first_sequence, self._cursor)
        if not page.rows:
            self._cursor = max(self._cursor, tail.start)  # there is only a gap before the tail
        return page.rows

    def _finished(self, tail: Tail) -> bool:
        head = tail.head
        # An older head than the one this reader was created with may still be "paused" after a resume.
        if head.status == "active" or self._cursor < head.latest_sequence or not tail.knows(self._head):
            return False
        if head.moment == self._passed:
            return False
        self._outcome = outcome_of(head)
        if head.status == "failed" and self._head.status != "failed":
            raise StreamFailed(head.stream_id, self._outcome.error or "")
        return True


T = TypeVar("T")


class _Iteration(AsyncIterator[T]):
    """Iterates over the chunks of a reader. Not a generator: a generator ends when it is canceled during a wait,
    and `wait_for(anext(chunks), 15)` is how callers write heartbeats."""

    def __init__(self, reader: HubReader, made: Callable[[int, Chunk], T]) -> None:
        self._reader = reader
        self._made = made
        self._fetched: deque[tuple[StoredText, Chunk]] = deque()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        reader = self._reader
        if reader._closed:
            self._fetched.clear()
        elif not self._fetched:
            try:
                rows = await reader._next_rows()
            except Exception:
                reader._detach()
                raise
            self._fetched.extend(zip(rows, fresh_chunks(rows), strict=True))
        if not self._fetched:
            reader._detach()
            raise StopAsyncIteration
        row, chunk = self._fetched.popleft()
        reader._cursor = row.sequence
        return self._made(row.sequence, chunk)

    async def aclose(self) -> None:
        """Drop fetched chunks; the reader continues from here."""
        self._fetched.clear()
        self._reader._detach()
