"""The messages of a conversation: plain dicts, stored and returned exactly as given.

The TypedDicts describe what the executor writes; a store accepts any JSON object with a string `role`.
"""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterable, Sequence
from typing import Any, Literal, Required, TypedDict, cast

from .codec import Json, ensure_object
from .content import Content, as_part
from .errors import InvalidArgument
from .ids import ensure_own_id

Message = dict[str, Any]
"""Any JSON object with a string `role`."""

EFFECTS_ROLE = "effects"
"""The role of messages that keep effects which the conversation no longer shows; no model is sent such a message."""

ROLES = ("user", "system", "developer", "assistant", "tool", "thinking")


IDENTIFIED = ("user", "assistant")
"""The roles of messages that have an `id`."""


class ToolCall(TypedDict):
    """One call that the model requests, inside an assistant message."""

    id: str
    name: str
    arguments: dict[str, Any]


class UserMessage(TypedDict, total=False):
    """A message from a user, or from the library in the user's role."""

    role: Required[Literal["user"]]
    content: Required[Content]
    id: str
    """The client's own if it is valid and new in the conversation, else the library's."""
    automatic: bool
    """Whether the library wrote it."""


class SystemMessage(TypedDict):
    """A message from the application."""

    role: Literal["system", "developer"]
    content: str


class AssistantMessage(TypedDict, total=False):
    """A model's reply."""

    role: Required[Literal["assistant"]]
    content: Required[str]
    id: str
    thinking: str
    tool_calls: list[ToolCall]
    finish_reason: str
    native: dict[str, Any]
    """The provider's own form of it (see `llm/native.py`)."""
    interrupted: bool
    """Whether the model was stopped in the middle of it."""
    undo: dict[str, Json]
    """Why the library wrote it: to undo what a failed turn did."""


class ToolMessage(TypedDict, total=False):
    """The outcome of a tool call."""

    role: Required[Literal["tool"]]
    tool_call_id: Required[str]
    tool_name: Required[str]
    content: Required[Content]
    success: Required[bool]
    arguments: dict[str, Any]
    """What a person changed the model's arguments to."""
    answered_by: str
    """The user who responded to the call."""
    effect_key: str
    """The effect that the call had, or may have had if `outcome` is `unknown`."""
    outcome: Literal["unknown"]
    undo: dict[str, Json]
    """What the tool needs to undo the effect."""


AnyMessage = UserMessage | SystemMessage | AssistantMessage | ToolMessage


def as_message(message: AnyMessage) -> Message:
    """Return the same dict typed as any message: to a type checker a TypedDict is not a dict."""
    return cast(Message, message)


def automatic_message(content: str) -> Message:
    """Return a message from the library to the model in the user's role: a reminder, or why an output was rejected."""
    return as_message({"role": "user", "content": content, "automatic": True})


def is_from_user(message: Message) -> bool:
    """Return whether a user wrote the message: the library also writes messages in the user's role."""
    return message["role"] == "user" and not message.get("automatic")


def is_undo(message: Message) -> bool:
    """Return whether the library wrote a message of the assistant's, to take back what a failed turn did."""
    return message["role"] == "assistant" and "undo" in message


def ensure_message(value: object) -> None:
    """Raise unless the value is a message."""
    ensure_object(value, "message", "role")


def ensure_sayable(message: Message) -> None:
    """Reject a message that no model accepts. A store accepts any role and content; a conversation does not."""
    ensure_message(message)
    role, content = message["role"], message.get("content")
    if role not in ROLES:
        raise InvalidArgument(f"Unknown role {role!r} of a message. Known roles: {', '.join(ROLES)}.")
    if not isinstance(content, str | list) and not (role == "assistant" and content is None):
        raise InvalidArgument(
            f"The content of a message must be a string or a list of parts, not {type(content).__name__}."
        )
    if isinstance(content, list):
        for part in content:
            as_part(part)


def ids_of(messages: Iterable[Message]) -> set[str]:
    """Return the ids that the messages have."""
    return {given for message in messages if isinstance(given := message.get("id"), str)}


def message_id(step_id: str) -> str:
    """Return the id of the assistant message of a step, or of the first message of a turn that comes without one."""
    return f"msg-{step_id}"


def identified(messages: Sequence[Message], taken: Container[str], step_id: str) -> list[Message]:
    """Return the messages with an id on each user and assistant message, as a conversation stores them.

    A valid id that is not `taken` is kept. Any other is replaced by one that follows from the step, so a step that is
    written again after a crash gives the same ids.
    """
    result: list[Message] = []
    new: set[str] = set()
    for message in messages:
        if message["role"] in IDENTIFIED:
            if not _is_id(given := message.get("id")) or given in taken or given in new:
                first = message_id(step_id)
                names = itertools.chain((first,), (f"{first}-{n}" for n in itertools.count(2)))
                message = {**message, "id": next(name for name in names if name not in taken and name not in new)}
            new.add(message["id"])
        result.append(message)
    return result


def _is_id(given: object) -> bool:
    try:
        ensure_own_id(given, "id")
    except InvalidArgument:
        return False
    return True


def is_thinking(message: Message) -> bool:
    """Return whether a message consists of the model's reasoning only."""
    return bool(message["role"] == "thinking")


def without_thinking(message: Message) -> Message:
    """Return the message without the model's reasoning, also in `native`; the same object if it has none."""
    return _without(message, "thinking", "native")


def without_native(message: Message) -> Message:
    """Return the message as clients, hooks and other models may see it; the same object if nothing is left out."""
    return _without(message, "native")


def without_id(message: Message) -> Message:
    """Return the message without its id, to compare it with one of another run."""
    return _without(message, "id")


def _without(message: Message, *names: str) -> Message:
    if not any(name in message for name in names):
        return message
    return {key: value for key, value in message.items() if key not in names}
