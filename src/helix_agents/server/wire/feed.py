"""Feed: what a client of a session's stream gets, in order, over any protocol: open, chunks, the final event.

The executor's `Follower` reads; a feed turns what it reads into events. Bytes are up to `framing.py`. It knows
nothing about users, except that its session must stay the one it was opened for.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Literal, NamedTuple

from ...chunks import Chunk
from ...codec import Json
from ...errors import SessionNotFound, StoreError, StreamCursorAhead, StreamTruncated
from ...executor import AgentExecutor, Follower, StreamPlace, all_waiting, open_requests, stream_of
from ...failures import DELETED_REASON
from ...safe_text import get_logger
from ...streams.contract import StreamOutcome
from ...streams.reader import DELETED
from ...streams.records import StoredText
from ...types import PendingClientToolCall, SessionState
from ..access import reload_session

logger = get_logger("helix_agents.server")

EventName = Literal["open", "end", "fail", "pause", "truncated", "gone"]


class Event(NamedTuple):
    """Anything but a chunk.

    `asks`: the chunks that ask the questions of a session that waits, for formats that take them from the stream. It
    does not have them if the branch, or the checkpoint, of the questions has come back.
    """

    name: EventName
    data: dict[str, Json]
    asks: tuple[Chunk, ...] = ()


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
        follower: Follower,
        *,
        from_sequence: int,
        latest_sequence: int,
        follow: bool,
    ) -> None:
        self.session = session
        self.from_sequence = from_sequence
        self._executor = executor
        self._follower = follower
        self._latest_sequence = latest_sequence
        self._follow = follow
        self._closing: asyncio.Task[None] | None = None

    def close(self) -> None:
        """End the feed; without a final event, if there was none. Safe to call twice and from another task."""
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._follower.close())

    async def items(self) -> AsyncGenerator[Item, None]:
        """Yield everything in order. Ends after a final event, or without one if the client should reconnect."""
        yield Event("open", self._opening())
        try:
            while (item := await self._next()) is not None:
                yield item
                if isinstance(item, Event) and not (self._follow and item.name in ("end", "pause")):
                    return
        except StreamTruncated as error:
            yield Event("truncated", {"first_sequence": error.first_sequence})
        except (SessionNotFound, StreamCursorAhead):
            yield GONE
        except StoreError as error:
            # No final event: the client reconnects, perhaps to another process.
            logger.warning("The stream of session %r was interrupted: %s", self.session.session_id, error)

    async def _next(self) -> Item | None:
        """Return what comes next; None once the feed is closed."""
        follower = self._follower
        while self._closing is None:
            rows = await follower.read()
            if rows:
                return Chunks(rows)
            if follower.is_closed or self._closing is not None:
                break
            if follower.outcome is None:
                return Heartbeat()
            final = await final_event(self._executor, self.session, follower.outcome)
            follower.go_on()
            if final is not None:
                return final
        return None

    def _opening(self) -> dict[str, Json]:
        return {
            "session_id": self.session.session_id,
            "status": self.session.status,
            "from_sequence": self.from_sequence,
            "latest_sequence": self._latest_sequence,
            "step_count": self.session.step_count,
        }


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
    info = await stream_of(executor.services.streams, session)
    start = from_sequence
    if whole_turn and info is not None and info.first_sequence <= from_sequence <= info.latest_sequence:
        start = info.first_sequence - 1
    place = StreamPlace(
        session.session_id,
        session.stream_id,
        start,
        follow=follow,
        wait=True,
        incarnation=session.incarnation,
        unclaimed=not session.owner_epoch,
    )
    follower = Follower(executor.services, place, heartbeat_seconds=heartbeat_seconds)
    return Feed(
        executor,
        await follower.open() or session,
        follower,
        from_sequence=from_sequence,
        latest_sequence=info.latest_sequence if info else 0,
        follow=follow,
    )


async def final_event(executor: AgentExecutor, seen: SessionState, outcome: StreamOutcome) -> Event | None:
    """Return what the end of a stream means for its session; None if the session has continued since.

    Raises `SessionNotFound` if the session is gone or was replaced.
    """
    if outcome is DELETED or (outcome.status == "failed" and outcome.error == DELETED_REASON):
        return GONE
    if outcome.status == "ended":
        return Event("end", {"status": "completed", "output": outcome.final_output})
    session = (await reload_session(executor.services.store, seen)).session
    if outcome.status == "failed":
        return Event("fail", {"error": outcome.error})
    return None if session.status == "active" else await _pause(executor, session)


async def _pause(executor: AgentExecutor, session: SessionState) -> Event:
    store, now = executor.services.store, executor.services.clock()
    waits = await all_waiting(store, session, now)
    data: dict[str, Json] = {"status": session.status, "suspended": [as_question(wait) for wait in waits]}
    return Event("pause", data, tuple(await open_requests(store, session, now)))


def as_question(pending: PendingClientToolCall) -> dict[str, Json]:
    """Return a pending call as clients see it."""
    return {
        "tool_call_id": pending.tool_call_id,
        "tool_name": pending.tool_name,
        "input": pending.input,
        "kind": pending.kind,
        "approval_id": pending.approval_id,
        "deadline_at": pending.deadline_at,
        **({"question": pending.asked.question} if pending.later == "asked" and pending.asked else {}),
        **({} if pending.effect is None else {"effect_key": pending.effect.key, "recorded": pending.effect.recorded}),
    }
