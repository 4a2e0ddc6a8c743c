"""Listings of the model: look at every session, compare, sort. Nothing is indexed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from ....stores.state.contract import UNSET, Unset
from ....types import Claimable, Page, SessionState, SessionStatus
from .session import Session


def newest_first(
    sessions: Mapping[str, Session],
    *,
    user_id: str | None,
    agent_type: str | None,
    status: SessionStatus | Iterable[SessionStatus] | None,
    parent_session_id: str | Unset | None,
    tags: Sequence[str],
    metadata: Mapping[str, str] | None,
    created_from: int | None,
    created_to: int | None,
    expires_before: int | None,
) -> list[SessionState]:
    """Return the sessions that match all filters."""
    statuses = {status} if isinstance(status, str) else set(status) if status is not None else None

    def fits(it: SessionState) -> bool:
        return (
            (user_id is None or it.user_id == user_id)
            and (agent_type is None or it.agent_type == agent_type)
            and (statuses is None or it.status in statuses)
            and (parent_session_id is UNSET or it.parent_session_id == parent_session_id)
            and set(tags) <= set(it.tags)
            and (metadata or {}).items() <= it.metadata.items()
            and (created_from is None or it.created_at >= created_from)
            and (created_to is None or it.created_at < created_to)
            and (expires_before is None or (it.expires_at is not None and it.expires_at < expires_before))
        )

    found = [it.state for it in sessions.values() if fits(it.state)]
    return sorted(found, key=lambda it: (it.created_at, it.session_id), reverse=True)


def page_of(
    found: list[SessionState], *, limit: int, offset: int, cursor: str | None, count: bool
) -> Page[SessionState]:
    """Return one page of sorted sessions."""
    total = len(found)
    if cursor is not None:
        created_at, _, last = cursor.partition(" ")
        found = [it for it in found if (it.created_at, it.session_id) < (int(created_at), last)]
    items = [msgspec.structs.replace(it, custom_state=None) for it in found[offset : offset + limit]]
    more = len(found) > offset + limit
    behind = f"{items[-1].created_at} {items[-1].session_id}" if more and items else None
    return Page(items, total if count else None, offset, limit, more, behind)


def due_first(
    sessions: Mapping[str, Session],
    now: int,
    *,
    agent_types: Iterable[str] | None,
    status: SessionStatus | Iterable[SessionStatus] | None,
) -> dict[str, Claimable]:
    """Return the sessions that a worker can continue or close, longest waiting first, by a string that sorts
    the same way."""
    statuses = None if status is None else {status} if isinstance(status, str) else set(status)
    types = None if agent_types is None else set(agent_types)
    found = {}
    for session in sessions.values():
        state, run = session.state, session.runs[-1] if session.runs else None
        is_open = run is not None and run.status == "running"
        moment = (run.lease_until or 0) if run and is_open else session.due_at
        fits = (statuses is None or state.status in statuses) and (types is None or state.agent_type in types)
        if moment is not None and moment <= now and fits and state.parent_session_id is None:
            started_at = run.started_at if run and is_open else 10**17
            place = f"{moment:018} {started_at:018} {state.session_id}"
            found[place] = Claimable(msgspec.structs.replace(state, custom_state=None), run, moment)
    return dict(sorted(found.items()))
