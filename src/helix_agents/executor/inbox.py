"""List open questions to people and clients across all sessions, by the index of suspended ones.

A question is listed once its run has stopped. It stays until it is answered, its deadline passes, or the session
continues without it.
"""

from __future__ import annotations

import base64
from typing import NamedTuple

import msgspec

from ..codec import Json, decode, encode
from ..errors import InvalidArgument, StoreCorrupt, shown
from ..retry import CONFLICT
from ..stores.paging import ensure_limit
from ..stores.state.contract import StateStore
from ..stores.state.validate import to_cursor
from ..types import Page, PendingClientToolCall, QuestionKind, SessionState, SessionStatus
from .session.questions import waiting

ASKING: tuple[SessionStatus, ...] = ("suspended_client_tool", "suspended_step_partial")
"""The statuses of sessions that have open questions of their own."""


class Waiting(msgspec.Struct, frozen=True):
    """An open question. Respond with `submit_tool_result(session_id, tool_call_id, ...)`.

    `kind`: `approval` needs `approved=`, `client` needs `result=` or `error=`, `outcome` needs `happened=`; `deferred`
    waits for a job, whose `result=` or `error=` may also be given here. `since`: when it was asked. `effect_key`: the
    effect whose outcome is unknown. `question`: what a tool asks with `ctx.ask`; the `result=` is its answer.
    """

    session_id: str
    root_session_id: str
    tool_call_id: str
    tool_name: str
    input: Json
    kind: QuestionKind
    approval_id: str | None
    deadline_at: int | None
    since: int
    agent_type: str
    user_id: str | None
    effect_key: str | None = None
    question: Json = None


class _Position(NamedTuple):
    """The position after the session at `after`, a cursor of the store, and after one call of the next session."""

    after: str | None = None
    session_id: str = ""
    tool_call_id: str = ""


async def list_waiting(
    store: StateStore, now: int, *, user_id: str | None, agent_type: str | None, limit: int, cursor: str | None
) -> Page[Waiting]:
    """Return one page of open questions, newest sessions first."""
    ensure_limit(limit)
    position = _Position() if cursor is None else _from_cursor(cursor)
    found: list[Waiting] = []
    for _ in CONFLICT.attempts():
        page = await store.list_sessions(
            user_id=user_id, agent_type=agent_type, status=ASKING, limit=limit, cursor=position.after, count=False
        )
        for session in page.items:
            for pending in _in_order(session, now):
                if session.session_id == position.session_id and pending.tool_call_id <= position.tool_call_id:
                    continue
                if len(found) == limit:
                    return _page(found, limit, position)
                found.append(_waiting(session, pending))
                position = _Position(position.after, session.session_id, pending.tool_call_id)
            position = _Position(to_cursor(session.created_at, session.session_id))
        if not page.has_more:
            return _page(found, limit, None)
    return _page(found, limit, position)


def _in_order(session: SessionState, now: int) -> list[PendingClientToolCall]:
    questions = [pending for pending in waiting(session, now) if pending.kind != "timer"]
    return sorted(questions, key=lambda pending: pending.tool_call_id)


def _waiting(session: SessionState, pending: PendingClientToolCall) -> Waiting:
    return Waiting(
        session_id=session.session_id,
        root_session_id=session.root_session_id or session.session_id,
        tool_call_id=pending.tool_call_id,
        tool_name=pending.tool_name,
        input=pending.input,
        kind=pending.kind,
        approval_id=pending.approval_id,
        deadline_at=pending.deadline_at,
        since=session.updated_at if pending.asked_at is None else pending.asked_at,
        agent_type=session.agent_type,
        user_id=session.user_id,
        effect_key=pending.effect.key if pending.effect else None,
        question=pending.asked.question if pending.asked and pending.later == "asked" else None,
    )


def _page(found: list[Waiting], limit: int, position: _Position | None) -> Page[Waiting]:
    cursor = None if position is None else base64.urlsafe_b64encode(encode([*position]).encode()).decode().rstrip("=")
    return Page(found, None, 0, limit, cursor is not None, cursor)


def _from_cursor(cursor: str) -> _Position:
    try:
        parts: Json = decode(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        return msgspec.convert(parts, _Position)
    except (ValueError, TypeError, AttributeError, RecursionError, StoreCorrupt) as error:
        raise InvalidArgument(f"{shown(cursor)} is not a cursor: use the next_cursor of an earlier page.") from error
