"""The messages of a conversation: plain dicts, stored and returned exactly as given.

The TypedDicts describe what the executor writes; a store accepts any JSON object with a string `role`.
"""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from .codec import ensure_object
from .errors import InvalidArgument

Message = dict[str, Any]
"""Any JSON object with a string `role`."""

ROLES = ("user", "system", "developer", "assistant", "tool", "thinking")


class ToolCall(TypedDict):
    """One call that the model asks for, inside an assistant message."""

    id: str
    name: str
    arguments: dict[str, Any]


class UserMessage(TypedDict):
    role: Literal["user"]
    content: str


class SystemMessage(TypedDict):
    role: Literal["system"]
    content: str


class AssistantMessage(TypedDict, total=False):
    role: Literal["assistant"]
    content: str
    thinking: str
    tool_calls: list[ToolCall]
    finish_reason: str


class ToolMessage(TypedDict, total=False):
    role: Literal["tool"]
    tool_call_id: str
    tool_name: str
    content: str
    success: bool


def ensure_message(value: object) -> None:
    """Refuse what is not a message."""
    ensure_object(value, "message", "role")


def ensure_sayable(message: Message) -> None:
    """Refuse a message that no model accepts: a store takes any role, a conversation only these."""
    ensure_message(message)
    role, content = message["role"], message.get("content")
    if role not in ROLES:
        raise InvalidArgument(f"Unknown role {role!r} of a message. Known roles: {', '.join(ROLES)}.")
    if not isinstance(content, str | list) and not (role == "assistant" and content is None):
        raise InvalidArgument(
            f"The content of a message must be a string or a list of parts, not {type(content).__name__}."
        )


def is_thinking(message: Message) -> bool:
    """Whether a message is nothing but the model's reasoning, to be left out on request."""
    return bool(message["role"] == "thinking")


def without_thinking(message: Message) -> Message:
    """The message less the model's reasoning; the same object if there is none."""
    if "thinking" not in message:
        return message
    return {key: value for key, value in message.items() if key != "thinking"}
