"""The messages of a conversation: plain dicts, stored and returned exactly as given.

The TypedDicts describe what the executor writes; a store accepts any JSON object with a string `role`.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict, cast

from .codec import ensure_object
from .errors import InvalidArgument

Message = dict[str, Any]
"""Any JSON object with a string `role`."""

SOURCES = ("blob", "url", "data")
"""The members of a part that say where its bytes are."""

ROLES = ("user", "system", "developer", "assistant", "tool", "thinking")


class ToolCall(TypedDict):
    """One call that the model asks for, inside an assistant message."""

    id: str
    name: str
    arguments: dict[str, Any]


class TextPart(TypedDict):
    """A piece of text in a list of parts."""

    type: Literal["text"]
    text: str


class MediaPart(TypedDict):
    """An image, a sound or a file, with exactly one of `blob`, `url` and `data`."""

    type: Literal["image", "audio", "file"]
    media_type: str
    name: NotRequired[str]
    size: NotRequired[int]
    blob: NotRequired[str]
    """`sha256:...`, the digest of a stored blob."""
    url: NotRequired[str]
    data: NotRequired[str]
    """Base64."""


Part = TextPart | MediaPart
Content = str | list[Part]
"""The content of a message: text, or parts in order."""


class UserMessage(TypedDict):
    """What a user says."""

    role: Literal["user"]
    content: Content


class SystemMessage(TypedDict):
    """What the application says."""

    role: Literal["system"]
    content: str


class AssistantMessage(TypedDict, total=False):
    """A model's reply. `native`: the provider's own form of it (see `helix_agents.llm.native`)."""

    role: Literal["assistant"]
    content: str
    thinking: str
    tool_calls: list[ToolCall]
    finish_reason: str
    native: dict[str, Any]


class ToolMessage(TypedDict, total=False):
    """The result of a tool call."""

    role: Literal["tool"]
    tool_call_id: str
    tool_name: str
    content: Content
    success: bool


def ensure_message(value: object) -> None:
    """Refuse what is not a message."""
    ensure_object(value, "message", "role")


def ensure_sayable(message: Message) -> None:
    """Reject a message that no model accepts. A store takes any role and content; a conversation does not."""
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


def as_part(part: Any) -> Part:
    """Return a content part after checking its shape. OpenAI's `image_url` becomes an image.

    Raises `InvalidArgument`.
    """
    match part:
        case {"type": "text", "text": str()}:
            return cast(Part, part)
        case {"type": "image_url", "image_url": {"url": str(url)}}:
            return _image_at(url)
        case {"type": "image" | "audio" | "file" as kind, "media_type": str()}:
            given = [source for source in SOURCES if source in part]
            if len(given) != 1 or not isinstance(part[given[0]], str) or not part[given[0]]:
                raise InvalidArgument(
                    f"A part of type {kind!r} must have exactly one of blob, url and data, as a string."
                )
            return cast(Part, part)
    raise InvalidArgument(
        f"Invalid content part {part!r:.100}: expected {{'type': 'text', 'text': ...}} or "
        "{'type': 'image' | 'audio' | 'file', 'media_type': ...} with one of blob, url and data."
    )


def _image_at(url: str) -> MediaPart:
    head, comma, data = url.partition(";base64,")
    if comma and head.startswith("data:"):
        return {"type": "image", "media_type": head.removeprefix("data:"), "data": data}
    return {"type": "image", "media_type": "image/*", "url": url}


def is_thinking(message: Message) -> bool:
    """Whether a message is nothing but the model's reasoning, to be left out on request."""
    return bool(message["role"] == "thinking")


def without_thinking(message: Message) -> Message:
    """Return the message without the model's reasoning, also in `native`; the same object if it has none."""
    return _without(message, "thinking", "native")


def without_native(message: Message) -> Message:
    """Return the message as clients, hooks and other models may see it; the same object if nothing is left out."""
    return _without(message, "native")


def _without(message: Message, *names: str) -> Message:
    if not any(name in message for name in names):
        return message
    return {key: value for key, value in message.items() if key not in names}
