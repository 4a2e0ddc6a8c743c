"""Streams in other formats: the feed of a turn, through one of the pure encoders, as Server-Sent Events.

Neither format has a cursor. Ours is the id of the SSE event: a client that joins at a position gets what is open there
opened again, then the rest.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

from ...chunks import Chunk
from ...codec import Json, decode, encode
from ...stores.state.contract import StateStore
from ...types import SessionState
from ..context import ServerContext
from ..endpoints import Call
from .agui import AgUiEncoder
from .feed import Chunks, Heartbeat, Item, open_feed
from .feed import Event as FeedEvent
from .framing import HEARTBEAT, EventStream
from .ui_messages import UiMessageEncoder

DONE = b"data: [DONE]\n\n"
MAX_CHECKPOINTS = 200


class TurnEncoder(Protocol):
    """What `agui.py` and `ui_messages.py` have in common."""

    def begin(self) -> list[dict[str, Any]]:
        """Return the events that a connection starts with."""

    def chunk(self, chunk: Chunk) -> list[dict[str, Any]]:
        """Return the events for one chunk."""

    def ask(self, chunk: Chunk) -> list[dict[str, Any]]:
        """Return the events for a question that the stream may not have; none if it has."""

    def end(self, name: str, data: dict[str, Json]) -> list[dict[str, Any]]:
        """Return the events for the final event of a feed."""


class Framing(NamedTuple):
    """What surrounds the events of a format: headers, and bytes at the end."""

    headers: tuple[tuple[bytes, bytes], ...] = ()
    last: bytes = b""


class Translation:
    """Sends a feed through a turn's encoder. The encoder only reads the chunks up to `from_sequence`."""

    def __init__(self, encoder: TurnEncoder, framing: Framing, *, from_sequence: int) -> None:
        self.headers = framing.headers
        self._encoder = encoder
        self._from_sequence = from_sequence
        self._last = framing.last
        self._begun = False

    def encode(self, item: Item) -> bytes:
        """Return the frames for one item."""
        if isinstance(item, Heartbeat):
            return self._begin() + HEARTBEAT
        if isinstance(item, FeedEvent):
            if item.name == "open":
                return b"" if self._from_sequence else self._begin()
            start = self._begin()
            asked = [event for chunk in item.asks for event in self._encoder.ask(chunk)]
            return start + _frames([*asked, *self._encoder.end(item.name, item.data)]) + self._last
        return self._chunks(item)

    def _chunks(self, item: Chunks) -> bytes:
        frames: list[bytes] = []
        for row in item.rows:
            if row.sequence > self._from_sequence:
                frames.append(self._begin())
            events = self._encoder.chunk(decode(row.text))
            if row.sequence > self._from_sequence:
                frames.append(_frames(events, row.sequence))
        return b"".join(frames)

    def _begin(self) -> bytes:
        if self._begun:
            return b""
        self._begun = True
        return _frames(self._encoder.begin())


def _frames(events: Iterable[dict[str, Any]], sequence: int | None = None) -> bytes:
    """Return events as SSE. The id comes with the last one: a client that lost some of them gets all of them again."""
    texts = [f"data: {encode(event)}\n\n" for event in events]
    if texts and sequence is not None:
        texts[-1] = f"id: {sequence}\n{texts[-1]}"
    return "".join(texts).encode()


class AgUiStream(NamedTuple):
    """The AG-UI format. `run_id`: the client's name of the run."""

    run_id: str | None = None

    async def encoder(self, context: ServerContext, session: SessionState) -> TurnEncoder:
        """Return an encoder that knows the state with which the turn started."""
        run = await context.store.get_current_run(session.session_id)
        state = await state_at(context.store, session, run.first_step if run else 0)
        return AgUiEncoder(session.session_id, self.run_id or (run.run_id if run else session.session_id), state)

    def framing(self) -> Framing:
        """Return what surrounds the events."""
        return Framing()


class UiMessageStream(NamedTuple):
    """The UI message stream of the AI SDK, which is one assistant message.

    `continues`: the client has the message up to the position. `can_reset`: the client can take back an open step.
    """

    message_id: str
    continues: bool = False
    can_reset: bool = True

    async def encoder(self, context: ServerContext, session: SessionState) -> TurnEncoder:
        """Return an encoder for the message."""
        return UiMessageEncoder(self.message_id, continues=self.continues, can_reset=self.can_reset)

    def framing(self) -> Framing:
        """Return what surrounds the parts."""
        return Framing(((b"x-vercel-ai-ui-message-stream", b"v1"),), DONE)


async def translated(
    call: Call, session: SessionState, form: AgUiStream | UiMessageStream, *, from_sequence: int
) -> EventStream:
    """Return a session's stream after a position, in one of the formats."""
    context = call.context
    slot = context.occupancy.stream_slot(call.user)
    try:
        feed = slot.attach(
            await open_feed(
                context.executor,
                session,
                from_sequence=from_sequence,
                whole_turn=True,
                heartbeat_seconds=context.limits.heartbeat_seconds,
            )
        )
        encoder = await form.encoder(context, session)
    except BaseException:
        slot.release()
        raise
    return EventStream(feed, Translation(encoder, form.framing(), from_sequence=from_sequence), slot.release)


async def state_at(store: StateStore, session: SessionState, step_count: int) -> Json:
    """Return custom state after this many steps: the state at the start of a turn."""
    offset = 0
    while True:
        page = await store.list_checkpoints(session.session_id, limit=MAX_CHECKPOINTS, offset=offset)
        for listed in page.items:
            if listed.step_count <= step_count:
                found = await store.get_checkpoint(session.session_id, listed.checkpoint_id)
                return found.state.custom_state if found is not None else await _state_now(store, session)
        offset += len(page.items)
        if not page.has_more or not page.items:
            return await _state_now(store, session)


async def _state_now(store: StateStore, session: SessionState) -> Json:
    found = await store.load_conversation(session.session_id, last=0)
    return None if found is None else found.session.custom_state
