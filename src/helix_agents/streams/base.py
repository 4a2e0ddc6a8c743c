"""StreamManagerBase: implements the whole stream contract on eight backend verbs.

**What a backend supplies.** The verbs below (`VERBS`) and a `Wakeup`. Each verb is one atomic operation; each gets
`now` (epoch milliseconds) from the base and reads no clock of its own. A backend does nothing else: validation,
stamping, batching, retries, replay, resume, tailing, errors and outcomes are implemented in this package.

**What a stream is.** A row (`StreamHead`) and its chunks, each with a sequence and a step. The counter
`latest_sequence` is in the row and only grows, so sequences are never reused. Rules that hold for every verb:

- The chunk with sequence `latest_sequence` is always stored (unless nothing was ever written): retention never drops
  what the same write appends, and a rewind or reset appends a marker last.
- `revision` goes up by one with every status change, rewind and reset, and with nothing else.
- A stream whose `updated_at` is `ttl` or more in the past has expired: every verb but `_open` treats it as missing, and
  its chunks are removed eventually (Redis: key expiry; SQL and memory: purged by `_open` now and then). `_open`
  restores it empty and active, with its incarnation and its counter, `floor` at the counter and a new revision: a
  reader with an earlier cursor continues without a gap, or gets an error. (Redis forgets the counter a tenth of `ttl`
  later.)
- `updated_at` becomes `now` with every write.
- `fence` only grows, and survives rewind, reset and expiry. If a verb is called with a fence and a larger one is
  stored, it changes nothing: `_open` and `_set_status` return the head, which shows it; the others raise
  `StreamFenced`. Otherwise the verb raises the stored fence in the same write; `_append` need not, because `_open`
  already has. A verb called with None neither checks nor changes the fence.

**Retention** happens inside `_append`, in the same atomic write: if more than `max_chunks` chunks are stored (0: no
limit), the oldest are dropped, and so are chunks at the front that are older than `ttl`. `floor` becomes the highest
sequence dropped this way. The count is exact for every reader (`floor` hides dropped chunks); physical removal may lag,
to be cheap. `_rewind` does not change `floor`, `_reset` sets it to 0: the gaps they make are not losses.

**After a verb** the base wakes its own readers (`Hub.wake`) and calls `Wakeup.announce` for the others.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, NoReturn
from weakref import WeakSet

from ..clock import Clock, IdSource, random_id, system_clock
from ..codec import Json, decode, decode_many, encode, ensure_count, ensure_json
from ..errors import (
    InvalidArgument,
    StoreUnavailable,
    StreamFenced,
    StreamNotActive,
)
from ..ids import ensure_id
from ..lifecycle import illegal_transition, may_become
from ..retry import CONFLICT, OUTAGE
from ..types import StreamStatus
from . import loops
from .contract import StoredChunk, StreamInfo, StreamManager, StreamReader
from .hub import PAGE_CHARS, PAGE_ROWS, Hub, page_limit
from .reader import HubReader, ensure_readable
from .records import Append, NewChunk, StoredText, StreamHead, StreamPage, StreamStart
from .wakeup import Wakeup
from .writer import BatchingWriter

DEFAULT_MAX_CHUNKS = 10_000
DEFAULT_TTL_SECONDS = 86_400
PRODUCER_MEMORY_MS = 3_600_000
"""How long a reset stream still recognizes the retry of an earlier append."""
PURGE_EVERY_MS = 600_000
"""How often a manager purges expired streams."""


class StreamManagerBase(StreamManager):
    """Implements replay, resume, tail, end, fail, pause, rewind and reset for any backend."""

    VERBS: ClassVar[tuple[str, ...]] = (
        "_open",
        "_append",
        "_read",
        "_info",
        "_set_status",
        "_rewind",
        "_reset",
        "_delete",
    )
    """The methods a backend implements; wrap them to inject faults."""

    max_chunk_bytes: int | None = None
    """The largest size of a chunk's string as JSON; a larger chunk is rejected before it is buffered."""

    gather_seconds: float = 0.0
    """How long writers collect chunks between two writes, for backends where a write costs more than waiting."""

    def __init__(
        self,
        *,
        max_chunks: int = DEFAULT_MAX_CHUNKS,
        ttl: int | None = DEFAULT_TTL_SECONDS,
        clock: Clock = system_clock,
        ids: IdSource = random_id,
        wakeup: Wakeup | None = None,
        retry_delays_seconds: Sequence[float] = tuple(OUTAGE.delays()),
    ) -> None:
        if max_chunks < 0 or (ttl is not None and ttl < 0):
            raise InvalidArgument(f"max_chunks ({max_chunks}) and ttl ({ttl}) must not be negative; 0 means no limit.")
        self.max_chunks = max_chunks
        self.ttl_seconds = ttl or 0
        self._clock = clock
        self._ids = ids
        self._wakeup = wakeup or Wakeup()
        self._retry_delays_seconds = retry_delays_seconds
        self._writers: WeakSet[BatchingWriter] = WeakSet()
        self.hub = Hub(self._page_for_attached, self._wakeup)

    # -- the verbs

    @abstractmethod
    async def _open(self, stream_id: str, *, incarnation: str, fence: int | None, now: int) -> StreamHead:
        """Create the stream if it does not exist (active, revision 0, no chunks, this incarnation); return its head.

        Restore an expired stream, see above.

        *Idempotent.* Of several concurrent calls one creates it; all return the same incarnation.
        """

    @abstractmethod
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
        """Append the chunks under the next sequences, all or none; return the sequence of the last one.

        `counter` is the number of the last chunk in its producer's own count. In this order, in one atomic write:

        - if the producer has stored this `counter` or a higher one before, change nothing and return the sequence
          stored with it (even if the stream has ended or has a newer owner since then);
        - if the fence is larger than `fence`, raise `StreamFenced`;
        - if the stream is missing or not active, raise `StreamNotActive` with its status or `"deleted"`;
        - else append, remember `counter` and the last sequence for this producer, and apply retention.

        The producer's record survives rewinds and resets for at least an hour.
        """

    @abstractmethod
    async def _read(self, stream_id: str, *, after: int, limit: int, max_chars: int, now: int) -> StreamPage | None:
        """Return the head and the first stored chunks with `sequence > after`, from one snapshot; None without a
        stream.

        At most `limit` chunks, and none after `max_chars` characters are reached, but at least one if one is stored.
        """

    @abstractmethod
    async def _info(self, stream_id: str, *, now: int) -> StreamHead | None:
        """Return the head, or None if there is no such stream."""

    @abstractmethod
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
        """If the current status is in `allowed`, set status, output and error; return the resulting head.

        Otherwise change nothing. Return None if there is no such stream.
        """

    @abstractmethod
    async def _rewind(
        self, stream_id: str, *, step_count: int, marker: NewChunk, fence: int | None, now: int
    ) -> int | None:
        """Drop stored chunks with `step > step_count`, append the marker, in any status; return how many were dropped.

        Return None, and change nothing, if there is no such stream.
        """

    @abstractmethod
    async def _reset(self, stream_id: str, *, marker: NewChunk, fence: int | None, now: int) -> bool:
        """Drop all chunks, append the marker, make the stream active, clear output and error, set `floor` to 0.

        Return False, and change nothing, if there is no such stream.
        """

    @abstractmethod
    async def _delete(self, stream_id: str, *, fence: int | None, now: int) -> None:
        """Remove every trace of the stream: row, chunks, producers, fence. *Idempotent.*"""

    # -- writing

    async def create_writer(
        self, stream_id: str, run_id: str, agent_type: str, *, fence: int | None = None
    ) -> BatchingWriter:
        ensure_id(stream_id, "stream_id")
        ensure_id(run_id, "run_id")
        _ensure_fence(fence)
        ensure_id(agent_type, "agent_type")
        head = await self._open(stream_id, incarnation=self._ids(), fence=fence, now=self._clock())
        _pass_fence(head, fence)
        if head.status != "active":
            raise StreamNotActive(stream_id, head.status)
        return self._writer(stream_id, run_id, agent_type, fence)

    def starting(self, stream_id: str, *, fence: int, seen: StreamInfo | None) -> StreamStart:
        ensure_id(stream_id, "stream_id")
        ensure_count(fence, "fence")
        marker = self._marker("stream_resync", step=0)
        latest = None if seen is None else seen.latest_sequence
        return StreamStart(stream_id, self._ids(), marker, fence, self._clock(), latest)

    def attach_writer(self, stream_id: str, run_id: str, agent_type: str, *, fence: int) -> BatchingWriter:
        return self._writer(stream_id, run_id, agent_type, fence)

    def _writer(self, stream_id: str, run_id: str, agent_type: str, fence: int | None) -> BatchingWriter:
        seen_at = self._clock()

        async def address(producer_id: str, counter: int, chunks: Sequence[NewChunk]) -> Append:
            nonlocal seen_at
            now = self._clock()
            if seen_at <= self._expired_before(now):
                # This writer was idle for so long that the stream may have expired, but its run continues.
                _pass_fence(await self._open(stream_id, incarnation=self._ids(), fence=fence, now=now), fence)
            seen_at = now
            return Append(stream_id, producer_id, counter, chunks, fence, now)

        async def append(producer_id: str, counter: int, chunks: Sequence[NewChunk]) -> int:
            to = await address(producer_id, counter, chunks)
            sequence = await self._append(
                stream_id, producer_id=producer_id, counter=counter, chunks=chunks, fence=fence, now=to.now
            )
            self._changed(stream_id)
            return sequence

        writer = BatchingWriter(
            append,
            address=address,
            stream_id=stream_id,
            run_id=run_id,
            agent_type=agent_type,
            producer_id=self._ids(),
            clock=self._clock,
            retry_delays_seconds=self._retry_delays_seconds,
            gather_seconds=self.gather_seconds,
            max_chunk_bytes=self.max_chunk_bytes,
        )
        self._writers.add(writer)
        return writer

    async def end_stream(self, stream_id: str, final_output: Json = None, *, fence: int | None = None) -> None:
        ensure_json(final_output)
        await self._change_status(stream_id, "ended", final_output=encode(final_output), fence=fence)

    async def fail_stream(self, stream_id: str, error: str, *, fence: int | None = None) -> None:
        await self._change_status(stream_id, "failed", error=encode(str(error)), fence=fence)

    async def pause_stream(self, stream_id: str, *, fence: int | None = None) -> None:
        await self._change_status(stream_id, "paused", fence=fence)

    async def resume_stream(self, stream_id: str, *, fence: int | None = None) -> None:
        await self._change_status(stream_id, "active", fence=fence)

    async def cleanup_to_step(self, stream_id: str, step_count: int, *, fence: int | None = None) -> int:
        ensure_id(stream_id, "stream_id")
        _ensure_fence(fence)
        ensure_count(step_count, "step_count")
        marker = self._marker("stream_rewound", step=step_count, step_count=step_count)
        removed = await self._rewind(stream_id, step_count=step_count, marker=marker, fence=fence, now=self._clock())
        self._changed(stream_id)
        return removed or 0

    async def reset_stream(self, stream_id: str, *, fence: int | None = None) -> None:
        ensure_id(stream_id, "stream_id")
        _ensure_fence(fence)
        await self._reset(stream_id, marker=self._marker("stream_resync", step=0), fence=fence, now=self._clock())
        self._changed(stream_id)

    async def delete_stream(self, stream_id: str, *, fence: int | None = None) -> None:
        ensure_id(stream_id, "stream_id")
        _ensure_fence(fence)
        await self._delete(stream_id, fence=fence, now=self._clock())
        self._changed(stream_id)

    # -- reading

    async def create_reader(self, stream_id: str) -> StreamReader | None:
        ensure_id(stream_id, "stream_id")
        head = await self._head_for_reader(stream_id, 0)
        if head is None or head.status == "failed":
            return None
        return HubReader(self.hub, head, head.floor)

    async def create_resumable_reader(self, stream_id: str, *, from_sequence: int = 0) -> StreamReader | None:
        ensure_id(stream_id, "stream_id")
        ensure_count(from_sequence, "from_sequence")
        head = await self._head_for_reader(stream_id, from_sequence)
        if head is None:
            return None
        ensure_readable(head, from_sequence)
        return HubReader(self.hub, head, from_sequence)

    async def get_stream_info(self, stream_id: str) -> StreamInfo | None:
        ensure_id(stream_id, "stream_id")
        head = await self._info(stream_id, now=self._clock())
        if head is None:
            return None
        return StreamInfo(
            stream_id=head.stream_id,
            status=head.status,
            total_chunks=head.total_chunks,
            first_sequence=head.first_sequence,
            latest_sequence=head.latest_sequence,
            final_output=None if head.final_output is None else decode(head.final_output),
            error=None if head.error is None else decode(head.error),
            created_at=head.created_at,
            updated_at=head.updated_at,
            fence=head.fence,
        )

    async def get_all_chunks(self, stream_id: str) -> list[StoredChunk]:
        return _handed_out(await self._all_rows(stream_id))

    async def get_chunks_from_step(self, stream_id: str, from_step: int) -> list[StoredChunk]:
        ensure_count(from_step, "from_step")
        return _handed_out([row for row in await self._all_rows(stream_id) if row.step >= from_step])

    async def close(self) -> None:
        drains = [writer.draining for writer in self._writers if writer.draining is not None]
        await loops.wait_for(drains)
        await self.hub.close()

    # -- shared steps

    async def start_refused(self, start: StreamStart) -> NoReturn:
        """Raise the reason why another store's write could not start a stream."""
        head = await self._info(start.stream_id, now=start.now)
        if head is not None:
            _pass_fence(head, start.fence)
        raise StreamNotActive(start.stream_id, "deleted" if head is None else head.status)

    def changed(self, stream_id: str) -> None:
        """Wake the readers of a stream after another store's write has appended to it."""
        self._changed(stream_id)

    def _changed(self, stream_id: str) -> None:
        self.hub.wake(stream_id)
        self._wakeup.announce(stream_id)

    def _expired_before(self, now: int) -> int:
        """Return the time of the last write at or before which a stream has expired; -1 if streams never expire."""
        return now - self.ttl_seconds * 1000 if self.ttl_seconds else -1

    async def _page(self, stream_id: str, after: int, limit: int, max_chars: int) -> StreamPage | None:
        return await self._read(stream_id, after=after, limit=limit, max_chars=max_chars, now=self._clock())

    async def _page_for_attached(self, stream_id: str, after: int, limit: int, max_chars: int) -> StreamPage | None:
        """Read a page for attached readers: for them the stream does not expire after `ttl`, because the run may
        continue."""
        return await self._read(stream_id, after=after, limit=limit, max_chars=max_chars, now=0)

    async def _head_for_reader(self, stream_id: str, after: int) -> StreamHead | None:
        """Return the head for a new reader; for the first reader of a stream, also prefetch its first page."""
        await self.hub.start()
        if not self.hub.wants_page(stream_id):
            return await self._info(stream_id, now=self._clock())
        page = await self._page(stream_id, after, page_limit(after), PAGE_CHARS)
        if page is None:
            return None
        self.hub.keep_page(stream_id, max(after, page.head.floor), page)
        return page.head

    def _marker(self, kind: str, *, step: int, **members: Json) -> NewChunk:
        return NewChunk(step, encode({"type": kind, "timestamp": self._clock(), "step": step, **members}))

    async def _change_status(
        self,
        stream_id: str,
        status: StreamStatus,
        *,
        final_output: str | None = None,
        error: str | None = None,
        fence: int | None = None,
    ) -> None:
        ensure_id(stream_id, "stream_id")
        _ensure_fence(fence)
        # Exclude the status itself: ending a stream again changes nothing.
        allowed = tuple(each for each in may_become("stream", status) if each != status)
        head = await self._set_status(
            stream_id, status, allowed=allowed, final_output=final_output, error=error, fence=fence, now=self._clock()
        )
        if head is not None:
            _pass_fence(head, fence)
        if head is not None and head.status != status:
            raise illegal_transition("stream", stream_id, head.status, status)
        self._changed(stream_id)

    async def _all_rows(self, stream_id: str) -> list[StoredText]:
        """Return every stored chunk, read page by page; start over after a rewind or reset in between."""
        ensure_id(stream_id, "stream_id")
        rows: list[StoredText] = []
        seen: StreamHead | None = None
        restarts = 0
        while (
            page := await self._page(stream_id, rows[-1].sequence if rows else 0, PAGE_ROWS, PAGE_CHARS)
        ) is not None:
            head = page.head
            if seen is not None and (seen.incarnation, seen.revision) != (head.incarnation, head.revision):
                rows, seen = [], None
                restarts += 1
                if restarts > CONFLICT.tries:
                    raise StoreUnavailable(f"Stream {stream_id!r} is rewound faster than it can be read: try again.")
                continue
            seen = head
            rows += page.rows
            if not page.rows or rows[-1].sequence >= head.latest_sequence:
                # Retention may have dropped more while we were reading.
                return [row for row in rows if row.sequence > head.floor]
        return []


def _ensure_fence(fence: int | None) -> None:
    if fence is not None:
        ensure_count(fence, "fence")


def _pass_fence(head: StreamHead, fence: int | None) -> None:
    if fence is not None and head.fence > fence:
        raise StreamFenced(head.stream_id, fence, head.fence)


def _handed_out(rows: list[StoredText]) -> list[StoredChunk]:
    chunks = decode_many([row.text for row in rows])
    return [StoredChunk(row.sequence, chunk) for row, chunk in zip(rows, chunks, strict=True)]
