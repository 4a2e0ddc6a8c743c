"""Reading a session's stream: one run's chunks, or all that comes, over turns, also before there is a stream.

Knows streams and whether the session is still there. Replay and live are one path, the stream reader's.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, Generic, Protocol, Self, TypeVar

from ...chunks import Chunk
from ...errors import InvalidArgument, SessionNotFound, StreamCursorAhead
from ...streams.contract import StoredChunk, StreamReader
from ...streams.reader import DELETED
from ...streams.records import fresh_chunks
from ..services import Services

FIRST_LOOK_SECONDS = 0.02
LAST_LOOK_SECONDS = 1.0

T = TypeVar("T")

Watch = Callable[[StreamReader, list[BaseException]], Coroutine[None, None, None]]
"""Closes the reader of a stream that nobody will close any more, and notes why."""


class StreamPlace:
    """Where to begin, and how far to go: `follow` reads on over the ends of turns, `wait` waits for a first chunk."""

    def __init__(
        self, session_id: str, stream_id: str, from_sequence: int, *, follow: bool = False, wait: bool = False
    ) -> None:
        self.session_id = session_id
        self.stream_id = stream_id
        self.from_sequence = from_sequence
        self.follow = follow
        self.wait = wait


class RunChunks(AsyncIterator[T], Generic[T]):
    """Chunks one by one, opened by the first `anext`. An `anext` that is cancelled loses nothing."""

    def __init__(
        self,
        services: Services,
        place: StreamPlace,
        made: Callable[[StoredChunk], T],
        *,
        watch: Watch | None = None,
        ended: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._services = services
        self._place = place
        self._made = made
        self._watch = watch
        self._ended = ended
        self._watching: asyncio.Task[None] | None = None
        self._lost: list[BaseException] = []
        self._reader: StreamReader | None = None
        self._ready: deque[StoredChunk] = deque()
        self._over = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        while not self._ready and not self._over:
            reader = self._reader or await self._open()
            if reader is None:
                await self.aclose()
                break
            if self._watch is not None and self._watching is None:
                self._watching = asyncio.create_task(self._watch(reader, self._lost))
            rows = await reader.read()
            chunks = zip(rows, fresh_chunks(rows), strict=True)
            self._ready.extend(StoredChunk(row.sequence, chunk) for row, chunk in chunks)
            if not rows:
                await self._at_an_end(reader)
        if self._over or not self._ready:
            raise self._lost[0] if self._lost else StopAsyncIteration
        return self._made(self._ready.popleft())

    async def aclose(self) -> None:
        """Stop reading; leaving a loop early does so by itself, sooner or later."""
        self._over = True
        if self._watching is not None:
            self._watching.cancel()
        if self._reader is not None:
            await self._reader.close()

    async def _at_an_end(self, reader: StreamReader) -> None:
        if not self._place.follow or reader.outcome is None or reader.outcome is DELETED:
            if self._ended is not None and not self._lost and reader.outcome is not None:
                await self._ended()
            await self.aclose()
        else:
            reader.go_on()

    async def _open(self) -> StreamReader | None:
        """A reader of the stream, once there is one; None if there is nothing to wait for."""
        place, streams = self._place, self._services.streams
        delay_seconds = FIRST_LOOK_SECONDS
        self._reader = await streams.create_resumable_reader(place.stream_id, from_sequence=place.from_sequence)
        while self._reader is None and await self._may_come():
            await asyncio.sleep(delay_seconds)
            delay_seconds = min(2 * delay_seconds, LAST_LOOK_SECONDS)
            try:
                self._reader = await streams.create_resumable_reader(place.stream_id, from_sequence=place.from_sequence)
            except StreamCursorAhead:
                # It had expired with its counter and begins anew: all that it has is new.
                self._reader = await streams.create_resumable_reader(place.stream_id)
        return self._reader

    async def _may_come(self) -> bool:
        if not self._place.wait and not self._place.follow:
            return False
        session = await self._services.store.load_state(self._place.session_id)
        if session is None:
            raise SessionNotFound(self._place.session_id)
        return self._place.follow or session.status == "active"


class Streamable(Protocol):
    """A run whose chunks can be read."""

    def stream(self) -> RunChunks[Chunk]: ...


class ExecutedChunks(AsyncIterator[Chunk]):
    """The chunks of a run that starts when they are asked for. To stop reading does not stop the run."""

    def __init__(self, execute: Callable[[], Awaitable[Streamable]]) -> None:
        self._execute = execute
        self._starting: asyncio.Future[Streamable] | None = None
        self._chunks: RunChunks[Chunk] | None = None

    @property
    def handle(self) -> Any:
        """The run, once the first chunk was asked for."""
        if self._starting is None or not self._starting.done():
            raise InvalidArgument("The run has not begun: ask for a chunk first.")
        return self._starting.result()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Chunk:
        if self._chunks is None:
            if self._starting is None:
                self._starting = asyncio.ensure_future(self._execute())
            self._chunks = (await asyncio.shield(self._starting)).stream()
        return await anext(self._chunks)

    async def aclose(self) -> None:
        """Stop reading; the run goes on."""
        if self._chunks is not None:
            await self._chunks.aclose()
