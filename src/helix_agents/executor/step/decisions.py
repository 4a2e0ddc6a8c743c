"""The pure part of a step: turn the model's reply and the outcomes of its calls into one commit or one suspension.

Rules of this file: no I/O, no clock, no store. A step is *open* from the moment its reply is durable until its commit.
While it is open, its reply and the outcomes of finished calls are staged under the step's id, so that a process that
resumes the session runs only the missing calls. The loop carries out these decisions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from ...codec import MAX_DEPTH, Json, encode
from ...content import Content, as_parts
from ...failures import MAX_STEPS
from ...ids import step_id
from ...messages import (
    EFFECTS_ROLE,
    AssistantMessage,
    Message,
    ToolCall,
    ToolMessage,
    as_message,
    automatic_message,
)
from ...types import CheckpointMeta, PendingClientToolCall, SessionState, SessionStatus, SuspendedChildWait

CHANGED = "A person approved this call with changed arguments. It ran with:"
"""Text for the model before the outcome of a call whose arguments a person changed."""

MAX_ARGUMENTS_DEPTH = MAX_DEPTH - 20
"""How deep the arguments of a call may be nested, because messages and staged rows contain them."""

REMINDER = "Give your final answer by calling the `finish` tool."


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a tool call ended. `final` marks a valid call of the finish tool; its result is the run's output.

    `arguments`: the arguments that a person approved, if they differ from the model's. `effect_key`: the effect of this
    call; with `unknown`, the effect that it may have had. A call that failed without effect has no key.
    """

    success: bool
    result: Json = None
    error: str | None = None
    final: bool = False
    arguments: dict[str, Any] | None = None
    effect_key: str | None = None
    unknown: bool = False
    undoable: bool = False
    """Whether its tool can undo the effect."""


class StagedAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The staged form of a model's reply: the message, its usage, and the fingerprint of the request."""

    message: Message
    usage: list[dict[str, Any]] = []
    request: dict[str, Json] | None = None


class StagedOutcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """The staged form of a finished call: its outcome, its usage, and whether it was executed here."""

    outcome: Outcome
    usage: list[dict[str, Any]] = []
    executed: bool = True


class Cut(msgspec.Struct, frozen=True):
    """Where to cut the conversation (None: nowhere), and the messages to append there."""

    keep_messages: int | None = None
    messages: list[Message] = []


NO_CUT = Cut()


class StepCommit(msgspec.Struct, frozen=True):
    """The write that ends a step."""

    messages: list[Message]
    status: SessionStatus
    output: Json = None
    error: str | None = None
    failure_reason: str | None = None
    taken: list[str] = []
    """The ids of queued messages that are among `messages`."""
    open_step: str | None = None
    """The id of the step that is open afterwards; the last message is its reply."""


class Suspension(msgspec.Struct, frozen=True):
    """The write that suspends an open step: the reply enters the conversation, the calls wait."""

    messages: list[Message]
    status: SessionStatus
    pending: dict[str, PendingClientToolCall]
    children: dict[str, SuspendedChildWait]


def turn_checkpoint(run_id: str, step_count: int) -> CheckpointMeta:
    """Return the checkpoint with which a run starts its turn."""
    return CheckpointMeta(step_id(run_id, step_count), step_count, kind="turn")


def aside_checkpoint(
    step_id: str, step_count: int, stream_sequence: int, request: dict[str, Json] | None
) -> CheckpointMeta:
    """Return the checkpoint of a suspended step."""
    return CheckpointMeta(step_id, step_count, stream_sequence, kind="aside", request=request)


def step_id_of(session: SessionState, run_id: str) -> str:
    """Return the id under which the open step is staged: the one stored in the session, else the run's next step id."""
    return session.suspended_step_id or step_id(run_id, session.step_count + 1)


def id_mark(session: SessionState) -> str:
    """Return the suffix that makes a sub-agent's tool call ids unique within its root session.

    Models restart their numbering in every conversation. The suffix is derived from the session's position in the tree,
    so a resumed run produces the same ids; it is short enough for providers that allow 40 characters.
    """
    if session.parent_session_id is None:
        return ""
    position = session.session_id.removeprefix(session.root_session_id or "")
    return f"-{hashlib.blake2b(position.encode(), digest_size=5).hexdigest()}"


def answer_message(content: str, thinking: str, calls: Sequence[ToolCall], finish_reason: str | None = None) -> Message:
    """Return the model's reply as a message."""
    message: AssistantMessage = {"role": "assistant", "content": content}
    if thinking:
        message["thinking"] = thinking
    if calls:
        message["tool_calls"] = list(calls)
    if finish_reason is not None:
        message["finish_reason"] = finish_reason
    return as_message(message)


def last_finish_reason(messages: Sequence[Message]) -> str | None:
    """Return why the model stopped in its last reply, if known."""
    for message in reversed(messages):
        if message["role"] == "assistant":
            reason = message.get("finish_reason")
            return reason if isinstance(reason, str) else None
    return None


def partial_message(content: str, thinking: str) -> Message | None:
    """Return the partial reply of a model that was interrupted; None if there is none."""
    if not content and not thinking:
        return None
    return {**answer_message(content, thinking, []), "interrupted": True}


def tool_message(call: Mapping[str, Any], outcome: Outcome) -> Message:
    """Return the outcome of a call as a message for the model."""
    content = _content(outcome)
    if outcome.arguments is not None:
        content = _after(f"{CHANGED} {encode(outcome.arguments)}", content)
    message: ToolMessage = {
        "role": "tool",
        "tool_call_id": call["id"],
        "tool_name": call["name"],
        "content": content,
        "success": outcome.success,
    }
    if outcome.arguments is not None:
        message["arguments"] = outcome.arguments
    if outcome.effect_key is not None:
        message["effect_key"] = outcome.effect_key
    if outcome.unknown:
        message["outcome"] = "unknown"
    if outcome.undoable:
        message["undo"] = {"result": outcome.result}
    return as_message(message)


def _signed(message: Message, pending: PendingClientToolCall | None) -> Message:
    """Return the message of a call with the name of the user who responded to it."""
    if pending is None or pending.answered_by is None:
        return message
    return {**message, "answered_by": pending.answered_by}


def _content(outcome: Outcome) -> Content:
    if not outcome.success:
        return f"Error: {outcome.error}"
    if isinstance(outcome.result, str):
        return outcome.result
    parts = as_parts(outcome.result)
    return encode(outcome.result) if parts is None else parts


def _after(text: str, content: Content) -> Content:
    return f"{text}\n\n{content}" if isinstance(content, str) else [{"type": "text", "text": text}, *content]


def unanswered_calls(messages: Sequence[Message]) -> tuple[Message | None, list[ToolCall]]:
    """Return the last assistant message and those of its calls that have no tool message."""
    answered: set[str] = set()
    for message in reversed(messages):
        if message["role"] == EFFECTS_ROLE:
            continue
        if message["role"] == "tool":
            answered.add(message.get("tool_call_id", ""))
        elif message["role"] == "assistant":
            return message, [call for call in message.get("tool_calls", ()) if call["id"] not in answered]
        else:
            break
    return None, []


def abandoned(messages: Sequence[Message], why: str) -> list[Message]:
    """Return tool messages for calls that will never run, so that the conversation stays well formed."""
    _, calls = unanswered_calls(messages)
    return [tool_message(call, Outcome(success=False, error=why)) for call in calls]


def close_step(
    answer: Message,
    outcomes: Mapping[str, Outcome],
    *,
    answer_is_stored: bool,
    wants_output: bool,
    steps_left: int,
    follow_up: Sequence[Message] = (),
    pending: Mapping[str, PendingClientToolCall] = MappingProxyType({}),
) -> StepCommit:
    """Return the commit of a step whose calls all have an outcome.

    `follow_up`: messages that the user sent while the step was open. `pending`: the calls that waited for a response;
    their messages record who responded.
    """
    calls: list[ToolCall] = answer.get("tool_calls", [])
    messages: list[Message] = [] if answer_is_stored else [answer]
    messages += [_signed(tool_message(call, outcomes[call["id"]]), pending.get(call["id"])) for call in calls]
    messages += follow_up
    final = next((outcomes[call["id"]] for call in calls if outcomes[call["id"]].final), None)
    if final is not None and not follow_up:
        return StepCommit(messages, "completed", output=final.result)
    if not calls and not follow_up:
        if not wants_output:
            return StepCommit(messages, "completed", output=answer["content"])
        messages.append(automatic_message(REMINDER))
    if steps_left <= 0:
        error = (
            "The run used all its steps without finishing: raise max_steps, "
            "or call execute() on the session with a message to continue."
        )
        return StepCommit(messages, "failed", error=error, failure_reason=MAX_STEPS)
    return StepCommit(messages, "active")


def suspend_step(
    answer: Message,
    *,
    answer_is_stored: bool,
    pending: Mapping[str, PendingClientToolCall],
    children: Mapping[str, SuspendedChildWait],
    interrupted: bool,
) -> Suspension:
    """Return the suspension of a step with calls that have no outcome yet."""
    status: SessionStatus
    if interrupted:
        status = "interrupted"
    elif pending and children:
        status = "suspended_step_partial"
    elif children:
        status = "suspended_awaiting_children"
    else:
        status = "suspended_client_tool"
    return Suspension([] if answer_is_stored else [answer], status, dict(pending), dict(children))


def committed_state(session: SessionState, commit: StepCommit, calls: Iterable[str]) -> SessionState:
    """Return the session after the commit; custom state comes from staging."""
    done = set(calls)
    return msgspec.structs.replace(
        session,
        custom_state=None,
        status=commit.status,
        output=commit.output,
        error=commit.error,
        failure_reason=commit.failure_reason,
        step_count=session.step_count + 1,
        suspended_step_id=commit.open_step,
        suspended_awaiting_children={},
        pending_client_tool_calls={k: v for k, v in session.pending_client_tool_calls.items() if k not in done},
        queued_messages=[entry for entry in session.queued_messages if entry["id"] not in commit.taken],
    )


def suspended_state(session: SessionState, suspension: Suspension, step_id: str) -> SessionState:
    """Return the session after the suspension. Keeps responses that have arrived since."""
    return msgspec.structs.replace(
        session,
        custom_state=None,
        status=suspension.status,
        suspended_step_id=step_id,
        suspended_awaiting_children=suspension.children,
        pending_client_tool_calls={**suspension.pending, **session.pending_client_tool_calls},
        wake_at=_wake_at(suspension),
    )


def _wake_at(suspension: Suspension) -> int | None:
    """Return when the first timer of a call, here or in a descendant, is due, whatever the other calls wait for."""
    timers = [pending.deadline_at for pending in suspension.pending.values() if pending.later == "timer"]
    of_children = [wait.wake_at for wait in suspension.children.values()]
    return min((each for each in (*timers, *of_children) if each is not None), default=None)
