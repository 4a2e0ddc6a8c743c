"""Streams in other formats: the feed of a turn, through one of the pure encoders, as Server-Sent Events.

Neither format has a cursor. Ours is the id of the SSE event: a client that joins at a position gets what is open there
opened again, then the rest.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, Protocol

from ...chunks import Chunk
from ...codec import Json, decode, encode
from ...stores.state.contract import StateStore
from ...types import RunRecord, SessionState
from ..context import ServerContext
from ..endpoints import Call
from .agui import AgUiEncoder
from .feed import Chunks, Heartbeat, Item, open_feed
from .feed import Event as FeedEvent
from .framing import HEARTBEAT, EventStream
from .ui_messages import UiMessageEncoder

Format = Literal["ag-ui", "ai-sdk"]

UI_MESSAGE_HEADERS = ((b"x-vercel-ai-ui-message-stream", b"v1"),)
DONE = b"data: [DONE]\n\n"
MAX_CHECKPOINTS = 200


class TurnEncoder(Protocol):
    """What `agui.py` and `ui_messages.py` have in common."""

    def begin(self) -> list[dict[str, Any]]:
        """Return the events that a connection starts with."""

    def chunk(self, chunk: Chunk) -> list[dict[str, Any]]:
        """Return the events for one chunk."""

    def end(self, name: str, data: dict[str, Json]) -> list[dict[str, Any]]:
        """Return the events for the final event of a feed."""


class Translation:
    """A feed through a turn's encoder. The encoder only learns from the chunks up to `from_sequence`."""

    def __init__(
        self,
        encoder: TurnEncoder,
        *,
        from_sequence: int,
        headers: tuple[tuple[bytes, bytes], ...] = (),
        last: bytes = b"",
    ) -> None:
        self.headers = headers
        self._encoder = encoder
        self._from_sequence = from_sequence
        self._last = last
        self._begun = False

    def encode(self, item: Item) -> bytes:
        """Return the frames for one item."""
        if isinstance(item, Heartbeat):
            return self._begin() + HEARTBEAT
        if isinstance(item, FeedEvent):
            if item.name == "open":
                return b"" if self._from_sequence else self._begin()
            return self._begin() + _frames(self._encoder.end(item.name, item.data)) + self._last
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


async def translated(
    call: Call, session: SessionState, form: Format, *, from_sequence: int, run_id: str | None = None
) -> EventStream:
    """Return a session's stream after a position, in one format. `run_id`: an AG-UI client's name of the run."""
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
        run = await context.store.get_current_run(session.session_id)
        translation = await _translation(context, session, run, form, from_sequence, run_id)
    except BaseException:
        slot.release()
        raise
    return EventStream(feed, translation, slot.release)


async def _translation(
    context: ServerContext,
    session: SessionState,
    run: RunRecord | None,
    form: Format,
    from_sequence: int,
    run_id: str | None,
) -> Translation:
    first_step = int(run.metadata.get("first_step", 0)) if run else 0
    if form == "ag-ui":
        state = await state_at(context.store, session, first_step)
        name = run_id or (run.run_id if run else session.session_id)
        return Translation(AgUiEncoder(session.session_id, name, state), from_sequence=from_sequence)
    # One message per turn: a run that continues after an approval continues the same message.
    encoder = UiMessageEncoder(f"{session.session_id}-{first_step}")
    return Translation(encoder, from_sequence=from_sequence, headers=UI_MESSAGE_HEADERS, last=DONE)


async def state_at(store: StateStore, session: SessionState, step_count: int) -> Json:
    """Return custom state after so many steps: what a turn started with."""
    offset = 0
    while True:
        page = await store.list_checkpoints(session.session_id, limit=MAX_CHECKPOINTS, offset=offset)
        for listed in page.items:
            if listed.step_count <= step_count:
                found = await store.get_checkpoint(session.session_id, listed.checkpoint_id)
                return found.state.custom_state if found is not None else session.custom_state
        offset += len(page.items)
        if not page.has_more or not page.items:
            return session.custom_state
