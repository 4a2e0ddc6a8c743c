"""The routes that the chat of the AI SDK expects: `useChat` with `api: /chat/{agent}`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from starlette.responses import Response
from starlette.types import ASGIApp

from ...errors import InvalidArgument
from ...executor import all_waiting
from ...lifecycle import SUSPENDED
from ...messages import Message
from ...types import PendingClientToolCall, SessionState
from ..answers import ToolResult
from ..context import ServerContext
from ..conversation import Said, continue_conversation, session_of, stored_user_messages, ui_message_stream
from ..endpoints import Call, Endpoint
from ..requests import NewId, convert, read_query
from ..wire.content import ai_sdk_content
from ..wire.translate import UiMessageStream, translated
from ..wire.ui_messages import reply_id


class ChatRequest(msgspec.Struct):
    """What the chat transport of the AI SDK sends. `message`: only the last message, instead of all of them."""

    id: NewId
    messages: list[dict[str, Any]] = []
    message: dict[str, Any] | None = None
    messageId: str | None = None
    trigger: Literal["submit-message", "regenerate-message"] = "submit-message"


class ChatQuery(msgspec.Struct):
    """`sdk`: the major version of the client. Version 6 cannot retract parts after a crash."""

    sdk: Literal[6, 7] = 7


async def chat(call: Call) -> ASGIApp:
    """Run an agent for the chat of the AI SDK."""
    query = read_query(call.request, ChatQuery)
    given = await call.body(ChatRequest)
    session = await session_of(call, given.id)
    said, regenerates = user_messages(given.messages), given.trigger == "regenerate-message"
    if given.message is not None:
        if given.messages:
            raise InvalidArgument("Send `messages`, the whole conversation, or `message`, the last one; not both.")
        stored = [] if session is None else await stored_user_messages(call.context, session)
        names_stored = regenerates or given.messageId is not None
        stored = stored[: _place(stored, given.message)] if names_stored else stored
        said = [*(Said(-1, message["content"]) for message in stored), *user_messages([given.message])]
    last = given.message or (given.messages[-1] if given.messages else {})
    if regenerates and (session is None or last.get("role") != "user"):
        raise InvalidArgument("regenerate-message needs a stored conversation, up to the user message to reply to.")
    answers = [] if session is None or regenerates else await _answers(call.context, session, last)
    found = await continue_conversation(
        call, session, given.id, said, answers, edits=given.messageId, regenerates=regenerates
    )
    message_id = last.get("id") if found.continues else None
    if not isinstance(message_id, str):
        message_id = reply_id(found.session.session_id, found.user_message_count)
    form = UiMessageStream(message_id, continues=found.continues, can_reset=query.sdk >= 7)
    return await translated(call, found.session, form, from_sequence=found.from_sequence)


def user_messages(messages: list[dict[str, Any]]) -> list[Said]:
    """Return the user messages of a conversation. Raises `InvalidArgument` for a part that cannot be kept."""
    found = []
    for index, message in enumerate(messages):
        if message.get("role") == "user" and (content := ai_sdk_content(message)):
            found.append(Said(index, content, message.get("id")))
    return found


def _place(stored: Sequence[Message], message: dict[str, Any]) -> int:
    """Return the position of a client's message among the stored ones; after all of them if it is not stored."""
    return next((place for place, each in enumerate(stored) if each.get("id") == message.get("id")), len(stored))


async def _answers(context: ServerContext, session: SessionState, message: dict[str, Any]) -> list[ToolResult]:
    """Return the responses in the tool parts of the last message: approvals, and results of the browser's tools."""
    parts = message.get("parts") if message.get("role") == "assistant" else None
    answered = [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
    if not answered:
        return []
    services = context.executor.services
    waits = {wait.tool_call_id: wait for wait in await all_waiting(services.store, session, services.clock())}
    found = []
    for part in answered:
        pending = waits.get(part.get("toolCallId", ""))
        if pending is not None and (answer := _answer(part, pending)) is not None:
            found.append(answer)
    return found


def _answer(part: dict[str, Any], pending: PendingClientToolCall) -> ToolResult | None:
    match part:
        case {"state": "output-available", "output": {"happened": bool() | None as happened, **rest}} if (
            pending.kind == "outcome" and rest.keys() <= {"result", "reason"}
        ):
            return convert({"approval_id": pending.approval_id, "happened": happened, **rest}, ToolResult)
        case {"state": "approval-responded", "approval": {"id": str(approval_id), "approved": bool(approved)}}:
            # By the id of the approval: what was asked since then is another question.
            reason = part["approval"].get("reason")
            return ToolResult(approval_id=approval_id, approved=approved, reason=reason)
        case {"state": "approval-responded"}:
            raise InvalidArgument("An approval must have an id, and approved must be true or false.")
        case {"state": "output-available", "output": output}:
            return ToolResult(tool_call_id=pending.tool_call_id, result=output)
        case {"state": "output-error", "errorText": str(error)}:
            return ToolResult(tool_call_id=pending.tool_call_id, error=error)
    return None


async def chat_stream(call: Call) -> ASGIApp:
    """Stream the turn in progress, or the one that waits for a response; 204 if there is none."""
    query = read_query(call.request, ChatQuery)
    session = await call.session()
    if session.status != "active" and session.status not in SUSPENDED:
        return Response(status_code=204)
    form = await ui_message_stream(call.context, session, can_reset=query.sdk >= 7)
    return await translated(call, session, form, from_sequence=0)


ENDPOINTS = (
    Endpoint(
        "POST",
        "/chat/{agent:id}",
        chat,
        "Run an agent for the chat of the AI SDK",
        body=ChatRequest,
        query=ChatQuery,
        returns=bytes,
        tag="chat",
    ),
    Endpoint(
        "GET",
        "/chat/{session_id:id}/stream",
        chat_stream,
        "The turn in progress, for the AI SDK",
        query=ChatQuery,
        returns=bytes,
        tag="chat",
    ),
)
