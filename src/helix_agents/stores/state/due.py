"""Compute when a worker can continue a waiting session. Pure; called with each write.

A session that is active is found by the lease of its run instead.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...lifecycle import WAITING
from ...types import SessionState


def due_at(session: SessionState, now: int) -> int | None:
    """Return when a worker can continue a root session that waits; None if it does not depend on time.

    A paused session is due at `wake_at`. A suspended one with no open question is due now; otherwise when the last
    question expires, or at `wake_at` if that is earlier. A past time counts as now.
    """
    if session.status not in WAITING or session.parent_session_id is not None:
        return None
    if session.status == "paused":
        return None if session.wake_at is None else max(session.wake_at, now)
    deadlines = list(_open_deadlines(session))
    if not deadlines and session.wake_at is None:
        return now
    last = None if not deadlines or None in deadlines else max(each for each in deadlines if each is not None)
    first = min((each for each in (last, session.wake_at) if each is not None), default=None)
    return None if first is None else max(first, now)


def _open_deadlines(session: SessionState) -> Iterator[int | None]:
    """Yield the deadline of everything that the session waits for; None if there is no deadline."""
    for call in session.pending_client_tool_calls.values():
        if call.submitted_at is None:
            yield call.deadline_at
    for wait in session.suspended_awaiting_children.values():
        # An answer to a descendant's question is noted in the root session.
        if any(call_id not in session.completed_client_tool_calls for call_id in wait.tool_call_ids):
            yield wait.deadline_at
