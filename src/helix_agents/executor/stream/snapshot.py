"""Snapshot: a session as a chat shows it, at one moment, with the stream position from which to continue.

Committed data is in the messages and the custom state; what an open step has shown so far is in the chunks after
`sequence`. So a client that applies those chunks ends with exactly the committed state, even after a rewind.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

import msgspec

from ...errors import SessionNotFound, StoreUnavailable
from ...lifecycle import SESSION_TERMINAL
from ...messages import Message
from ...retry import CONFLICT
from ...streams.contract import StoredChunk
from ...types import Conversation, RunRecord, SessionState
from ..services import Services
from .follow import RunChunks, StreamPlace
from .leftover import stream_of


class Snapshot(msgspec.Struct, frozen=True):
    """A session and its messages at one moment; reading its stream from `sequence` continues exactly there.

    While a step waits (for an approval, a client tool, a sub-agent), its assistant message comes with the chunks, not
    with `messages`, as long as the stream still has them. `message_count`: the total number of messages, even if only
    the later ones were requested. `run`: the latest run of the session.
    """

    session: SessionState
    messages: list[Message]
    sequence: int
    message_count: int
    run: RunRecord | None = None


async def take_snapshot(services: Services, session_id: str, *, offset: int = 0) -> Snapshot:
    """Read a session, its messages and its position in the stream.

    One read of the store is enough if the last commit recorded its stream position. If the stream has to be read, a
    second read of the session detects a commit in between; then everything is read again.
    """
    wanted: Any = {"offset": offset} if offset >= 0 else {"last": -offset}
    for _ in CONFLICT.attempts():
        seen = await services.store.load_conversation(session_id, **wanted)
        if seen is None:
            raise SessionNotFound(session_id)
        latest = seen.checkpoint
        if latest is not None and latest.kind == "step":
            return Snapshot(seen.session, seen.messages, latest.stream_sequence, seen.message_count, seen.run)
        replay = None
        if latest is not None and latest.kind == "aside" and seen.session.status not in SESSION_TERMINAL:
            replay = await _replay_from(services, seen)
        sequence = await _position(services, seen) if replay is None else replay
        again = await services.store.load_conversation(session_id, last=0, custom_state=False)
        if again is not None and again.session.version == seen.session.version:
            committed = seen.message_count - (replay is not None)
            first = seen.message_count - len(seen.messages)
            shown = seen.messages[: max(0, committed - first)]
            return Snapshot(seen.session, shown, sequence, committed, seen.run)
    raise StoreUnavailable(f"Session {session_id!r} changes too fast for a consistent read: try again.")


async def _replay_from(services: Services, seen: Conversation) -> int | None:
    """Return the position before the suspended step, or None if the stream does not show its whole reply."""
    session, last = seen.session, seen.messages[-1:]
    if not last:  # only later messages were requested
        last = (await services.store.get_messages(session.session_id, offset=-1, limit=1)).items
    if await stream_of(services.streams, session) is None:
        return None
    chunks = await services.streams.get_chunks_from_step(session.stream_id, session.step_count + 1)
    own = [stored for stored in chunks if "sub_session_id" not in stored.chunk]
    text = "".join(stored.chunk["delta"] for stored in own if stored.chunk["type"] == "text_delta")
    if not own or not last or last[0]["role"] != "assistant" or last[0]["content"] != text:
        return None
    shown = {stored.chunk.get("tool_call_id") for stored in own if stored.chunk["type"] != "tool_end"}
    if not all(call["id"] in shown for call in last[0].get("tool_calls", ())):
        return None  # the stream was reset since then
    return chunks[0].sequence - 1


async def _position(services: Services, seen: Conversation) -> int:
    """Return the stream position of a last commit that did not end a step."""
    session, latest, run = seen.session, seen.checkpoint, seen.run
    info = await stream_of(services.streams, session)
    if latest is not None and latest.kind == "aside":
        if info is not None and session.status in SESSION_TERMINAL:
            return info.latest_sequence  # it failed while it waited, and its patches were reverted since
        return latest.stream_sequence
    # The last commit claimed a turn and records no position: the turn starts where its run does.
    if info is None:
        return 0
    if info.status in ("ended", "failed") or run is None:
        return info.latest_sequence  # the stream is the previous turn's, about to be reset
    return max(run.start_sequence, info.first_sequence - 1)


class SessionView:
    """Returned by `AgentExecutor.watch`: enter it to take the snapshot, iterate over it for the chunks after it."""

    def __init__(self, services: Services, session_id: str) -> None:
        self._services = services
        self._session_id = session_id
        self._snapshot: Snapshot | None = None
        self._chunks: RunChunks[StoredChunk] | None = None

    async def __aenter__(self) -> Self:
        self._snapshot = snapshot = await take_snapshot(self._services, self._session_id)
        session = snapshot.session
        place = StreamPlace(
            session.session_id,
            session.stream_id,
            snapshot.sequence,
            follow=True,
            incarnation=session.incarnation,
            starts_over=True,
            unclaimed=not session.owner_epoch,
        )
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
        """The messages at that time; the assistant message of a waiting step comes with the chunks."""
        return self._entered.messages

    @property
    def sequence(self) -> int:
        """The stream position at that time; iterating continues after it."""
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
