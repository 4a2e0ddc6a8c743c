"""How handles, views and servers follow a session's stream: over turns, and from before the stream exists.

`Follower` holds the policy: where to resume, how long to wait for a stream, when a session is gone, and what it means
that a stream is missing. Replay and live are one path, the stream reader's. `RunChunks` hands out chunks one by one;
the server's feed turns what the same follower reads into events.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

from ...chunks import Chunk
from ...errors import InvalidArgument, SessionNotFound, StreamCursorAhead
from ...retry import APPEARING
from ...streams.contract import StoredChunk, StreamOutcome, StreamReader
from ...streams.reader import DELETED
from ...streams.records import StoredText, fresh_chunks
from ...types import SessionState
from ..services import Services
from .leftover import is_leftover

T = TypeVar("T")

Watch = Callable[[StreamReader, list[BaseException]], Coroutine[None, None, None]]
"""Closes the reader of a stream that no process will close any more, and notes why."""


class StreamPlace(NamedTuple):
    """Where to start, and how far to go.

    `follow`: read on over the ends of turns. `wait`: wait for a stream while the session is active. `incarnation`: the
    session must still be this one when its stream is found. `starts_over`: a stream that expired with its counter and
    then started again is read from its start; else `StreamCursorAhead` is raised. `unclaimed`: no run had claimed the
    session when it was read, so the stream under its id may be that of an earlier session.
    """

    session_id: str
    stream_id: str
    from_sequence: int
    follow: bool = False
    wait: bool = False
    incarnation: str | None = None
    starts_over: bool = False
    unclaimed: bool = False


class Follower:
    """A reader that also waits for its stream, and knows whether the session still exists."""

    def __init__(self, services: Services, place: StreamPlace, *, heartbeat_seconds: float | None = None) -> None:
        self._services = services
        self._place = place
        self._heartbeat_seconds = heartbeat_seconds
        self._closed = asyncio.Event()
        self._waited = False
        self.reader: StreamReader | None = None
        self.outcome: StreamOutcome | None = None
        """How the stream stopped; None until then."""

    @property
    def is_closed(self) -> bool:
        """Whether nothing more will be read."""
        return self._closed.is_set()

    async def open(self) -> SessionState | None:
        """Look for the stream once; return the session as it was found, without custom state, if it had to be loaded.

        Raises `StreamTruncated`, `StreamCursorAhead`, or `SessionNotFound` if the session is gone or was replaced.
        """
        place, streams, session = self._place, self._services.streams, None
        if place.unclaimed and (left := await self._beside_leftover()) is not None:
            return left
        try:
            reader = await streams.create_resumable_reader(place.stream_id, from_sequence=place.from_sequence)
        except StreamCursorAhead:
            if not (self._waited and place.starts_over):
                raise
            reader = await streams.create_resumable_reader(place.stream_id)
        if reader is None or place.incarnation is not None:
            # After the stream was opened: an id may have changed hands, and the reader sticks to what it found.
            found = await self._services.store.load_conversation(place.session_id, last=0, custom_state=False)
            session = None if found is None else found.session
            if session is None or place.incarnation not in (None, session.incarnation):
                if reader is not None:
                    await reader.close()
                raise SessionNotFound(place.session_id)
        self.reader = reader
        return session

    async def _beside_leftover(self) -> SessionState | None:
        """Return the session if the stream under its id is still that of an earlier session."""
        session = await self._services.store.load_state(self._place.session_id)
        if session is None or self._place.incarnation not in (None, session.incarnation):
            raise SessionNotFound(self._place.session_id)
        info = await self._services.streams.get_stream_info(session.stream_id)
        return session if info is not None and is_leftover(session, info) else None

    async def read(self) -> list[StoredText]:
        """Return the next chunks that are ready together.

        Empty after `heartbeat_seconds` without one, when the follower was closed, and when the stream has stopped:
        `outcome` says how.
        """
        await self.wait_for_stream()
        if self.reader is None:
            return []
        rows = await self.reader.read(timeout_seconds=self._heartbeat_seconds)
        if not rows:
            self.outcome = self.reader.outcome
        return rows

    def go_on(self) -> None:
        """Read past an end or a pause."""
        self.outcome = None
        if self.reader is not None:
            self.reader.go_on()

    async def close(self) -> None:
        """Stop reading. Safe to call twice, and while another task reads."""
        self._closed.set()
        if self.reader is not None:
            await self.reader.close()

    async def wait_for_stream(self) -> None:
        """Look for the stream until a heartbeat is due, or until there is nothing to wait for."""
        place, looks = self._place, 0
        loop = asyncio.get_running_loop()
        until = None if self._heartbeat_seconds is None else loop.time() + self._heartbeat_seconds
        while self.reader is None and not self.is_closed:
            session = await self.open()
            if session is None or self.reader is not None:
                return
            if not place.follow and (session.status != "active" or not place.wait):
                self.outcome = None if session.status == "active" else outcome_without_stream(session)
                return
            self._waited = True
            if until is not None and loop.time() >= until:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(APPEARING.delay_seconds(looks)):
                    await self._closed.wait()
            looks += 1


def outcome_without_stream(session: SessionState) -> StreamOutcome:
    """Return the outcome of a stopped session whose stream has expired, or that never had one (a fork)."""
    if session.status == "completed":
        return StreamOutcome("ended", session.output)
    if session.status == "failed":
        return StreamOutcome("failed", error=session.error)
    return StreamOutcome("paused")


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
        """`watch`: runs beside the reader. `ended`: awaited after the stream's end, e.g. until the run is closed."""
        self._follower = Follower(services, place)
        self._follows = place.follow
        self._made = made
        self._watch = watch
        self._ended = ended
        self._watching: asyncio.Task[None] | None = None
        self._lost: list[BaseException] = []
        self._ready: deque[StoredChunk] = deque()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        follower = self._follower
        while not self._ready and not follower.is_closed:
            await follower.wait_for_stream()
            if follower.reader is not None and self._watch is not None and self._watching is None:
                self._watching = asyncio.create_task(self._watch(follower.reader, self._lost))
            rows = await follower.read()
            chunks = zip(rows, fresh_chunks(rows), strict=True)
            self._ready.extend(StoredChunk(row.sequence, chunk) for row, chunk in chunks)
            if not rows:
                await self._at_an_end()
        if follower.is_closed or not self._ready:
            raise self._lost[0] if self._lost else StopAsyncIteration
        return self._made(self._ready.popleft())

    async def aclose(self) -> None:
        """Stop reading; leaving a loop early does so by itself, sooner or later."""
        if self._watching is not None:
            self._watching.cancel()
        await self._follower.close()

    async def _at_an_end(self) -> None:
        follower, outcome = self._follower, self._follower.outcome
        if self._follows and outcome is not None and outcome is not DELETED:
            follower.go_on()
            return
        if self._ended is not None and not self._lost and outcome is not None and follower.reader is not None:
            await self._ended()
        await self.aclose()


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
