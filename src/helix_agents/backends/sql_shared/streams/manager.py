"""Streams as rows: the verbs of `StreamManagerBase` as atomic batches of named statements.

Knows SQL and the shape of a row, nothing of readers or of a technology. How other processes learn of a new row is up to
the wake-up source that is passed in: a socket beside the SQLite file, NOTIFY, polling. The row of the stream is written
first in every batch: that takes its lock, so what later statements read cannot change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from operator import attrgetter

from ....clock import Clock, IdSource, random_id, system_clock
from ....codec import decode, encode
from ....errors import InvalidArgument, StoreError, StreamFenced, StreamNotActive
from ....streams.base import (
    DEFAULT_MAX_CHUNKS,
    DEFAULT_TTL_SECONDS,
    PRODUCER_MEMORY_MS,
    PURGE_EVERY_MS,
    StreamManagerBase,
)
from ....streams.records import Append, NewChunk, StoredText, StreamHead, StreamPage, StreamStart
from ....streams.wakeup import Wakeup
from ....types import StreamStatus
from ..driver import BatchRefused, Row, SqlDriver, Statement
from ..queries import Queries
from .planned_append import AppendPlan

TRIM_AT_LEAST = 256


class SqlStreamManager(StreamManagerBase):
    """StreamManager on a migrated database that the caller opened, and closes."""

    def __init__(
        self,
        driver: SqlDriver,
        *,
        prefix: str = "",
        max_chunks: int = DEFAULT_MAX_CHUNKS,
        ttl: int | None = DEFAULT_TTL_SECONDS,
        clock: Clock = system_clock,
        ids: IdSource = random_id,
        wakeup: Wakeup | None = None,
    ) -> None:
        super().__init__(max_chunks=max_chunks, ttl=ttl, clock=clock, ids=ids, wakeup=wakeup)
        self._driver = driver
        self._queries = Queries("streams/stream_queries", driver.dialect, prefix)
        self.max_chunk_bytes = driver.max_parameter_bytes
        self._purged_at = 0

    async def _open(self, stream_id: str, *, incarnation: str, fence: int | None, now: int) -> StreamHead:
        head = await self._info(stream_id, now=now)
        if head is not None and (fence is None or head.fence >= fence):
            return head
        query, expired_before = self._queries, self._expired_before(now)
        answers = await self._home(stream_id).batch(
            [
                *self._expiry(stream_id, expired_before),
                query("revive", stream_id, expired_before, now, fence),
                query("create", stream_id, incarnation, now),
                *self._raise_fence(stream_id, fence),
                query("head", stream_id, -1),
            ]
        )
        await self._purge(now)
        return _head(answers[-1][0])

    async def _append(
        self,
        stream_id: str,
        *,
        producer_id: str,
        counter: int,
        chunks: Sequence[NewChunk],
        fence: int | None,
        now: int,
    ) -> int:
        append = Append(stream_id, producer_id, counter, chunks, fence, now)
        try:
            answers = await self._home(stream_id).batch(self.appending(append))
        except BatchRefused as refused:
            return await self.refused(append, refused)
        return await self.appended(append, answers)

    def appending(self, append: Append) -> list[Statement]:
        """Return the statements of an append, for any transaction."""
        query, stream_id, now = self._queries, append.stream_id, append.now
        expired_before = self._expired_before(now)
        longest = max([len(chunk.text) for chunk in append.chunks])
        statements = [
            query("advance", stream_id, len(append.chunks), longest, now, expired_before, append.fence),
            query("refuse_repeated", stream_id, append.producer_id, append.counter),
            query("refuse_inactive", stream_id, expired_before, append.fence),
            *self._inserts(stream_id, append.chunks, now),
            query("remember_producer", stream_id, append.producer_id, append.counter, now),
            *self._ending(append),
        ]
        if self.max_chunks:
            statements.append(query("keep_newest", stream_id, self.max_chunks))
        if self.ttl_seconds:
            statements.append(query("keep_fresh", stream_id, expired_before))
        return statements

    def _ending(self, append: Append) -> list[Statement]:
        """Return the end of the stream, if these are its last chunks."""
        if append.ends is None:
            return []
        status, output, error = append.ends
        about = output, error, append.now, self._expired_before(append.now), append.fence
        return [self._queries("set_status", append.stream_id, status, "active", "", "", *about)]

    def planned(self, append: Append) -> AppendPlan:
        """Return an append for a database that can read inside a transaction."""
        expired_before = self._expired_before(append.now)
        segments = [
            (step, len(texts), array)
            for step, group in groupby(append.chunks, key=attrgetter("step"))
            for texts, array in self._arrays([chunk.text for chunk in group])
        ]
        return AppendPlan(
            append,
            max([len(chunk.text) for chunk in append.chunks]),
            segments,
            expired_before,
            self.max_chunks,
            self._queries("keep_newest", append.stream_id, self.max_chunks),
            self._queries("keep_fresh", append.stream_id, expired_before),
            self._ending(append),
        )

    async def trim(self, stream_id: str, floors: list[Row]) -> None:
        """Remove rows that retention has hidden, if it is worth the cost."""
        await self._trim(stream_id, floors)

    async def appended(self, append: Append, answers: list[list[Row]]) -> int:
        """Clean up after these statements; return the sequence of the last chunk."""
        await self._trim(append.stream_id, answers[-2] + answers[-1] if self.ttl_seconds or self.max_chunks else [])
        return int(answers[0][0][0])

    async def refused(self, append: Append, refused: BatchRefused) -> int:
        """Return the sequence of an append that was stored before; otherwise raise why it was rejected."""
        return await self._refused(append.stream_id, append.producer_id, refused, append.fence, append.now)

    @property
    def driver(self) -> SqlDriver:
        """The driver of the streams: a state store on the same driver can carry chunks."""
        return self._driver

    async def _read(self, stream_id: str, *, after: int, limit: int, max_chars: int, now: int) -> StreamPage | None:
        statements = [
            self._queries("head", stream_id, self._expired_before(now)),
            self._queries("small_chunks", stream_id, after, limit, max_chars),
            self._queries("large_chunks", stream_id, after, limit, max_chars),
        ]
        heads, small, large = await self._home(stream_id).batch(statements, read_only=True)
        if not heads:
            return None
        head = _head(heads[0])
        return StreamPage(head, self._chunks(small or large, max(after, head.floor), limit, max_chars))

    def _chunks(self, rows: list[Row], after: int, limit: int, max_chars: int) -> list[StoredText]:
        """Return the chunks of `small_chunks` or `large_chunks`; here a row holds all chunks of one append."""
        found: list[StoredText] = []
        chars = 0
        for first_sequence, step, array in rows:
            for sequence, text in enumerate(decode(array), start=first_sequence):
                if sequence <= after:
                    continue
                if found and (chars >= max_chars or len(found) >= limit):
                    return found
                found.append(StoredText(sequence, step, text))
                chars += len(text)
        return found

    async def _info(self, stream_id: str, *, now: int) -> StreamHead | None:
        statement = self._queries("head", stream_id, self._expired_before(now))
        rows = (await self._home(stream_id).batch([statement], read_only=True))[0]
        return _head(rows[0]) if rows else None

    async def _set_status(
        self,
        stream_id: str,
        status: StreamStatus,
        *,
        allowed: tuple[str, ...],
        final_output: str | None,
        error: str | None,
        fence: int | None,
        now: int,
    ) -> StreamHead | None:
        expired_before = self._expired_before(now)
        one, two, three = (*allowed, "", "", "")[:3]
        words = (status, one, two, three, final_output, error, now, expired_before, fence)
        answers = await self._home(stream_id).batch(
            [
                self._queries("set_status", stream_id, *words),
                *self._raise_fence(stream_id, fence),
                self._queries("head", stream_id, expired_before),
            ]
        )
        return _head(answers[-1][0]) if answers[-1] else None

    async def _rewind(
        self, stream_id: str, *, step_count: int, marker: NewChunk, fence: int | None, now: int
    ) -> int | None:
        query = self._queries
        statements = [
            *self._begin_rewind(stream_id, marker, fence, now),
            query("count_beyond_step", stream_id, step_count),
            query("drop_beyond_step", stream_id, step_count),
            *self._inserts(stream_id, [marker], now),
            query("recount", stream_id),
        ]
        try:
            answers = await self._home(stream_id).batch(statements)
        except BatchRefused as refused:
            await self._ensure_not_fenced(stream_id, refused, fence, now)
            return None
        return int(answers[2][0][0])

    def starting_statements(self, start: StreamStart) -> list[Statement]:
        """Return the statements that start the stream of a new turn, for any transaction."""
        query, stream_id = self._queries, start.stream_id
        if start.latest_sequence is None:
            return [
                query("create_owned", stream_id, start.incarnation, start.now, start.fence),
                query("refuse_other", stream_id, start.incarnation),
            ]
        return [
            *self._emptying(stream_id, start.marker, start.fence, start.now),
            query("refuse_moved", stream_id, start.sequence),
        ]

    async def started(self, start: StreamStart) -> None:
        """Clean up after these statements."""
        await self._purge(start.now)

    async def _reset(self, stream_id: str, *, marker: NewChunk, fence: int | None, now: int) -> bool:
        try:
            await self._home(stream_id).batch(self._emptying(stream_id, marker, fence, now))
        except BatchRefused as refused:
            await self._ensure_not_fenced(stream_id, refused, fence, now)
            return False
        return True

    async def _delete(self, stream_id: str, *, fence: int | None, now: int) -> None:
        try:
            await self._home(stream_id).batch(self._deletion(stream_id, fence))
        except BatchRefused as refused:
            await self._ensure_not_fenced(stream_id, refused, fence, now)

    def _home(self, stream_id: str) -> SqlDriver:
        """Return the database that holds the rows of a stream, for backends with one database per stream."""
        return self._driver

    # -- parts of the batches

    def _begin_rewind(self, stream_id: str, marker: NewChunk, fence: int | None, now: int) -> list[Statement]:
        expired_before = self._expired_before(now)
        return [
            self._queries("begin_rewind", stream_id, len(marker.text), now, expired_before, fence),
            self._queries("refuse_missing", stream_id, expired_before, fence),
        ]

    def _emptying(self, stream_id: str, marker: NewChunk, fence: int | None, now: int) -> list[Statement]:
        query = self._queries
        return [
            *self._begin_rewind(stream_id, marker, fence, now),
            query("delete_chunks", stream_id),
            query("clear", stream_id),
            query("forget_producers", stream_id, now - PRODUCER_MEMORY_MS),
            *self._inserts(stream_id, [marker], now),
            query("recount", stream_id),
        ]

    def _raise_fence(self, stream_id: str, fence: int | None) -> list[Statement]:
        return [] if fence is None else [self._queries("raise_fence", stream_id, fence)]

    def _deletion(self, stream_id: str, fence: int | None) -> list[Statement]:
        query = self._queries
        return [
            query("delete_stream", stream_id, fence),
            *([] if fence is None else [query("refuse_kept", stream_id)]),
            query("delete_chunks", stream_id),
            query("delete_producers", stream_id),
        ]

    def _expiry(self, stream_id: str, expired_before: int) -> list[Statement]:
        """Return the statement that empties the stream if it has expired. Its row stays, so that sequences are not
        reused."""
        names = ("lock_expired", "drop_expired_chunks", "drop_expired_producers", "empty_expired")
        return [self._queries(name, stream_id, expired_before) for name in names]

    def _inserts(self, stream_id: str, chunks: Sequence[NewChunk], now: int) -> Iterator[Statement]:
        """Yield one statement for each run of chunks of the same step, split where a parameter would be too long."""
        below_latest = len(chunks) - 1
        for step, group in groupby(chunks, key=attrgetter("step")):
            for texts, array in self._arrays([chunk.text for chunk in group]):
                yield self._queries("insert_chunks", stream_id, below_latest, step, now, array)
                below_latest -= len(texts)

    def _arrays(self, texts: list[str]) -> Iterator[tuple[list[str], str]]:
        array = encode(texts)
        limit = self._driver.max_parameter_bytes
        # A character takes at most four bytes: only near the limit is it worth counting them.
        if len(array) * 4 <= limit or len(array.encode()) <= limit:
            yield texts, array
        elif len(texts) == 1:
            raise InvalidArgument(
                f"A chunk of {len(texts[0])} characters is too large for this database (at most {limit} bytes)."
            )
        else:
            middle = len(texts) // 2
            yield from self._arrays(texts[:middle])
            yield from self._arrays(texts[middle:])

    async def _ensure_not_fenced(
        self, stream_id: str, refused: BatchRefused, fence: int | None, now: int
    ) -> StreamHead | None:
        """Raise `StreamFenced` if the fence undid the batch: it never decreases, so it can be checked afterwards."""
        head = await self._info(stream_id, now=now)
        if head is not None and fence is not None and head.fence > fence:
            raise StreamFenced(stream_id, fence, head.fence) from refused
        return head

    async def _refused(
        self, stream_id: str, producer_id: str, refused: BatchRefused, fence: int | None, now: int
    ) -> int:
        if refused.reason == "producer":
            rows = (
                await self._home(stream_id).batch([self._queries("repeated", stream_id, producer_id)], read_only=True)
            )[0]
            if rows:
                return int(rows[0][0])
        head = await self._ensure_not_fenced(stream_id, refused, fence, now)
        raise StreamNotActive(stream_id, head.status if head is not None else "deleted") from refused

    async def _trim(self, stream_id: str, floors: list[Row]) -> None:
        """Remove hidden rows, many at a time. Optional: the floor already hides them."""
        if not floors:
            return
        floor, trimmed_to = floors[-1]
        if floor - trimmed_to < max(TRIM_AT_LEAST, self.max_chunks // 8):
            return
        with suppress(StoreError):  # the next append tries again
            await self._home(stream_id).batch(
                [self._queries("trim_chunks", stream_id), self._queries("trimmed", stream_id)]
            )

    async def _purge(self, now: int) -> None:
        """Empty some expired streams now and then; until then every statement ignores them."""
        if not self.ttl_seconds or now - self._purged_at < PURGE_EVERY_MS:
            return
        self._purged_at = now
        expired_before = self._expired_before(now)
        rows = (await self._driver.batch([self._queries("expired", expired_before)], read_only=True))[0]
        for (stream_id,) in rows:
            await self._home(stream_id).batch(self._expiry(stream_id, expired_before))


def _head(row: Row) -> StreamHead:
    return StreamHead(*row)
