"""The messages of a conversation: plain dicts, stored and returned exactly as given.

A store accepts any JSON object with a string `role`. The executor writes, besides `role` and `content`:

    user        `id`: the client's own if it is valid and new in the conversation, else the library's
    assistant   `id`, `tool_calls`, `thinking`, `finish_reason`; `native`: the provider's own form (`llm/native.py`)
    tool        `tool_call_id`, `tool_name`, `success`; `effect_key`: the effect it had, or may have had if `outcome` is
                `unknown`; `undo`: what its tool needs to undo the effect
"""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterable, Sequence
from typing import Any, TypedDict

from .codec import ensure_object
from .content import as_part
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


def automatic_message(content: str) -> Message:
    """Return a message from the library to the model in the user's role: a reminder, or why an output was rejected."""
    return {"role": "user", "content": content, "automatic": True}


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
