"""FencedStream: the stream of one run, which only that run can write to.

All of a run's chunks go through this class, in one order and under its fence: once another process has claimed the
session, every call is rejected. The queue is the stream writer's own. Tools emit without waiting (from threads through
the loop); the model's tokens wait while the queue is full. Chunks get the number of the step they belong to, so that a
stream can be rewound to a commit. A sub-agent's chunks are also forwarded to the parent's stream, under the parent's
step.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress

import msgspec

from ...chunks import AnyChunk, Chunk, as_chunk
from ...codec import Json
from ...errors import HelixError, StoreUnavailable, StreamError, StreamFenced
from ...stores.along import Along
from ...streams.contract import StreamManager, StreamWriter
from ...streams.queued import queued
from ...streams.records import Append, NewChunk, StreamEnd

LINGER_SECONDS = 0.004
"""How long chunks about tools and commits may wait, so that several share one write. Text never waits."""

LINGERING = frozenset(
    {"tool_arg_delta", "tool_start", "tool_end", "state_patch", "step_committed", "run_started", "user_message"}
)

FORWARDED = frozenset(
    {
        "text_delta",
        "thinking",
        "tool_arg_delta",
        "tool_start",
        "tool_end",
        "tool_approval_request",
        "client_tool_request",
        "tool_outcome_request",
        "subagent_start",
        "subagent_end",
        "custom",
    }
)
"""The chunks of a sub-agent that its parent's readers get. Its state, steps and output stay in its own stream."""


class Load:
    """The chunks and usage that one write carries. The caller sets `sequence` to the stream position after the
    write."""

    def __init__(self, along: Along | None) -> None:
        self.along = along
        self.sequence = 0


class FencedStream:
    """Writes the chunks and the end of one run."""

    def __init__(
        self,
        streams: StreamManager,
        writer: StreamWriter,
        *,
        stream_id: str,
        fence: int,
        session_id: str,
        run_id: str,
        agent_type: str,
        step: int,
        ensure_owner: Callable[[], Awaitable[None]],
        parent: FencedStream | None = None,
        carries: bool = False,
    ) -> None:
        """`writer` was created with the same `fence`. `carries`: whether writes of the state store can carry chunks."""
        self.step = step
        self.parent = parent
        self._carries = carries
        self._streams = streams
        self._stream_id = stream_id
        self._fence = fence
        self._writer = queued(writer, stream_id=stream_id, run_id=run_id, agent_type=agent_type)
        self._writer.guard = ensure_owner
        self._source = (session_id, run_id, agent_type)
        self._ensure_owner = ensure_owner
        self._lending = asyncio.Lock()
        self._error: Exception | None = None

    # -- chunks

    def emit(self, chunk: AnyChunk) -> None:
        """Queue a chunk without waiting."""
        self._emit(as_chunk(chunk))

    def _emit(self, chunk: Chunk) -> None:
        chunk.setdefault("step", self.step)
        if not self._has_failed:  # write nothing after a lost chunk; the next write or flush raises the error
            self._writer.put(chunk, linger_seconds=_linger_seconds(chunk))
        self._forward(chunk)

    def _forward(self, chunk: Chunk) -> None:
        if self.parent is not None and chunk["type"] in FORWARDED:
            self.parent.forward(chunk, *self._source)

    async def write(self, chunk: AnyChunk) -> None:
        """Queue a chunk; wait while the queue is full."""
        own = as_chunk(chunk)
        own.setdefault("step", self.step)
        with self._failing():
            await self._writer.write(own, linger_seconds=_linger_seconds(own))
        self._forward(own)

    def forward(self, chunk: Chunk, session_id: str, run_id: str, agent_type: str) -> None:
        """Queue a sub-agent's chunk, marked with its session, run, step and agent."""
        marks = {
            "sub_session_id": session_id,
            "sub_step": chunk.get("step"),
            "agent_id": run_id,
            "agent_type": agent_type,
        }
        self._emit({**marks, **{key: value for key, value in chunk.items() if key != "timestamp"}, "step": self.step})

    async def flush(self) -> int:
        """Wait until all chunks are stored; return the sequence of the last one."""
        with self._failing():
            await self._ensure_owner()
            return await self._writer.flush()

    @property
    def sequence(self) -> int:
        """The sequence of the last chunk known to be stored."""
        return self._writer.last_sequence

    @property
    def wrote_at(self) -> float:
        """When the last batch left, by the clock of the loop, where every write costs money."""
        return self._writer.wrote_at

    async def settle(self) -> None:
        """Wait for writes in flight, even after an error, so that none arrives later."""
        await self._writer.flush()

    async def close(self, *, discard: bool = False) -> None:
        """Stop writing; with `discard`, drop queued chunks."""
        if discard or self._has_failed:
            self._writer.discard()
        else:
            await self._writer.close()

    # -- chunks that another write carries

    @property
    def carries(self) -> bool:
        """Whether writes of the state store can carry chunks."""
        return self._carries and not self._has_failed

    @asynccontextmanager
    async def carrying(
        self,
        *added: AnyChunk,
        usage: Sequence[Mapping[str, Json]] = (),
        announce: Callable[[str, Sequence[str]], Sequence[AnyChunk]] | None = None,
        ends: StreamEnd | None = None,
    ) -> AsyncIterator[Load]:
        """Let a write of the state store carry queued chunks, and `added` chunks that announce what it stores.

        If the state store cannot carry chunks, the load is empty and the added chunks are sent after the write.
        `announce`: returns the chunks that announce a commit, given its checkpoint id and warnings. `ends`: how the
        stream stops with this write.
        """
        if not self.carries:
            yield Load(None)
            for chunk in added:
                self.emit(chunk)
            return
        async with self._lending:
            with self._failing():
                await self._ensure_owner()
                append = await self._writer.lend()
            own: list[NewChunk] = []
            try:
                load = Load(self._along(append, added, own, usage, announce, ends))
                yield load
            except BaseException as error:
                if isinstance(error, StreamError):
                    self._error = error
                surely = isinstance(error, HelixError) and not isinstance(error, StoreUnavailable)
                self._writer.returned(surely=surely, added=len(own))
                raise
            self._writer.landed(load.sequence, added=len(own))
            for chunk in added:
                self._forward(as_chunk(chunk))

    def _along(
        self,
        append: Append,
        added: Sequence[AnyChunk],
        own: list[NewChunk],
        usage: Sequence[Mapping[str, Json]],
        announce: Callable[[str, Sequence[str]], Sequence[AnyChunk]] | None,
        ends: StreamEnd | None,
    ) -> Along:
        """Return what a write carries; put the chunks that it adds to the lent ones into `own`."""

        def announcement(checkpoint_id: str, warnings: Sequence[str]) -> Sequence[NewChunk]:
            assert announce is not None
            own[len(added) :] = map(self._stamped, announce(checkpoint_id, warnings))
            return own[len(added) :]

        own += map(self._stamped, added)
        chunks = [*append.chunks, *own]
        whole = msgspec.structs.replace(append, chunks=chunks, counter=append.counter + len(own), ends=ends)
        return Along(whole if chunks or announce else None, tuple(usage), announcement if announce else None)

    def _stamped(self, chunk: AnyChunk) -> NewChunk:
        as_chunk(chunk).setdefault("step", self.step)
        return self._writer.stamped(as_chunk(chunk))

    # -- the stream as a whole

    async def end(self, output: Json) -> None:
        """End the stream with the run's output."""
        await self._streams.end_stream(self._stream_id, output, fence=self._fence)

    async def fail(self, error: str) -> None:
        """Mark the stream as failed."""
        await self._streams.fail_stream(self._stream_id, error, fence=self._fence)

    async def pause(self) -> None:
        """Pause the stream until the session is resumed."""
        await self._streams.pause_stream(self._stream_id, fence=self._fence)

    async def chunks_since(self, step_count: int) -> list[Chunk]:
        """Return the stored chunks of step `step_count` and later steps."""
        return [stored.chunk for stored in await self._streams.get_chunks_from_step(self._stream_id, step_count)]

    async def rewind(self, step_count: int) -> None:
        """Drop the chunks of every step after `step_count`."""
        await self._streams.cleanup_to_step(self._stream_id, step_count, fence=self._fence)

    async def drop(self) -> None:
        """Delete the stream of a session that no longer exists."""
        with suppress(StreamFenced):  # the stream belongs to a session created since then
            await self._streams.delete_stream(self._stream_id, fence=self._fence)

    # -- errors

    @property
    def _has_failed(self) -> bool:
        return self._error is not None or self._writer.error is not None

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Record an error of the writer, after which this run writes nothing more."""
        if self._error is not None:
            raise self._error
        try:
            yield
        except Exception as error:
            self._error = error
            raise


def _linger_seconds(chunk: Chunk) -> float:
    """Return how long a chunk may wait for others."""
    return LINGER_SECONDS if chunk["type"] in LINGERING else 0.0
