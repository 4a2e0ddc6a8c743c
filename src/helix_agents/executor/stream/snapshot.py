"""A session as a chat shows it: what was said so far, read at one moment, and what happens from exactly there on."""

from __future__ import annotations

from types import TracebackType
from typing import Self

import msgspec

from ...errors import SessionNotFound, StoreUnavailable
from ...messages import Message
from ...streams.contract import StoredChunk
from ...types import SessionState
from ..services import Services
from .follow import RunChunks, StreamPlace

SNAPSHOT_TRIES = 50


class Snapshot(msgspec.Struct, frozen=True):
    """A session and its messages at one moment; reading its stream from `sequence` goes on from exactly there.

    `message_count`: how many messages there are in all, if only the later ones were asked for.
    """

    session: SessionState
    messages: list[Message]
    sequence: int
    message_count: int


async def take_snapshot(services: Services, session_id: str, *, offset: int = 0) -> Snapshot:
    """Read a session, its messages and its place in the stream; again if a commit came in between."""
    session = await _load(services, session_id)
    for _ in range(SNAPSHOT_TRIES):
        page = await services.store.get_messages(session_id, offset=offset, limit=None)
        sequence = await _place(services, session)
        again = await _load(services, session_id)
        if again.version == session.version:
            return Snapshot(again, list(page.items), sequence, page.total or 0)
        session = again
    raise StoreUnavailable(f"Session {session_id!r} changes too fast to be read at one moment: try again.")


async def _load(services: Services, session_id: str) -> SessionState:
    session = await services.store.load_state(session_id)
    if session is None:
        raise SessionNotFound(session_id)
    return session


async def _place(services: Services, session: SessionState) -> int:
    """Where the last commit stood in the stream."""
    latest = await services.store.get_latest_checkpoint(session.session_id)
    if latest is not None and latest.kind != "turn":
        return latest.stream_sequence
    # The last commit is the claim of a turn, which knows no place: the turn begins where its run does.
    info = await services.streams.get_stream_info(session.stream_id)
    if info is None:
        return 0
    run = await services.store.get_current_run(session.session_id)
    if info.status in ("ended", "failed") or run is None:
        return info.latest_sequence  # the stream is that of the turn before, and about to be reset
    return max(run.start_sequence, info.first_sequence - 1)


class SessionView:
    """Made by `AgentExecutor.watch`: enter it to take the snapshot, iterate over it for what comes after."""

    def __init__(self, services: Services, session_id: str) -> None:
        self._services = services
        self._session_id = session_id
        self._snapshot: Snapshot | None = None
        self._chunks: RunChunks[StoredChunk] | None = None

    async def __aenter__(self) -> Self:
        self._snapshot = snapshot = await take_snapshot(self._services, self._session_id)
        place = StreamPlace(self._session_id, snapshot.session.stream_id, snapshot.sequence, follow=True)
        self._chunks = RunChunks(self._services, place, lambda stored: stored)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._chunks is not None:
            await self._chunks.aclose()

    @property
    def session(self) -> SessionState:
        """The session as it was when the view was entered."""
        return self._entered.session

    @property
    def messages(self) -> list[Message]:
        """The whole conversation by then."""
        return self._entered.messages

    @property
    def sequence(self) -> int:
        """The place in the stream by then: what is iterated over comes after it."""
        return self._entered.sequence

    def __aiter__(self) -> RunChunks[StoredChunk]:
        self._entered  # noqa: B018  # raises if there is nothing to read
        assert self._chunks is not None
        return self._chunks

    @property
    def _entered(self) -> Snapshot:
        if self._snapshot is None:
            raise RuntimeError("Write `async with executor.watch(session_id) as view:` to read a session.")
        return self._snapshot
