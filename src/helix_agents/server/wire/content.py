"""Convert user messages of AG-UI and AI SDK clients to content: text, or parts if there are images or files.

A part of unknown shape is rejected. Only the AI SDK's `data-*` parts are left out: they are meant for the page.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

from ...content import Content, Part, as_part, from_url
from ...errors import InvalidArgument

KINDS = {"image": "image", "audio": "audio"}
"""Kinds by the first half of a media type; all others are files."""


def agui_content(message: dict[str, Any]) -> Content:
    """Return the content of an AG-UI message. Raises `InvalidArgument`."""
    return _content(message.get("content", ""), _agui_part)


def ai_sdk_content(message: dict[str, Any]) -> Content:
    """Return the content of a UI message of the AI SDK. Raises `InvalidArgument`."""
    return _content(message.get("parts", []), _ai_sdk_part)


def _content(said: Any, read: Callable[[Any], Part | None]) -> Content:
    if isinstance(said, str):
        return said
    if not isinstance(said, list):
        raise InvalidArgument(f"The content of a message must be a string or a list of parts, not {said!r:.100}.")
    parts = [part for part in map(read, said) if part is not None]
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts if part["type"] == "text")
    return parts


def _agui_part(part: Any) -> Part:
    match part:
        case {"type": "text", "text": str(text)}:
            return {"type": "text", "text": text}
        case {
            "type": "image" | "audio" | "video" | "document",
            "source": {"type": "data", "value": str(data), **source},
        }:
            return _media({"data": data}, source.get("mimeType"), part.get("metadata"))
        case {
            "type": "image" | "audio" | "video" | "document" as kind,
            "source": {"type": "url", "value": str(url), **source},
        }:
            guessed = source.get("mimeType") or f"{KINDS.get(kind, 'application')}/*"
            return _media(_where(url), guessed, part.get("metadata"))
        case {"type": "binary", "mimeType": str(media_type), "data": str(data)}:
            return _media({"data": data}, media_type, part)
        case {"type": "binary", "mimeType": str(media_type), "url": str(url)}:
            return _media(_where(url), media_type, part)
    return as_part(part)


def _ai_sdk_part(part: Any) -> Part | None:
    match part:
        case {"type": "text", "text": str(text)}:
            return {"type": "text", "text": text}
        case {"type": "file", "mediaType": str(media_type), "url": str(url)}:
            return _media(_where(url), media_type, part)
        case {"type": str(kind)} if kind.startswith("data-"):
            return None
    return as_part(part)


def _where(url: str) -> dict[str, Any]:
    """Return the member of a part that says where its bytes are. The history shows a blob as `blob:sha256:...`."""
    blob = url.removeprefix("blob:")
    return {"blob": blob} if blob.startswith("sha256:") else from_url(url)


def _media(where: dict[str, Any], media_type: Any, named: Any) -> Part:
    """Return a media part; what it is follows from its media type."""
    if not where.get("url", "https://").startswith(("https://", "http://")):
        raise InvalidArgument(f"A file must have an http, https or base64 data URL, not {where['url'][:40]!r}.")
    try:
        base64.b64decode(where.get("data", ""), validate=True)
    except ValueError:
        raise InvalidArgument("The data of a file must be base64.") from None
    media_type = media_type or where.get("media_type")
    kind = KINDS.get(str(media_type).partition("/")[0], "file")
    name = named.get("filename") if isinstance(named, dict) else None
    return as_part({**where, "type": kind, "media_type": media_type, **({"name": name} if name else {})})
