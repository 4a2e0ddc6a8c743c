"""Routes that change a conversation: regenerate, edit, and switch to another branch."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from starlette.responses import Response

from ...types import SessionState
from ..endpoints import Call, Endpoint, Handler
from ..requests import Id, json_response
from .runs import RunLimits, Started, idempotency_key, started, usage_limits

IfRunning = Literal["reject", "interrupt"]


class Regenerate(msgspec.Struct, forbid_unknown_fields=True):
    """The reply to produce again; the last one unless `message_id` names another."""

    message_id: Id | None = None
    if_running: IfRunning = "reject"
    limits: RunLimits | None = None


class Edit(msgspec.Struct, forbid_unknown_fields=True):
    """A user message and the content that replaces it."""

    message_id: Id
    content: str | list[dict[str, Any]]
    if_running: IfRunning = "reject"
    limits: RunLimits | None = None


class BranchItem(msgspec.Struct):
    """A branch. Branches with the same `message_id` diverge after that message; null: their first messages differ."""

    branch_id: str
    message_id: str | None
    message_count: int
    created_at: int
    is_active: bool


class Branches(msgspec.Struct):
    """The branches of a conversation, ordered by where they diverge."""

    items: list[BranchItem]


async def regenerate(call: Call) -> Response:
    """Run a turn again."""
    given = await call.body(Regenerate)
    session, options = await _options(call, given)
    with call.starting_run():
        handle = await call.context.executor.regenerate(session.session_id, message_id=given.message_id, **options)
    return json_response(started(call.request, handle), 202)


async def edit(call: Call) -> Response:
    """Replace a user message, and run from there."""
    given = await call.body(Edit)
    session, options = await _options(call, given)
    with call.starting_run():
        handle = await call.context.executor.edit(session.session_id, given.message_id, given.content, **options)
    return json_response(started(call.request, handle), 202)


async def _options(call: Call, given: Regenerate | Edit) -> tuple[SessionState, dict[str, Any]]:
    """Return the session and the options that both routes share. Only agents that clients may start are run."""
    session = await call.session()
    agent = call.context.agent(session.agent_type)
    options = {
        "agent": agent,
        "user_id": session.user_id,
        "if_running": given.if_running,
        "limits": usage_limits(agent, given.limits),
        "idempotency_key": idempotency_key(call.request),
    }
    return session, options


async def branches(call: Call) -> Response:
    """Return the branches of a conversation."""
    session = await call.session()
    found = await call.context.executor.list_branches(session.session_id, user_id=session.user_id)
    return json_response({"items": found})


async def switch(call: Call) -> Response:
    """Switch to another branch, and restore its state."""
    session = await call.session()
    branch_id = call.path("branch_id")
    return json_response(
        await call.context.executor.switch_branch(session.session_id, branch_id, user_id=session.user_id)
    )


def _of_session(method: str, path: str, handler: Handler, summary: str, status: int = 200, **rest: Any) -> Endpoint:
    return Endpoint(method, f"/sessions/{{session_id:id}}{path}", handler, summary, status, tag="branches", **rest)


KEYED: dict[str, Any] = {"returns": Started, "headers": ("Idempotency-Key",)}

ENDPOINTS = (
    _of_session("POST", "/regenerate", regenerate, "Run a turn again", 202, body=Regenerate, **KEYED),
    _of_session("POST", "/edit", edit, "Replace a user message", 202, body=Edit, **KEYED),
    _of_session("GET", "/branches", branches, "The branches of a conversation", returns=Branches),
    _of_session("POST", "/branches/{branch_id:id}/switch", switch, "Bring a branch back", returns=SessionState),
)
