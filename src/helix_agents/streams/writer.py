"""The writer: stamps, buffers, batches and retries chunks. It uses one verb, `append`.

While no write is in flight, a chunk is sent immediately: after a few turns of the event loop, so that chunks which
arrived together share a write, or leave with another store's (`lend`). While a write is in flight, the next chunks are
collected. So a slow producer adds no delay and a fast one pays for one write per batch. Where every write costs money
(`gather_seconds`), the first chunk after a pause is still sent immediately; later ones are collected for that time.
A chunk may `linger`: it waits a moment for others to share its write. Every batch carries the writer's id and the
number of its last chunk; a batch is retried unchanged, so the backend can tell a retry from a new batch.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from ..chunks import Chunk, ensure_chunk
from ..clock import Clock
from ..codec import encode, ensure_count
from ..errors import InvalidArgument, StoreUnavailable, StreamError
from ..retry import OUTAGE
from .contract import StreamWriter
from .records import Append, NewChunk

Store = Callable[[str, int, Sequence[NewChunk]], Awaitable[int]]
"""(producer id, number of the last chunk, chunks) -> sequence of the last chunk."""

Address = Callable[[str, int, Sequence[NewChunk]], Awaitable[Append]]
"""Makes an `Append` from the same arguments, for another store's write to carry."""

Guard = Callable[[], Awaitable[None]]
"""Raises if the producer has lost the right to write."""

MAX_BUFFERED_CHUNKS = 512
MAX_BUFFERED_CHARS = 4_000_000
MAX_BATCH_CHUNKS = 512
MAX_BATCH_CHARS = 1_000_000

TURNS_BEFORE_SENDING = 3
"""How many turns of the event loop a chunk waits. A model call that is over takes two until its reply is stored."""

_ATOMS = frozenset({str, int, bool, type(None)})


def _plainly_flat(chunk: Chunk) -> bool:
    """Return whether this is a dict of atoms, which needs no further check. Nearly all chunks are."""
    if chunk.__class__ is not dict or chunk.get("type").__class__ is not str:
        return False
    for key, value in chunk.items():  # noqa: SIM110  # a generator would cost twice as much, for every chunk
        if key.__class__ is not str or value.__class__ not in _ATOMS:
            return False
    return True


class BatchingWriter(StreamWriter):
    """One producer. Set `step` as the run progresses."""

    def __init__(
        self,
        append: Store,
        *,
        stream_id: str,
        run_id: str,
        agent_type: str,
        producer_id: str,
        clock: Clock,
        retry_delays_seconds: Sequence[float] = tuple(OUTAGE.delays()),
        gather_seconds: float = 0.0,
        address: Address | None = None,
        max_chunk_bytes: int | None = None,
    ) -> None:
        """`address`: makes an `Append` from a batch, for `lend`."""
        self._max_chunk_bytes = max_chunk_bytes
        self.stream_id = stream_id
        self._append = append
        self._address = address
        self._lent = False
        """Whether another store's write carries the batch in flight."""
        self._doubtful = 0
        """How many numbers after the batch in flight a write without a response may have used."""
        self._stamp: Chunk = {"agent_id": run_id, "agent_type": agent_type, "step": 0}
        self._producer_id = producer_id
        self._clock = clock
        self._retry_delays_seconds = retry_delays_seconds
        self.guard: Guard | None = None
        """Awaited before each batch is sent. If it raises, all queued chunks are rejected."""
        self._lingering: asyncio.TimerHandle | None = None
        self._buffer: deque[NewChunk] = deque()
        self._buffered_chars = 0
        self._in_flight: list[NewChunk] = []
        self._stored = 0  # chunks of this writer that were stored or rejected
        self._last_sequence = 0
        self._draining: asyncio.Task[None] | None = None
        self._room = asyncio.Event()
        self._error: Exception | None = None
        self._closed = False
        self._gather_seconds = gather_seconds
        self.wrote_at = float("-inf")
        """When the last batch left, by the clock of the loop, if chunks gather. A writer that continues an earlier one
        starts with its value: else its first chunk would leave at once."""
        self._flushing = 0
        self._hurry = asyncio.Event()
        self._pausing = False
        self._not_lent = asyncio.Event()
        self._not_lent.set()

    @property
    def draining(self) -> asyncio.Task[None] | None:
        """The task that stores queued chunks, if one is running."""
        return self._draining

    @property
    def last_sequence(self) -> int:
        """The sequence of the last chunk known to be stored."""
        return self._last_sequence

    @property
    def step(self) -> int:
        """The step that is stamped on chunks without one."""
        return int(self._stamp["step"])

    @step.setter
    def step(self, step: int) -> None:
        self._stamp["step"] = step

    @property
    def error(self) -> Exception | None:
        """The error of a write that no caller has seen yet."""
        return self._error

    def intercept(self, wrap: Callable[[Store], Store]) -> None:
        """Pass all later writes of this writer through a function, e.g. to count, delay or reject them."""
        self._append = wrap(self._append)

    async def write(self, chunk: Chunk, *, linger_seconds: float = 0.0) -> None:
        if self._closed or self._error is not None:
            self._raise_error()
        new = self.stamped(chunk)
        while self._is_full:
            self._room.clear()
            self._hurry.set()
            await self._not_lent.wait()
            self._ensure_draining()
            await self._room.wait()
            self._raise_error()
        self._take(new, linger_seconds)

    def put(self, chunk: Chunk, *, linger_seconds: float = 0.0) -> None:
        """Queue a chunk without waiting for space. It is sent after `linger_seconds`, or with an earlier batch."""
        if self._closed or self._error is not None:
            self._raise_error()
        self._take(self.stamped(chunk), linger_seconds)

    @property
    def _is_full(self) -> bool:
        return len(self._buffer) >= MAX_BUFFERED_CHUNKS or self._buffered_chars >= MAX_BUFFERED_CHARS

    def _take(self, new: NewChunk, linger_seconds: float = 0.0) -> None:
        self._buffer.append(new)
        self._buffered_chars += len(new.text)
        if self._draining is not None or self._lent:
            return
        if linger_seconds and not self._is_full:
            if self._lingering is None:
                self._lingering = asyncio.get_running_loop().call_later(linger_seconds, self._send_lingering)
        else:
            self._ensure_draining()

    def _send_lingering(self) -> None:
        """Send lingering chunks, unless another store's write carries them."""
        self._lingering = None
        if self._buffer and not self._lent:
            self._ensure_draining()

    async def lend(self) -> Append:
        """Return all chunks that have not been sent, possibly none, for another store's write to carry.

        Until `landed` or `returned`, nothing else is sent. Only one batch is in flight at a time, so batches arrive in
        order.
        """
        while self._in_flight or self._draining is not None:
            self._pausing = True
            self._hurry.set()
            try:
                await asyncio.shield(self._ensure_draining())
            finally:
                self._pausing = False
            self._raise_error()
        while len(self._buffer) > MAX_BATCH_CHUNKS or self._buffered_chars > MAX_BATCH_CHARS:
            await self.flush()
        self._raise_error()
        self._stop_lingering()
        self._lent = True
        self._not_lent.clear()
        self._in_flight = self._next_batch()
        assert self._address is not None
        try:
            return await self._address(self._producer_id, self._stored + len(self._in_flight), self._in_flight)
        except BaseException:
            self.returned(surely=True)
            raise

    def landed(self, sequence: int, *, added: int = 0) -> None:
        """Mark the lent chunks as stored, together with `added` chunks that the write added."""
        self._settle()
        self._stored += added
        self._last_sequence = sequence or self._last_sequence
        self._end_loan()

    def returned(self, *, surely: bool, added: int = 0) -> None:
        """Take back the lent batch after the write that carried it, with `added` chunks of its own, has failed.

        If the write may have stored something (not `surely`), the batch keeps its number, so that the backend
        recognizes it, and the numbers of the added chunks are not used again.
        """
        if surely:
            self._buffer.extendleft(reversed(self._in_flight))
            self._buffered_chars += sum(len(chunk.text) for chunk in self._in_flight)
            self._in_flight = []
        elif self._in_flight:
            self._doubtful += added
        else:
            self._stored += added
        self._end_loan()

    def _end_loan(self) -> None:
        self._lent = False
        self._not_lent.set()
        if self._buffer:
            self._ensure_draining()

    async def flush(self) -> int:
        self._raise_error()
        self._flushing += 1
        self._hurry.set()
        try:
            while self._buffer or self._in_flight:
                await self._not_lent.wait()
                # Shielded: a caller that stops waiting must not interrupt a write.
                await asyncio.shield(self._ensure_draining())
                self._raise_error()
        finally:
            self._flushing -= 1
        return self._last_sequence

    async def close(self) -> None:
        if self._closed:
            return
        try:
            await self.flush()
        finally:
            self._closed = True

    def discard(self) -> None:
        """Close without storing queued chunks. A write in flight still completes."""
        self._closed = True
        self._stop_lingering()
        self._buffer.clear()
        self._buffered_chars = 0
        if self._draining is not None and not self._in_flight:
            self._draining.cancel()

    def stamped(self, chunk: Chunk) -> NewChunk:
        """Return the chunk as it is stored."""
        flat = _plainly_flat(chunk)
        if not flat:
            ensure_chunk(chunk)
        return self._stamped(chunk, flat)

    def _stamped(self, chunk: Chunk, flat: bool) -> NewChunk:
        stamped = {**self._stamp, **chunk}
        if "timestamp" not in stamped:
            stamped["timestamp"] = self._clock()
        step = stamped["step"]
        if type(step) is int:
            ensure_count(step, "The step of a chunk")
        text = encode(stamped)
        self._ensure_fits(text)
        return NewChunk(step if type(step) is int else 0, text, stamped if flat else None)

    def _ensure_fits(self, text: str) -> None:
        most = self._max_chunk_bytes
        # A character takes at most eight bytes as JSON in JSON, so counting is needed only near the limit.
        if most is not None and len(text) * 8 > most and len(encode([text]).encode()) > most:
            raise InvalidArgument(
                f"A chunk of {len(text)} characters is too large for this database (at most {most} bytes)."
            )

    def _raise_error(self) -> None:
        if self._closed:
            raise StreamError(self.stream_id, f"This writer of stream {self.stream_id!r} is closed: create another.")
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _stop_lingering(self) -> None:
        if self._lingering is not None:
            self._lingering.cancel()
            self._lingering = None

    def _ensure_draining(self) -> asyncio.Task[None]:
        if self._draining is None:
            self._stop_lingering()
            self._draining = asyncio.get_running_loop().create_task(self._drain())
        return self._draining

    async def _drain(self) -> None:
        try:
            for _ in range(TURNS_BEFORE_SENDING):
                if self._flushing or self._pausing:
                    break
                await asyncio.sleep(0)
            while self._in_flight or (self._buffer and not self._pausing):
                if self._gather_seconds and not self._in_flight:
                    await self._gather()
                if self.guard is not None:
                    await self.guard()
                if not self._in_flight:
                    if self._pausing:
                        break
                    self._in_flight = self._next_batch()
                self._last_sequence = await self._append_with_retries()
                self._settle()
        except StoreUnavailable as error:
            self._error = error  # the batch stays: the next flush retries it under the same numbers
        except Exception as error:
            self._error = error  # rejected permanently, and so are the chunks after it
            self._settle()
            self._stored += len(self._buffer)
            self._buffer.clear()
            self._buffered_chars = 0
        finally:
            self._draining = None
            self._room.set()

    async def _gather(self) -> None:
        """Wait to collect chunks after the last write, unless a caller is waiting for them."""
        loop = asyncio.get_running_loop()
        if not self._flushing:
            self._hurry.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(self.wrote_at + self._gather_seconds - loop.time()):
                await self._hurry.wait()
        self.wrote_at = loop.time()

    def _next_batch(self) -> list[NewChunk]:
        self._room.set()
        if len(self._buffer) <= MAX_BATCH_CHUNKS and self._buffered_chars <= MAX_BATCH_CHARS:
            whole = list(self._buffer)
            self._buffer.clear()
            self._buffered_chars = 0
            return whole
        batch: list[NewChunk] = []
        chars = 0
        while self._buffer and len(batch) < MAX_BATCH_CHUNKS:
            size = len(self._buffer[0].text)
            if batch and chars + size > MAX_BATCH_CHARS:
                break
            batch.append(self._buffer.popleft())
            chars += size
        self._buffered_chars -= chars
        return batch

    def _settle(self) -> None:
        self._stored += len(self._in_flight) + self._doubtful
        self._in_flight, self._doubtful = [], 0

    async def _append_with_retries(self) -> int:
        last = self._stored + len(self._in_flight)
        for delay_seconds in self._retry_delays_seconds:
            try:
                return await self._append(self._producer_id, last, self._in_flight)
            except StoreUnavailable as error:
                if error.nothing_written:
                    raise  # the backend has already retried
                await asyncio.sleep(delay_seconds)
        return await self._append(self._producer_id, last, self._in_flight)
