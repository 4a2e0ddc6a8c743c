"""Streams in dictionaries: the readable reference implementation of the verbs, for tests and small programs.

No verb waits for anything, so each is atomic by itself. Several managers may share one `InMemoryStreams`, as several
processes would share a server.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from ...clock import Clock, IdSource, random_id, system_clock
from ...errors import StreamFenced, StreamNotActive
from ...streams.base import (
    DEFAULT_MAX_CHUNKS,
    DEFAULT_TTL_SECONDS,
    PRODUCER_MEMORY_MS,
    PURGE_EVERY_MS,
    StreamManagerBase,
)
from ...streams.records import Append, NewChunk, StoredText, StreamHead, StreamPage, StreamStart
from ...streams.wakeup import Wake, Wakeup
from ...types import StreamStatus

_sequence = attrgetter("sequence")


@dataclass
class Producer:
    """What a stream remembers about one writer, to recognize a retry."""

    counter: int
    sequence: int
    updated_at: int


@dataclass
class InMemoryStream:
    """One stream: the fields of its head, and its stored chunks in order."""

    stream_id: str
    incarnation: str
    created_at: int
    updated_at: int
    status: StreamStatus = "active"
    revision: int = 0
    latest_sequence: int = 0
    floor: int = 0
    final_output: str | None = None
    error: str | None = None
    fence: int = 0
    rows: list[StoredText] = field(default_factory=list)
    written_at: list[int] = field(default_factory=list)
    skip: int = 0  # rows at the front that retention has dropped but that still take up room
    producers: dict[str, Producer] = field(default_factory=dict)

    def head(self) -> StreamHead:
        kept = len(self.rows) - self.skip
        return StreamHead(
            stream_id=self.stream_id,
            incarnation=self.incarnation,
            status=self.status,
            revision=self.revision,
            latest_sequence=self.latest_sequence,
            floor=self.floor,
            first_sequence=self.rows[self.skip].sequence if kept else self.latest_sequence + 1,
            total_chunks=kept,
            final_output=self.final_output,
            error=self.error,
            created_at=self.created_at,
            updated_at=self.updated_at,
            fence=self.fence,
        )

    def passes(self, fence: int | None) -> bool:
        """Return whether a caller with this fence may change the stream; record a higher fence."""
        if fence is not None and fence < self.fence:
            return False
        self.fence = self.fence if fence is None else fence
        return True

    def pass_fence(self, fence: int | None) -> None:
        """Reject a caller whose fence is too small."""
        if fence is not None and not self.passes(fence):
            raise StreamFenced(self.stream_id, fence, self.fence)

    def add(self, chunks: Sequence[NewChunk], now: int) -> int:
        first = self.latest_sequence + 1
        self.rows += [
            StoredText(first + index, chunk.step, chunk.text, chunk.chunk) for index, chunk in enumerate(chunks)
        ]
        self.written_at += [now] * len(chunks)
        self.latest_sequence += len(chunks)
        self.updated_at = now
        return self.latest_sequence

    def retain(self, max_chunks: int, expired_before: int, appended: int) -> None:
        """Drop the oldest chunks: those that are too many or too old, but none that were just appended."""
        last = len(self.rows) - appended
        skip = self.skip
        if max_chunks:
            skip = max(skip, len(self.rows) - max_chunks)
        while skip < last and self.written_at[skip] <= expired_before:
            skip += 1
        if skip == self.skip:
            return
        self.floor = self.rows[skip - 1].sequence
        self.skip = skip
        if skip > len(self.rows) // 4:  # a large part at a time, so that the cost per chunk stays constant
            del self.rows[:skip]
            del self.written_at[:skip]
            self.skip = 0

    def keep_only(self, most_step: int | None) -> int:
        """Drop rows with a higher step (None: all of them) without moving the floor; return how many."""
        before = len(self.rows) - self.skip
        kept = [
            (row, at)
            for row, at in zip(self.rows[self.skip :], self.written_at[self.skip :], strict=True)
            if most_step is not None and row.step <= most_step
        ]
        self.rows = [row for row, _ in kept]
        self.written_at = [at for _, at in kept]
        self.skip = 0
        self.revision += 1
        return before - len(kept)

    def expire(self) -> None:
        """Drop everything but the counter."""
        self.rows, self.written_at, self.producers = [], [], {}
        self.skip = 0
        self.floor = self.latest_sequence

    def revive(self, now: int) -> None:
        """Restart after an expiry, as after a reset; sequences continue."""
        self.expire()
        self.status, self.final_output, self.error = "active", None, None
        self.revision += 1
        self.created_at = self.updated_at = now


class InMemoryStreams(Wakeup):
    """The data, and the wake-up source of every manager that uses it."""

    def __init__(self) -> None:
        self.streams: dict[str, InMemoryStream] = {}
        self.purged_at = 0
        self._listeners: list[Wake] = []

    def announce(self, stream_id: str) -> None:
        for wake in self._listeners:
            wake(stream_id)

    async def start(self, wake: Wake) -> None:
        self._listeners.append(wake)

    def stop(self, wake: Wake) -> None:
        """Stop notifying that manager."""
        if wake in self._listeners:
            self._listeners.remove(wake)


class InMemoryStreamManager(StreamManagerBase):
    """Streams that live as long as this process. Pass the `data` of another manager to share its streams."""

    def __init__(
        self,
        *,
        max_chunks: int = DEFAULT_MAX_CHUNKS,
        ttl: int | None = DEFAULT_TTL_SECONDS,
        clock: Clock = system_clock,
        ids: IdSource = random_id,
        data: InMemoryStreams | None = None,
    ) -> None:
        self.data = data if data is not None else InMemoryStreams()
        super().__init__(max_chunks=max_chunks, ttl=ttl, clock=clock, ids=ids, wakeup=self.data)

    async def close(self) -> None:
        await super().close()
        self.data.stop(self.hub.wake)

    def _find(self, stream_id: str, now: int) -> InMemoryStream | None:
        stream = self.data.streams.get(stream_id)
        return stream if stream is not None and stream.updated_at > self._expired_before(now) else None

    async def _open(self, stream_id: str, *, incarnation: str, fence: int | None, now: int) -> StreamHead:
        self._purge(now)
        stream = self.data.streams.get(stream_id)
        if stream is None:
            stream = InMemoryStream(stream_id, incarnation, created_at=now, updated_at=now)
            self.data.streams[stream_id] = stream
        if stream.passes(fence) and self._find(stream_id, now) is None:
            stream.revive(now)
        return stream.head()

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
        return self.append_now(Append(stream_id, producer_id, counter, chunks, fence, now))

    def append_now(self, append: Append) -> int:
        """Append without waiting, so that another store's write can carry it; return the last chunk's sequence."""
        stream = self._find(append.stream_id, append.now)
        if stream is None:
            raise StreamNotActive(append.stream_id, "deleted")
        producer = stream.producers.get(append.producer_id)
        if producer is not None and producer.counter >= append.counter:
            return producer.sequence
        stream.pass_fence(append.fence)
        if stream.status != "active":
            raise StreamNotActive(append.stream_id, stream.status)
        sequence = stream.add(append.chunks, append.now)
        stream.producers[append.producer_id] = Producer(append.counter, sequence, append.now)
        stream.retain(self.max_chunks, self._expired_before(append.now), len(append.chunks))
        if append.ends is not None:
            stream.status, stream.final_output, stream.error = append.ends
            stream.revision += 1
        return sequence

    async def _read(self, stream_id: str, *, after: int, limit: int, max_chars: int, now: int) -> StreamPage | None:
        stream = self._find(stream_id, now)
        if stream is None:
            return None
        start = bisect_right(stream.rows, after, lo=stream.skip, key=_sequence)
        rows = stream.rows[start : start + limit]
        chars = 0
        for index, row in enumerate(rows):
            chars += len(row.text)
            if chars >= max_chars:
                rows = rows[: index + 1]
                break
        return StreamPage(stream.head(), rows)

    async def _info(self, stream_id: str, *, now: int) -> StreamHead | None:
        stream = self._find(stream_id, now)
        return None if stream is None else stream.head()

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
        stream = self._find(stream_id, now)
        if stream is None:
            return None
        if stream.passes(fence) and stream.status in allowed:
            stream.status, stream.final_output, stream.error = status, final_output, error
            stream.revision += 1
            stream.updated_at = now
        return stream.head()

    async def _rewind(
        self, stream_id: str, *, step_count: int, marker: NewChunk, fence: int | None, now: int
    ) -> int | None:
        stream = self._find(stream_id, now)
        if stream is None:
            return None
        stream.pass_fence(fence)
        removed = stream.keep_only(step_count)
        stream.add([marker], now)
        return removed

    def start_now(self, start: StreamStart) -> None:
        """Start the stream of a new turn without waiting, so that another store's write can carry it."""
        self._purge(start.now)
        stream_id, now = start.stream_id, start.now
        stream = self.data.streams.get(stream_id)
        if stream is not None and stream.fence > start.fence:
            raise StreamFenced(stream_id, start.fence, stream.fence)
        latest = None if stream is None else stream.latest_sequence
        if latest != start.latest_sequence or stream is not self._find(stream_id, now):
            raise StreamNotActive(stream_id, "deleted" if stream is None else stream.status)
        if stream is None:
            stream = InMemoryStream(stream_id, start.incarnation, created_at=now, updated_at=now)
            self.data.streams[stream_id] = stream
        else:
            self._empty(stream, start.marker, now)
        stream.pass_fence(start.fence)

    async def _reset(self, stream_id: str, *, marker: NewChunk, fence: int | None, now: int) -> bool:
        stream = self._find(stream_id, now)
        if stream is None:
            return False
        stream.pass_fence(fence)
        self._empty(stream, marker, now)
        return True

    def _empty(self, stream: InMemoryStream, marker: NewChunk, now: int) -> None:
        stream.keep_only(None)
        stream.status, stream.final_output, stream.error, stream.floor = "active", None, None, 0
        stream.producers = {
            each: seen for each, seen in stream.producers.items() if seen.updated_at > now - PRODUCER_MEMORY_MS
        }
        stream.add([marker], now)

    async def _delete(self, stream_id: str, *, fence: int | None, now: int) -> None:
        if (stream := self._find(stream_id, now)) is not None:
            stream.pass_fence(fence)
        self.data.streams.pop(stream_id, None)

    def _purge(self, now: int) -> None:
        """Delete expired streams now and then; until then `_find` hides them."""
        if now - self.data.purged_at < PURGE_EVERY_MS:
            return
        self.data.purged_at = now
        expired_before = self._expired_before(now)
        for stream in self.data.streams.values():
            if stream.updated_at <= expired_before:
                stream.expire()
