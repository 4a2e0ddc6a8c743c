"""The route that AG-UI clients expect: `POST /agui/{agent}`."""

from __future__ import annotations

import hashlib
from typing import Any, Literal

import msgspec
from starlette.types import ASGIApp

from ...codec import encode
from ...errors import InvalidArgument
from ...executor import all_waiting
from ...types import QuestionKind, SessionState
from ..answers import ToolResult
from ..context import ServerContext
from ..conversation import Said, continue_conversation, session_of
from ..endpoints import Call, Endpoint
from ..requests import Id, NewId, convert
from ..wire.content import agui_content
from ..wire.translate import AgUiStream, translated

CANCELLED = "The user cancelled this call."


class ResumeEntry(msgspec.Struct):
    """The response to an interrupt of an earlier run."""

    interruptId: str
    status: Literal["resolved", "cancelled"] = "resolved"
    payload: Any = None


class RunAgentInput(msgspec.Struct):
    """What an AG-UI client sends. Fields without a meaning here are ignored.

    Messages that end with a stored user message whose turn is over ask for another reply to it, and so does
    `forwardedProps` with `"regenerate": true`.
    """

    threadId: NewId
    runId: Id
    messages: list[dict[str, Any]] = []
    resume: list[ResumeEntry] | None = None
    forwardedProps: Any = None


async def agui(call: Call) -> ASGIApp:
    """Run an agent for an AG-UI client."""
    given = await call.body(RunAgentInput)
    session = await session_of(call, given.threadId)
    said = user_messages(given.messages)
    if given.resume and session is None:
        raise InvalidArgument(f"Thread {given.threadId!r} has no interrupt to resume.")
    answers: list[ToolResult] = []
    if session is not None:
        answers = await _answers(call.context, session, given)
    last = given.messages[-1] if given.messages else {}
    options = given.forwardedProps if isinstance(given.forwardedProps, dict) else {}
    found = await continue_conversation(
        call,
        session,
        given.threadId,
        said,
        answers,
        edits=last.get("id") if last.get("role") == "user" else None,
        regenerates=options.get("regenerate") is True and not answers,
        key=_key(given),
    )
    return await translated(call, found.session, AgUiStream(given.runId), from_sequence=found.from_sequence)


def _key(given: RunAgentInput) -> str:
    """Return the key of a request, so that it runs once even if it is sent again."""
    return f"agui-{hashlib.sha256(encode([given.runId, given.messages]).encode()).hexdigest()}"


def user_messages(messages: list[dict[str, Any]]) -> list[Said]:
    """Return the user messages of a conversation. Raises `InvalidArgument` for content that cannot be kept."""
    found = []
    for index, message in enumerate(messages):
        if message.get("role") == "user" and (content := agui_content(message)):
            found.append(Said(index, content, message.get("id")))
    return found


async def _answers(context: ServerContext, session: SessionState, given: RunAgentInput) -> list[ToolResult]:
    services = context.executor.services
    waits = await all_waiting(services.store, session, services.clock())
    if given.resume:
        kinds = {name: wait.kind for wait in waits for name in (wait.approval_id, wait.tool_call_id)}
        return [_resume_answer(entry, kinds.get(entry.interruptId, "client")) for entry in given.resume]
    pending = {wait.tool_call_id for wait in waits}
    return [
        _tool_answer(message)
        for message in _trailing_tool_messages(given.messages)
        if message.get("toolCallId") in pending
    ]


def _resume_answer(entry: ResumeEntry, kind: QuestionKind) -> ToolResult:
    """Read a response. Only `true` and `{"approved": true}` approve; anything unclear is rejected."""
    call_id = entry.interruptId  # of the call, or of the approval that was asked for
    if entry.status == "cancelled":
        if kind == "outcome":
            return ToolResult(call_id, happened=None, reason=CANCELLED)
        return ToolResult(call_id, approved=False) if kind == "approval" else ToolResult(call_id, error=CANCELLED)
    match entry.payload:
        case bool(approved):
            return ToolResult(call_id, approved=approved)
        case {"approved": bool(approved), **rest} if rest.keys() <= {"arguments", "reason"}:
            return convert({"tool_call_id": call_id, "approved": approved, **rest}, ToolResult)
        case {"happened": bool() | None as happened, **rest} if rest.keys() <= {"result", "reason"}:
            return convert({"tool_call_id": call_id, "happened": happened, **rest}, ToolResult)
        case {"result": result, **rest} if not rest:
            return ToolResult(call_id, result=result)
        case {"error": str(error), **rest} if not rest:
            return ToolResult(call_id, error=error)
    raise InvalidArgument(
        f"The payload for interrupt {entry.interruptId!r} is invalid. For an approval, send true, false or "
        '{"approved": true | false, "arguments"?: {...}, "reason"?: "..."}; '
        'for a tool of the client, send {"result": ...} or {"error": "..."}; '
        'for an unknown outcome, send {"happened": true | false | null, "result"?: ..., "reason"?: "..."}.'
    )


def _trailing_tool_messages(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the results of tools at the end of a conversation."""
    count = 0
    for message in reversed(messages):
        if message.get("role") != "tool":
            break
        count += 1
    return messages[len(messages) - count :]


def _tool_answer(message: dict[str, Any]) -> ToolResult:
    if isinstance(error := message.get("error"), str):
        return ToolResult(tool_call_id=message["toolCallId"], error=error)
    return ToolResult(tool_call_id=message["toolCallId"], result=message.get("content"))


ENDPOINTS = (
    Endpoint(
        "POST",
        "/agui/{agent:id}",
        agui,
        "Run an agent for an AG-UI client",
        body=RunAgentInput,
        returns=bytes,
        tag="chat",
    ),
)
