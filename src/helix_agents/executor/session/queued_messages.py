"""Messages that arrived during a run: stored in the session, in order, each read exactly once.

A guarded write on an active session adds a message (`queued_messages`). The run reads it in the commit of a step: one
atomic write appends it to the conversation and removes it from the queue. Both are guarded by the session's version, so
the second write sees the first: a run cannot end with an unread message in its queue. Messages left by a run that
stops, fails or dies are read by the next one, in its claim or its first step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from ...clock import IdSource
from ...errors import SessionNotFound
from ...messages import Message, identified
from ...stores.state.contract import StateStore
from ...types import SessionState
from .questions import change_session

IfExists = Literal["continue", "reject"]
"""What to do with a message for a session that exists."""

IfRunning = Literal["reject", "enqueue", "interrupt"]
"""What to do with a message for a session that is running."""


class NewlyQueued(Exception):
    """A message arrived just before a commit, so the step must be decided again."""


async def enqueue(
    store: StateStore, ids: IdSource, seen: SessionState, messages: Sequence[Message]
) -> SessionState | None:
    """Store messages for the run that owns the session; return None if the session has stopped since.

    Raises `SessionNotFound` if another session has the id by now.
    Each message gets an id. The run replaces it if the conversation already has a message with that id.
    """
    with_ids = [identified([message], (), ids())[0] for message in messages]
    entries: list[dict[str, Any]] = [{"id": f"queued-{ids()}", "message": message} for message in with_ids]
    added = False

    def add(session: SessionState) -> SessionState | None:
        nonlocal added
        if session.incarnation != seen.incarnation:
            raise SessionNotFound(seen.session_id)
        added = session.status == "active"
        if not added or entries[0] in session.queued_messages:
            return None
        return msgspec.structs.replace(session, queued_messages=[*session.queued_messages, *entries])

    session = await change_session(store, seen.session_id, add)
    return session if added else None


def queued_in(session: SessionState) -> list[Message]:
    """Return the queued messages in order."""
    return [entry["message"] for entry in session.queued_messages]


def in_order(session: SessionState, claimed: SessionState, given: Sequence[Message]) -> list[Message]:
    """Return the user's messages of an open step in order: queued at the claim, given with it, queued since."""
    known = [entry["id"] for entry in claimed.queued_messages]
    before = [entry["message"] for entry in session.queued_messages if entry["id"] in known]
    since = [entry["message"] for entry in session.queued_messages if entry["id"] not in known]
    return [*before, *given, *since]


def taken_from(session: SessionState) -> list[str]:
    """Return the ids of queued messages, for the commit that removes them."""
    return [entry["id"] for entry in session.queued_messages]


def ensure_all_taken(session: SessionState, taken: Sequence[str]) -> None:
    """Raise `NewlyQueued` if the session has queued messages that the commit does not contain."""
    if any(entry["id"] not in taken for entry in session.queued_messages):
        raise NewlyQueued
