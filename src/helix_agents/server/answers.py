"""Responses of people and clients to pending calls: one way in, whichever protocol they came by."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from ..codec import Json
from ..errors import AlreadyRunning, InvalidArgument, NotResumable
from ..types import SessionState
from .auth import User
from .context import ServerContext


class ToolResult(msgspec.Struct, forbid_unknown_fields=True):
    """The response to a pending call: exactly one of `result`, `error`, `approved` and `happened`.

    `happened` says whether a call whose outcome is unknown took effect; null: unknown. True may have a `result`.

    Name a question to a person by its `approval_id`: it is rejected if something else has been asked for since then.
    """

    tool_call_id: str | None = None
    approval_id: str | None = None
    result: Any | UnsetType = UNSET
    error: str | UnsetType = UNSET
    approved: bool | UnsetType = UNSET
    happened: bool | UnsetType | None = UNSET
    arguments: dict[str, Any] | UnsetType = UNSET
    reason: str | None = None
    resume: bool = True


class Receipt(msgspec.Struct, omit_defaults=True):
    """The outcome of a response, and the run that continues with it."""

    receipt: str
    can_resume: bool
    run_id: str | None = None


async def submit_answer(context: ServerContext, user: User, session: SessionState, given: ToolResult) -> Receipt:
    """Submit a response on behalf of a user and, once nothing is pending, let the run continue."""
    answer: dict[str, Json] = {
        name: value
        for name, value in msgspec.structs.asdict(given).items()
        if name in ("result", "error", "approved", "arguments", "happened") and value is not UNSET
    }
    if "arguments" in answer and answer.get("approved") is not True:
        raise InvalidArgument("`arguments` requires approved=true.")
    receipt = await context.executor.submit_tool_result(
        session.session_id,
        given.tool_call_id,
        approval_id=given.approval_id,
        **answer,
        reason=given.reason,
        answered_by=user.owner_id,
        user_id=session.user_id,
    )
    root_id = session.root_session_id or session.session_id
    can_resume = (await context.executor.can_resume(root_id)).can_resume
    run_id = await continue_session(context, root_id) if can_resume and given.resume else None
    return Receipt(receipt.status, can_resume, run_id)


async def continue_session(context: ServerContext, session_id: str) -> str | None:
    """Resume a session whose responses are complete, unless another process does so at the same time."""
    seen = await context.store.load_conversation(session_id, last=0, custom_state=False)
    if seen is None or seen.session.agent_type not in context.executor.agents:
        return None
    try:
        return (await context.executor.resume(seen.session.agent_type, session_id)).run_id
    except (AlreadyRunning, NotResumable):
        run = await context.store.get_current_run(session_id)
        return run.run_id if run else None
