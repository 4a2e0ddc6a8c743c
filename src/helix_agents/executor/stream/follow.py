"""Follow a session's stream, for handles, views and servers: across turns, and from before the stream exists.

`Follower` holds the policy: where to resume, how long to wait for a stream, when a session is gone, and what a missing
stream means. Replay and live reading share one path, the stream reader's. `RunChunks` returns chunks one by one; the
server's feed turns what the same follower reads into events.
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
from ..session.standing import open_run
from .leftover import is_leftover, stream_of

T = TypeVar("T")

Watch = Callable[[StreamReader, list[BaseException]], Coroutine[None, None, None]]
"""Closes the reader of a stream that no process will close any more, and records why."""


class StreamPlace(NamedTuple):
    """Where to start reading, and how far to read.

    `follow`: continue past the ends of turns. `wait`: wait for a stream while the session is active. `incarnation`: the
    session must still have it when its stream is found. `starts_over`: if the stream expired with its counter and
    started again, read it from its start instead of raising `StreamCursorAhead`. `unclaimed`: no run had claimed the
    session when it was read, so the stream under its id may be an earlier session's.
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
    """A reader that also waits for its stream and checks whether the session still exists."""

    def __init__(self, services: Services, place: StreamPlace, *, heartbeat_seconds: float | None = None) -> None:
        self._services = services
        self._place = place
        self._heartbeat_seconds = heartbeat_seconds
        self._closed = asyncio.Event()
        self._waited = False
        self._checked = False
        """Whether the session was read since the last chunk."""
        self.reader: StreamReader | None = None
        self.outcome: StreamOutcome | None = None
        """How the stream stopped; None until then."""

    @property
    def is_closed(self) -> bool:
        """Whether nothing more will be read."""
        return self._closed.is_set()

    async def open(self) -> SessionState | None:
        """Open the stream if it exists; return the session, without custom state, if it had to be loaded.

        Raises `StreamTruncated`, `StreamCursorAhead`, or `SessionNotFound` if the session is gone or was replaced.
        """
        place, streams, session = self._place, self._services.streams, None
        if place.unclaimed and (unclaimed := await self._session_of_leftover()) is not None:
            return unclaimed
        try:
            reader = await streams.create_resumable_reader(place.stream_id, from_sequence=place.from_sequence)
        except StreamCursorAhead:
            if not (self._waited and place.starts_over):
                raise
            reader = await streams.create_resumable_reader(place.stream_id)
        if reader is None or place.incarnation is not None:
            # After opening the stream: the id may belong to a new session by now, and the reader stays on the stream it
            # found.
            found = await self._services.store.load_conversation(place.session_id, last=0, custom_state=False)
            session = None if found is None else found.session
            if session is None or place.incarnation not in (None, session.incarnation):
                if reader is not None:
                    await reader.close()
                raise SessionNotFound(place.session_id)
        self.reader = reader
        return session

    async def _session_of_leftover(self) -> SessionState | None:
        """Return the session if the stream under its id is still an earlier session's."""
        session = await self._services.store.load_state(self._place.session_id)
        if session is None or self._place.incarnation not in (None, session.incarnation):
            raise SessionNotFound(self._place.session_id)
        info = await self._services.streams.get_stream_info(session.stream_id)
        return session if info is not None and is_leftover(session, info) else None

    async def read(self) -> list[StoredText]:
        """Return the next available chunks.

        Empty after `heartbeat_seconds` without one, after `close`, and when the stream has stopped; `outcome` then
        shows how.
        """
        await self.wait_for_stream()
        if self.reader is None:
            return []
        rows = await self.reader.read(timeout_seconds=self._heartbeat_seconds)
        if rows:
            self._checked = False
        else:
            self.outcome = self.reader.outcome or await self._left_open()
        return rows

    async def _left_open(self) -> StreamOutcome | None:
        """Return how the session stopped, if its stream stays open: checked once each time that chunks stop coming."""
        if self._checked or self.is_closed:
            return None
        self._checked = True
        session = await stopped_session(self._services, self._place.session_id)
        return None if session is None else outcome_without_stream(session)

    def go_on(self) -> None:
        """Continue past an end or a pause."""
        self.outcome = None
        if self.reader is not None:
            self.reader.go_on()

    async def close(self) -> None:
        """Stop reading. Safe to call twice, and while another task reads."""
        self._closed.set()
        if self.reader is not None:
            await self.reader.close()

    async def wait_for_stream(self) -> None:
        """Try to open the stream until a heartbeat is due or there is nothing to wait for."""
        place, tries = self._place, 0
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
                async with asyncio.timeout(APPEARING.delay_seconds(tries)):
                    await self._closed.wait()
            tries += 1


async def stopped_session(services: Services, session_id: str) -> SessionState | None:
    """Return a session that has stopped and whose stream no process will close.

    A restore, or a switch to another branch, died after it had reset the stream, or before.
    """
    seen = await services.store.load_conversation(session_id, last=0, custom_state=False)
    if seen is None or seen.session.status == "active" or open_run(seen.run) is not None:
        return None
    info = await stream_of(services.streams, seen.session)
    if info is None or info.status != "active":
        return None
    again = await services.store.load_state(session_id)  # a run that was claimed since then resumes the stream
    return again if again is not None and again.version == seen.session.version else None


def outcome_without_stream(session: SessionState) -> StreamOutcome:
    """Return the outcome of a stopped session whose stream has expired, or that never had one (a fork)."""
    if session.status == "completed":
        return StreamOutcome("ended", session.output)
    if session.status == "failed":
        return StreamOutcome("failed", error=session.error)
    return StreamOutcome("paused")


class RunChunks(AsyncIterator[T], Generic[T]):
    """Iterates over chunks; the first `anext` opens the stream. A canceled `anext` loses nothing."""

    def __init__(
        self,
        services: Services,
        place: StreamPlace,
        made: Callable[[StoredChunk], T],
        *,
        watch: Watch | None = None,
        ended: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`watch`: runs while the reader is open. `ended`: awaited after the stream's end, e.g. until the run is
        closed."""
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
                await self._handle_end()
        if follower.is_closed or not self._ready:
            raise self._lost[0] if self._lost else StopAsyncIteration
        return self._made(self._ready.popleft())

    async def aclose(self) -> None:
        """Stop reading. Leaving a loop early also does, once the iterator is garbage-collected."""
        if self._watching is not None:
            self._watching.cancel()
        await self._follower.close()

    async def _handle_end(self) -> None:
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
    """Iterates over the chunks of a run and starts the run at the first one. Closing it does not stop the run."""

    def __init__(self, execute: Callable[[], Awaitable[Streamable]]) -> None:
        self._execute = execute
        self._starting: asyncio.Future[Streamable] | None = None
        self._chunks: RunChunks[Chunk] | None = None

    @property
    def handle(self) -> Any:
        """The handle of the run, once the first chunk was requested."""
        if self._starting is None or not self._starting.done():
            raise InvalidArgument("The run has not started: request a chunk first.")
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
        """Stop reading; the run continues."""
        if self._chunks is not None:
            await self._chunks.aclose()
