"""The routes that the clients of two standards expect: AG-UI (`/agui/{agent}`) and the AI SDK (`/chat/{agent}`).

Both clients send the whole conversation with every request. The conversation is kept here, so only what is new counts:
what the user says last, or the answers to what a run has asked.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from starlette.responses import Response
from starlette.types import ASGIApp

from ...content import Content
from ...errors import InvalidArgument
from ...executor import all_waiting
from ...types import PendingClientToolCall, SessionState
from ..answers import ToolResult, submit_answer
from ..endpoints import Call, Endpoint
from ..requests import Id, NewId
from ..wire.content import agui_content, ai_sdk_content
from ..wire.translate import translated


class ResumeEntry(msgspec.Struct):
    """The answer to an interrupt of an earlier run."""

    interruptId: str
    status: Literal["resolved", "cancelled"] = "resolved"
    payload: Any = None


class RunAgentInput(msgspec.Struct):
    """What an AG-UI client sends. Fields that mean nothing here are ignored."""

    threadId: NewId
    runId: Id
    messages: list[dict[str, Any]] = []
    resume: list[ResumeEntry] | None = None


class ChatRequest(msgspec.Struct):
    """What the chat transport of the AI SDK sends."""

    id: NewId
    messages: list[dict[str, Any]] = []
    trigger: Literal["submit-message", "regenerate-message"] = "submit-message"


# -- AG-UI


async def agui(call: Call) -> ASGIApp:
    given = await call.body(RunAgentInput)
    call.context.agent(call.path("agent"))
    session = await call.context.session_or_new(call.user, given.threadId)
    if given.resume:
        if session is None:
            raise InvalidArgument(f"Thread {given.threadId!r} has no interrupt to resume.")
        waits = await _waits(call, session)
        answers = [_agui_answer(entry, waits) for entry in given.resume]
    else:
        answers = _tool_messages(given.messages)
    said = [content for message in _trailing(given.messages, "user") if (content := agui_content(message))]
    session, start = await _go(call, session, given.threadId, said, answers)
    return await translated(call, session, "ag-ui", from_sequence=start, run_id=given.runId)


def _agui_answer(entry: ResumeEntry, waits: dict[str, PendingClientToolCall]) -> ToolResult:
    pending = waits.get(entry.interruptId)
    refused = entry.status == "cancelled"
    if pending is not None and pending.approval_id is not None:
        payload = entry.payload
        approved = payload.get("approved", True) if isinstance(payload, dict) else payload is not False
        reason = payload.get("reason") if isinstance(payload, dict) else None
        return ToolResult(entry.interruptId, approved=bool(approved) and not refused, reason=reason)
    if refused:
        return ToolResult(entry.interruptId, error="The user cancelled this call.")
    return ToolResult(entry.interruptId, result=entry.payload)


def _tool_messages(messages: list[dict[str, Any]]) -> list[ToolResult]:
    return [
        ToolResult(message["toolCallId"], result=message.get("content"))
        for message in _trailing(messages, "tool")
        if isinstance(message.get("toolCallId"), str)
    ]


# -- AI SDK


async def chat(call: Call) -> ASGIApp:
    given = await call.body(ChatRequest)
    call.context.agent(call.path("agent"))
    if given.trigger != "submit-message":
        raise InvalidArgument(f"trigger {given.trigger!r} is not supported: fork the session at a checkpoint instead.")
    session = await call.context.session_or_new(call.user, given.id)
    said = [content for message in _trailing(given.messages, "user") if (content := ai_sdk_content(message))]
    answers = [] if said else _part_answers(given.messages[-1] if given.messages else {})
    session, start = await _go(call, session, given.id, said, answers)
    return await translated(call, session, "ai-sdk", from_sequence=start)


def _part_answers(message: dict[str, Any]) -> list[ToolResult]:
    """The answers in the tool parts of the last message: approvals, and results of tools that ran in the browser."""
    found = []
    parts = message.get("parts")
    for part in parts if isinstance(parts, list) else []:
        match part:
            case {"toolCallId": str(call), "state": "approval-responded", "approval": {"approved": bool(ok), **more}}:
                reason = more.get("reason")
                found.append(ToolResult(call, approved=ok, reason=reason if isinstance(reason, str) else None))
            case {"toolCallId": str(call), "state": "output-available", "output": output}:
                found.append(ToolResult(call, result=output))
            case {"toolCallId": str(call), "state": "output-error", "errorText": str(error)}:
                found.append(ToolResult(call, error=error))
    return found


async def chat_stream(call: Call) -> ASGIApp:
    """The whole turn that is going on; 204 if none is, as the client expects."""
    session = await call.context.session(call.user, call.path("session_id"))
    if session.status != "active":
        return Response(status_code=204)
    return await translated(call, session, "ai-sdk", from_sequence=0)


# -- both


async def _go(
    call: Call, session: SessionState | None, session_id: str, said: list[Content], answers: list[ToolResult]
) -> tuple[SessionState, int]:
    """Start or resume what the request asks for; the session, and where its stream goes on."""
    context = call.context
    agent = context.agent(call.path("agent"))
    if session is not None and session.agent_type != agent.name:
        raise InvalidArgument(f"Session {session_id!r} belongs to agent {session.agent_type!r}, not to {agent.name!r}.")
    if session is not None and answers:
        waits = await _waits(call, session)
        fitting = [answer for answer in answers if answer.tool_call_id in waits]
        receipts = [await submit_answer(context, call.user, session, answer) for answer in fitting]
        if fitting or not said:
            return await _now(call, session_id, goes_on=any(receipt.run_id for receipt in receipts))
    if said:
        handle = await context.executor.execute(
            agent,
            [{"role": "user", "content": content} for content in said[-1:]],
            session_id=session_id,
            user_id=call.user.owner_id,
            if_exists="reject" if session is None else "continue",
        )
        return await context.session(call.user, session_id), handle.start_sequence
    if session is None:
        raise InvalidArgument("The request has no message of the user and no answer.")
    return await _now(call, session_id, goes_on=True)


async def _now(call: Call, session_id: str, *, goes_on: bool) -> tuple[SessionState, int]:
    """The session as it is: from the beginning of its latest run, or, if that has been seen, from its end."""
    session = await call.context.session(call.user, session_id)
    if goes_on:
        run = await call.context.store.get_current_run(session_id)
        return session, run.start_sequence if run else 0
    info = await call.context.streams.get_stream_info(session.stream_id)
    return session, info.latest_sequence if info else 0


async def _waits(call: Call, session: SessionState) -> dict[str, PendingClientToolCall]:
    services = call.context.executor.services
    waits = await all_waiting(services.store, session, services.clock())
    return {wait.tool_call_id: wait for wait in waits}


def _trailing(messages: list[dict[str, Any]], role: str) -> list[dict[str, Any]]:
    """The messages of one role at the very end."""
    found: list[dict[str, Any]] = []
    for message in reversed(messages):
        if message.get("role") != role:
            break
        found.insert(0, message)
    return found


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
    Endpoint(
        "POST",
        "/chat/{agent:id}",
        chat,
        "Run an agent for the chat of the AI SDK",
        body=ChatRequest,
        returns=bytes,
        tag="chat",
    ),
    Endpoint(
        "GET",
        "/chat/{session_id:id}/stream",
        chat_stream,
        "The turn that is going on, for the AI SDK",
        returns=bytes,
        tag="chat",
    ),
)
