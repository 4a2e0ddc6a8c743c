"""Feed: what a client of a session's stream gets, in order, over any protocol: open, chunks, the final event.

Replay and live are one path (the reader's). A feed knows sessions and streams; it knows no bytes (`framing.py`), and of
users only that its session must stay the one it was opened for.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Literal, NamedTuple

from ...codec import Json
from ...errors import SessionNotFound, StoreError, StreamCursorAhead, StreamTruncated
from ...executor import DELETED_REASON, AgentExecutor, all_waiting
from ...safe_text import get_logger
from ...streams.contract import StreamOutcome, StreamReader
from ...streams.reader import DELETED
from ...streams.records import StoredText
from ...types import PendingClientToolCall, SessionState
from ..access import reload_session

logger = get_logger("helix_agents.server")

FIRST_POLL_SECONDS = 0.05
LAST_POLL_SECONDS = 1.0

EventName = Literal["open", "end", "fail", "pause", "truncated", "gone"]


class Event(NamedTuple):
    """Anything but a chunk."""

    name: EventName
    data: dict[str, Json]


class Chunks(NamedTuple):
    """Chunks that are ready together."""

    rows: list[StoredText]


class Heartbeat(NamedTuple):
    """No chunk arrived recently, so a heartbeat is sent to keep the connection open."""


Item = Event | Chunks | Heartbeat

GONE = Event("gone", {})


class Feed:
    """One client's view of one session's stream. Create it with `open_feed`."""

    def __init__(
        self,
        executor: AgentExecutor,
        session: SessionState,
        reader: StreamReader | None,
        *,
        from_sequence: int,
        latest_sequence: int,
        follow: bool,
        heartbeat_seconds: float,
    ) -> None:
        self.session = session
        self.from_sequence = from_sequence
        self._executor = executor
        self._reader = reader
        self._latest_sequence = latest_sequence
        self._follow = follow
        self._heartbeat_seconds = heartbeat_seconds
        self._closed = asyncio.Event()
        self._closing: asyncio.Task[None] | None = None

    def close(self) -> None:
        """End the feed; without a final event, if there was none. Safe to call twice and from another task."""
        if self._closed.is_set():
            return
        self._closed.set()
        if self._reader is not None:
            self._closing = asyncio.get_running_loop().create_task(self._reader.close())

    async def items(self) -> AsyncGenerator[Item, None]:
        """Yield everything in order. Ends after a final event, or without one if the client should reconnect."""
        yield Event("open", self._opening())
        try:
            while self._reader is None:
                final = None if self._follow else await final_event_without_stream(self._executor, self.session)
                if final is not None:
                    yield final
                    return
                if not await self._wait_for_stream():
                    return
                if self._reader is None:
                    yield Heartbeat()
            async for item in self._read(self._reader):
                yield item
        except StreamTruncated as error:
            yield Event("truncated", {"first_sequence": error.first_sequence})
        except (SessionNotFound, StreamCursorAhead):
            yield GONE
        except StoreError as error:
            # No final event: the client reconnects, perhaps to another process.
            logger.warning("The stream of session %r was cut: %s", self.session.session_id, error)

    async def _read(self, reader: StreamReader) -> AsyncGenerator[Item, None]:
        while True:
            rows = await reader.read(timeout_seconds=self._heartbeat_seconds)
            if rows:
                yield Chunks(rows)
                continue
            if self._closed.is_set():
                return
            if reader.outcome is None:
                yield Heartbeat()
                continue
            final = await final_event(self._executor, self.session, reader.outcome)
            if final is not None:
                yield final
                if not self._follow or final.name not in ("end", "pause"):
                    return
            reader.go_on()

    def _opening(self) -> dict[str, Json]:
        return {
            "session_id": self.session.session_id,
            "status": self.session.status,
            "from_sequence": self.from_sequence,
            "latest_sequence": self._latest_sequence,
            "step_count": self.session.step_count,
        }

    async def _wait_for_stream(self) -> bool:
        """Look for the stream until a heartbeat is due; False if the feed was closed. Raises `SessionNotFound`."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._heartbeat_seconds
        delay_seconds = FIRST_POLL_SECONDS
        while loop.time() < until:
            try:
                async with asyncio.timeout(delay_seconds):
                    await self._closed.wait()
                return False
            except TimeoutError:
                delay_seconds = min(delay_seconds * 2, LAST_POLL_SECONDS)
            reader = await self._executor.services.streams.create_resumable_reader(
                self.session.stream_id, from_sequence=self.from_sequence
            )
            self.session = await _still_the_same(self._executor, self.session, reader)
            self._reader = reader
            if self._reader is not None or (self.session.status != "active" and not self._follow):
                return True
        return True


async def open_feed(
    executor: AgentExecutor,
    session: SessionState,
    *,
    from_sequence: int,
    follow: bool = False,
    whole_turn: bool = False,
    heartbeat_seconds: float,
) -> Feed:
    """Return a feed from a position of the stream.

    Raises `StreamTruncated`, `StreamCursorAhead` or `SessionNotFound` while an error response is still possible.
    `whole_turn`: also the chunks before that position, for encoders that must know what is open there.
    """
    streams = executor.services.streams
    info = await streams.get_stream_info(session.stream_id)
    reader = await streams.create_resumable_reader(session.stream_id, from_sequence=from_sequence)
    if whole_turn and info is not None and reader is not None and info.first_sequence <= from_sequence:
        await reader.close()
        first = info.first_sequence - 1
        reader = await streams.create_resumable_reader(session.stream_id, from_sequence=first)
    session = await _still_the_same(executor, session, reader)
    return Feed(
        executor,
        session,
        reader,
        from_sequence=from_sequence,
        latest_sequence=info.latest_sequence if info else 0,
        follow=follow,
        heartbeat_seconds=heartbeat_seconds,
    )


async def _still_the_same(executor: AgentExecutor, seen: SessionState, reader: StreamReader | None) -> SessionState:
    """Load the session after its stream was opened. Raises `SessionNotFound` if the stream may be another session's.

    The id of a stream may belong to another session by now. The reader stays with the stream it opened.
    """
    try:
        return await reload_session(executor.services.store.load_state, seen)
    except SessionNotFound:
        if reader is not None:
            await reader.close()
        raise


async def final_event(executor: AgentExecutor, seen: SessionState, outcome: StreamOutcome) -> Event | None:
    """Return what the end of a stream means for its session; None if the session has continued already.

    Raises `SessionNotFound` if the session is gone or was replaced.
    """
    if outcome is DELETED or (outcome.status == "failed" and outcome.error == DELETED_REASON):
        return GONE
    if outcome.status == "ended":
        return Event("end", {"status": "completed", "output": outcome.final_output})
    session = await reload_session(executor.services.store.load_state, seen)
    if outcome.status == "failed":
        return Event("fail", {"error": outcome.error})
    return None if session.status == "active" else await _pause(executor, session)


async def final_event_without_stream(executor: AgentExecutor, session: SessionState) -> Event | None:
    """Return the final event of a stopped session whose stream has expired, or that never had one (a fork)."""
    if session.status == "active":
        return None
    if session.status == "completed":
        return Event("end", {"status": "completed", "output": session.output})
    if session.status == "failed":
        return Event("fail", {"error": session.error})
    return await _pause(executor, session)


async def _pause(executor: AgentExecutor, session: SessionState) -> Event:
    waits = await all_waiting(executor.services.store, session, executor.services.clock())
    return Event("pause", {"status": session.status, "suspended": [as_question(wait) for wait in waits]})


def as_question(pending: PendingClientToolCall) -> dict[str, Json]:
    """Return a pending call as clients see it."""
    return {
        "tool_call_id": pending.tool_call_id,
        "tool_name": pending.tool_name,
        "input": pending.input,
        "kind": pending.kind,
        "approval_id": pending.approval_id,
        "deadline_at": pending.deadline_at,
        **({} if pending.effect is None else {"effect_key": pending.effect.key, "recorded": pending.effect.recorded}),
    }
