"""StreamManager: live delivery of chunks, resumable, exactly once, to any number of readers.

The guarantees are listed here by id (T1 to T10); `streams/base.py` and the backends implement them. Every guarantee has
a check in the conformance kit.

- T1 sequence: dense integers 1, 2, 3, ..., never reused.
- T2 order and completeness: a reader sees every stored chunk after its cursor exactly once, in order.
- T3 idempotent producer: a retried write never duplicates a chunk.
- T4 flush: after `flush` or `close` the chunks are as durable as the backend.
- T5 end, fail, pause.
- T6 retention: a gap is an error, never silent.
- T7 rewind and reset: attached readers see a marker chunk and continue.
- T8 fan-out: one backend subscription per process.
- T9 slow reader: never slows others; memory is bounded.
- T10 fence: a call with a smaller fence than the stream's is rejected and stores nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Self

import msgspec

from ..chunks import Chunk
from ..codec import Json
from ..types import StreamStatus
from .records import StoredText, StreamStart


class StoredChunk(msgspec.Struct, frozen=True):
    """A chunk with its sequence."""

    sequence: int
    chunk: Chunk


class StreamInfo(msgspec.Struct, frozen=True):
    """A stream's metadata, without its chunks.

    `first_sequence` is that of the first stored chunk (`latest_sequence + 1` if none is stored), `latest_sequence` that
    of the last chunk ever written (0 if none).
    """

    stream_id: str
    status: StreamStatus
    total_chunks: int
    first_sequence: int
    latest_sequence: int
    final_output: Json = None
    error: str | None = None
    created_at: int = 0
    updated_at: int = 0
    fence: int = 0


class StreamOutcome(msgspec.Struct, frozen=True):
    """How a stream ended for a reader."""

    status: StreamStatus
    final_output: Json = None
    error: str | None = None


class StreamWriter(ABC):
    """One producer of a stream. Use it as an async context manager; leaving closes the writer, not the stream."""

    @abstractmethod
    async def write(self, chunk: Chunk) -> None:
        """Write one chunk. May buffer; waits when the buffer is full. Raises the error of an earlier write."""

    @abstractmethod
    async def flush(self) -> int:
        """Wait until all chunks so far are stored; return the sequence of the last one (0 if none)."""

    @abstractmethod
    async def close(self) -> None:
        """Flush and release the writer. The stream stays open for others."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class StreamReader(ABC):
    """One consumer: iterate to get the stored chunks first, then live ones, until the stream ends."""

    @property
    @abstractmethod
    def current_sequence(self) -> int:
        """The sequence of the last returned chunk, or the cursor that the reader started from."""

    @property
    @abstractmethod
    def outcome(self) -> StreamOutcome | None:
        """How the stream ended; None until then."""

    @abstractmethod
    def __aiter__(self) -> AsyncIterator[Chunk]:
        """Iterate over the chunks in the order they were written."""

    @abstractmethod
    def stored(self) -> AsyncIterator[StoredChunk]:
        """Iterate like `__aiter__`, over chunks with their sequences."""

    @abstractmethod
    async def read(self, *, timeout_seconds: float | None = None) -> list[StoredText]:
        """Return the next available chunks as JSON strings, for callers that forward them without decoding.

        Empty after `timeout_seconds` without a chunk, after `close`, and when the stream has ended; `outcome` then
        shows how, even if it failed. Do not also iterate over the same reader.
        """

    @abstractmethod
    def go_on(self) -> None:
        """Continue past an end or a pause: clear the `outcome` and let `read` wait for later chunks."""

    @abstractmethod
    async def close(self) -> None:
        """Stop reading. Safe to call twice, and while another task is waiting for the next chunk."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class StreamManager(ABC):
    """All streams of one backend.

    A stream has a *fence*, a number that only grows. A process that takes over a stream passes a larger `fence` than
    its predecessor: the call raises the stream's fence in the same atomic write. A call with a smaller fence than the
    stream's raises `StreamFenced` and stores nothing; a writer with a smaller fence also loses what it has buffered.
    Calls without a fence are not affected.
    """

    @abstractmethod
    async def create_writer(
        self, stream_id: str, run_id: str, agent_type: str, *, fence: int | None = None
    ) -> StreamWriter:
        """Open a producer; the first one creates the stream. Raises `StreamNotActive` on an ended stream.

        With `fence`, raises the stream's fence to it, in any status. Every write of the producer is rejected with
        `StreamFenced` once another owner has raised the fence further.
        """

    @abstractmethod
    async def create_reader(self, stream_id: str) -> StreamReader | None:
        """Read from the first stored chunk, then live. Return None if the stream does not exist or has failed."""

    @abstractmethod
    async def create_resumable_reader(self, stream_id: str, *, from_sequence: int = 0) -> StreamReader | None:
        """Read the chunks after `from_sequence`, then live. Also reads the history of a failed stream.

        Raises `StreamTruncated` if chunks after the cursor are gone, `StreamCursorAhead` if it was never written.
        """

    @abstractmethod
    async def end_stream(self, stream_id: str, final_output: Json = None, *, fence: int | None = None) -> None:
        """End the stream: readers finish after the last chunk. *Idempotent.*"""

    @abstractmethod
    async def fail_stream(self, stream_id: str, error: str, *, fence: int | None = None) -> None:
        """Mark the stream as failed: live readers raise `StreamFailed` after the last chunk."""

    @abstractmethod
    async def pause_stream(self, stream_id: str, *, fence: int | None = None) -> None:
        """Pause the stream: readers finish with outcome `paused`, writers get `StreamNotActive`."""

    @abstractmethod
    async def resume_stream(self, stream_id: str, *, fence: int | None = None) -> None:
        """Make a paused stream active again."""

    @abstractmethod
    async def get_stream_info(self, stream_id: str) -> StreamInfo | None:
        """Return the stream's metadata; None if there is no such stream."""

    @abstractmethod
    async def get_all_chunks(self, stream_id: str) -> list[StoredChunk]:
        """Return every stored chunk in order."""

    @abstractmethod
    async def get_chunks_from_step(self, stream_id: str, from_step: int) -> list[StoredChunk]:
        """Return every stored chunk whose `step` is at least `from_step`, in order."""

    @abstractmethod
    async def cleanup_to_step(self, stream_id: str, step_count: int, *, fence: int | None = None) -> int:
        """Drop chunks with `step > step_count`, append a `stream_rewound` chunk, return how many were dropped.
        *Atomic.*"""

    @abstractmethod
    async def reset_stream(self, stream_id: str, *, fence: int | None = None) -> None:
        """Drop all chunks, append `stream_resync`, make the stream active. *Atomic.* Sequences continue."""

    @abstractmethod
    async def delete_stream(self, stream_id: str, *, fence: int | None = None) -> None:
        """Delete the stream; attached readers finish. *Atomic.*"""

    def starting(self, stream_id: str, *, fence: int, seen: StreamInfo | None) -> StreamStart:
        """Return a new turn's stream as a value that a state store's write can carry. `seen`: the stream as last read.

        Required only of managers whose streams a state store can write.
        """
        raise NotImplementedError

    def attach_writer(self, stream_id: str, run_id: str, agent_type: str, *, fence: int) -> StreamWriter | None:
        """Return a writer without a round trip, for a stream that the caller has just made active under this fence.

        None if this manager cannot: then use `create_writer`.
        """
        return None

    async def close(self) -> None:
        """Release what this manager opened itself, never what the caller passed in."""
