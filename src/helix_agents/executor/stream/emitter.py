"""Emitter: the one place from which a run's chunks go to its stream, in one order.

Tools emit without waiting (also from threads, through the loop); the model's tokens wait when the queue is long.
Chunks get the number of the step they belong to, so that a stream can be rewound to a commit. What a sub-agent says is
forwarded to the parent's emitter under the parent's step.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import cast

import msgspec

from ...chunks import AnyChunk, Chunk, as_chunk
from ...codec import Json
from ...errors import HelixError, StoreUnavailable
from ...stores.along import Along
from ...streams.contract import StreamWriter
from ...streams.records import NewChunk
from ...streams.writer import BatchingWriter

QUEUE_LIMIT = 256

LINGER_SECONDS = 0.004
"""How long news of tools and commits may wait for company, since every write costs a transaction. Tokens never wait."""

PATIENT = frozenset({"tool_arg_delta", "tool_start", "tool_end", "state_patch", "step_committed", "run_started"})

FORWARDED = frozenset(
    {
        "text_delta",
        "thinking",
        "tool_arg_delta",
        "tool_start",
        "tool_end",
        "tool_approval_request",
        "client_tool_request",
        "subagent_start",
        "subagent_end",
        "custom",
    }
)
"""What a parent's readers see of a sub-agent. Its state, its steps and its output are its own stream's business."""


class Load:
    """What goes along with one write; whoever writes notes the sequence that it led to."""

    def __init__(self, along: Along | None) -> None:
        self.along = along
        self.sequence = 0


class Emitter:
    """Writes the chunks of one run."""

    def __init__(
        self,
        writer: StreamWriter,
        *,
        session_id: str,
        run_id: str,
        agent_type: str,
        step: int,
        ensure_owner: Callable[[], Awaitable[None]],
        parent: Emitter | None = None,
        carries: bool = False,
    ) -> None:
        self.step = step
        self.parent = parent
        self._writer = writer
        self._lender = cast(BatchingWriter, writer) if carries and hasattr(writer, "lend") else None
        self._lending = asyncio.Lock()
        self._session_id = session_id
        self._run_id = run_id
        self._agent_type = agent_type
        self._ensure_owner = ensure_owner
        self._queue: deque[Chunk] = deque()
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._room = asyncio.Event()
        self._room.set()
        self._error: BaseException | None = None
        self._lingering: asyncio.TimerHandle | None = None
        self._pump = asyncio.create_task(self._run(), name=f"helix-emit-{run_id}")

    def emit(self, chunk: AnyChunk) -> None:
        """Take a chunk without waiting."""
        self._emit(as_chunk(chunk))

    def _emit(self, chunk: Chunk) -> None:
        chunk.setdefault("step", self.step)
        self._put(chunk)
        self._forward(chunk)

    def _forward(self, chunk: Chunk) -> None:
        if self.parent is not None and chunk["type"] in FORWARDED:
            self.parent.forward(chunk, self._session_id, self._run_id, self._agent_type)

    async def write(self, chunk: AnyChunk) -> None:
        """Take a chunk; wait while too many are on their way."""
        if not self._room.is_set():
            await self._room.wait()
        self._raise_error()
        self.emit(chunk)

    def forward(self, chunk: Chunk, session_id: str, run_id: str, agent_type: str) -> None:
        """Take a chunk of a sub-agent, marked as such."""
        marks = {
            "sub_session_id": session_id,
            "sub_step": chunk.get("step"),
            "agent_id": run_id,
            "agent_type": agent_type,
        }
        self._emit({**marks, **{key: value for key, value in chunk.items() if key != "timestamp"}, "step": self.step})

    @asynccontextmanager
    async def carrying(
        self,
        *news: AnyChunk,
        usage: Sequence[Mapping[str, Json]] = (),
        tell: Callable[[str, Sequence[str]], Sequence[AnyChunk]] | None = None,
        ends: str | None = None,
    ) -> AsyncIterator[Load]:
        """Let a write of the state store take along what has not left yet, and `news` that it makes true.

        Where the stores live apart, the load is empty and the news leaves after the write. `tell`: returns the chunks
        that announce a commit, once it is known. `ends`: the stream ends with this output, as JSON text.
        """
        lender = self._lender
        if lender is None:
            yield Load(None)
            for chunk in news:
                self.emit(chunk)
            return
        async with self._lending:
            await self._ensure_owner()
            await self._hand_over(lender)
            append = msgspec.structs.replace(await lender.lend(), ends=ends)
            stamped = [self._stamped(chunk) for chunk in news]
            if stamped:
                chunks = [*append.chunks, *map(lender.stamped, stamped)]
                counter = append.counter + len(stamped)
                append = msgspec.structs.replace(append, chunks=chunks, counter=counter)

            told: list[NewChunk] = []

            def telling(checkpoint_id: str, warnings: Sequence[str]) -> Sequence[NewChunk]:
                assert tell is not None
                told[:] = [lender.stamped(self._stamped(chunk)) for chunk in tell(checkpoint_id, warnings)]
                return told

            rides = bool(append.chunks) or tell is not None
            load = Load(Along(append if rides else None, tuple(usage), telling if tell is not None else None))
            try:
                yield load
            except BaseException as error:
                surely = isinstance(error, HelixError) and not isinstance(error, StoreUnavailable)
                lender.returned(surely=surely, news=len(stamped) + len(told))
                raise
            lender.landed(load.sequence, news=len(stamped) + len(told))
            for announced in stamped:
                self._forward(announced)

    async def _hand_over(self, lender: BatchingWriter) -> None:
        """Let the writer have what waits here, without a write of its own."""
        self._raise_error()
        if self._lingering is not None:
            self._lingering.cancel()
            self._lingering = None
        while self._queue:
            if not lender.put(self._queue[0]):
                await self.flush()
                return
            self._queue.popleft()
        self._room.set()
        self._idle.set()

    def _stamped(self, chunk: AnyChunk) -> Chunk:
        stamped = as_chunk(chunk)
        stamped.setdefault("step", self.step)
        return stamped

    async def flush(self) -> int:
        """Wait until all chunks are stored; the sequence of the last one."""
        self._hurry()
        await self._idle.wait()
        self._raise_error()
        await self._ensure_owner()
        return await self._writer.flush()

    @property
    def carries(self) -> bool:
        """Whether writes of the state store take chunks along."""
        return self._lender is not None

    @property
    def sequence(self) -> int:
        """That of the last chunk which is known to be stored."""
        return self._lender.last_sequence if self._lender is not None else 0

    async def settle(self) -> None:
        """Wait for what is on its way, also after an error: none of it may arrive later."""
        await self._writer.flush()

    async def close(self, *, discard: bool = False) -> None:
        """Stop; with `discard`, what has not been written yet never will be."""
        if not discard and self._error is None:
            self._hurry()
            await self._idle.wait()
        if self._lingering is not None:
            self._lingering.cancel()
        self._pump.cancel()
        await asyncio.gather(self._pump, return_exceptions=True)
        if not discard and self._error is None:
            await self._writer.close()

    def _put(self, chunk: Chunk) -> None:
        if self._error is not None:
            return  # nothing follows a chunk that is lost; the next write or flush tells the run
        self._queue.append(chunk)
        self._idle.clear()
        if len(self._queue) >= QUEUE_LIMIT:
            self._room.clear()
            self._hurry()
        elif chunk["type"] not in PATIENT:
            self._hurry()
        elif self._lingering is None and not self._wake.is_set():
            self._lingering = asyncio.get_running_loop().call_later(LINGER_SECONDS, self._hurry)

    def _hurry(self) -> None:
        """Let the pump write what there is."""
        if self._lingering is not None:
            self._lingering.cancel()
            self._lingering = None
        if self._queue:
            self._wake.set()

    async def _run(self) -> None:
        try:
            while True:
                while self._queue:
                    await self._ensure_owner()
                    if not self._queue:
                        break
                    await self._writer.write(self._queue.popleft())
                    if len(self._queue) < QUEUE_LIMIT:
                        self._room.set()
                self._idle.set()
                self._wake.clear()
                await self._wake.wait()
        except Exception as error:
            self._error = error
            self._idle.set()
            self._room.set()

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error
