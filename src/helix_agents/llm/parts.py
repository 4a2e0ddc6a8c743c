"""Convert content parts for a model: each adapter maps text and `Media` to its provider's form.

Nothing is dropped silently. A part that the model does not accept, or that is too large for its provider, raises if it
is in the latest user message; in an older message or a tool result it becomes a text reference, so that one file cannot
block a conversation for good.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from ..content import as_part
from ..errors import InvalidArgument, ModelError
from ..messages import Message

Kind = Literal["image", "audio", "file"]
MEBIBYTE = 1024 * 1024


class Media(msgspec.Struct, frozen=True):
    """An image, an audio recording or a file, given by its `data` (base64) or its `url`."""

    kind: Kind
    media_type: str
    data: str = ""
    url: str | None = None
    name: str | None = None

    @property
    def data_url(self) -> str:
        """The data as a URL."""
        return f"data:{self.media_type};base64,{self.data}"

    @property
    def text(self) -> str | None:
        """The data as text, if it is text."""
        if self.url is not None or not (self.media_type.startswith("text/") or self.media_type == "application/json"):
            return None
        try:
            return base64.b64decode(self.data, validate=True).decode(errors="replace")
        except binascii.Error as error:
            raise ModelError(f"The data of {self} is not base64: {error}") from error

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r} ({self.media_type})" if self.name else f"{self.kind} ({self.media_type})"


class PartMapper(msgspec.Struct, frozen=True):
    """How one provider writes parts. `media` returns None for a part that the provider does not accept."""

    model: str
    text: Callable[[str], dict[str, Any]]
    media: Callable[[Media], dict[str, Any] | None]
    max_chars: Mapping[str, int] = {}
    """The largest base64 data of one part, by its kind or media type; the media type takes precedence."""

    def message(self, message: Message, *, latest: bool) -> list[dict[str, Any]]:
        """Return the parts of a user message without empty texts, which providers reject."""
        found = [self._part(part, strict=latest) for part in read_parts(message.get("content") or "")]
        return [part for part in found if part is not None]

    def result(self, content: str | Sequence[Any]) -> list[dict[str, Any]]:
        """Return the parts of a tool result."""
        return [part for each in read_parts(content) if (part := self._part(each, strict=False)) is not None]

    def _part(self, part: str | Media, *, strict: bool) -> dict[str, Any] | None:
        if isinstance(part, str):
            return self.text(part) if part.strip() else None
        allowed = self.max_chars.get(part.media_type, self.max_chars.get(part.kind, len(part.data)))
        if len(part.data) > allowed:
            size = f"{len(part.data) * 3 // 4:,} bytes, and the model takes {allowed * 3 // 4:,}"
            if strict:
                raise ModelError(f"Model {self.model!r} cannot take the {part}, which has {size}: make it smaller.")
            return self.text(f"[{part}: left out, because it has {size}]")
        mapped = self.media(part)
        if mapped is None and strict:
            raise ModelError(f"Model {self.model!r} does not accept the {part}: convert it, or let a tool read it.")
        return mapped or self.text(f"[{part}: this model cannot read it]")


def read_parts(content: str | Sequence[Any]) -> list[str | Media]:
    """Return the texts and media of a message's content. Raises `ModelError` for a part of unknown shape."""
    return [content] if isinstance(content, str) else [_read(part) for part in content]


def _read(part: Any) -> str | Media:
    try:
        known = as_part(part)
    except InvalidArgument as error:
        raise ModelError(str(error)) from error
    if known["type"] == "text":
        return known["text"]
    if "blob" in known:
        # The executor fills references in before it asks a model, so this one could not be found.
        return f"[{known.get('name') or known['blob']} is no longer stored]"
    return Media(known["type"], known["media_type"], known.get("data", ""), known.get("url"), known.get("name"))


def latest_user_message(messages: Sequence[Message]) -> int:
    """Return the index of the last user message; -1 if there is none."""
    return max((index for index, message in enumerate(messages) if message["role"] == "user"), default=-1)
