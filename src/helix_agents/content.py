"""Content parts: what a message or a tool result may hold besides text, in one neutral shape.

    {"type": "text", "text": "..."}
    {"type": "image" | "audio" | "file", "media_type": "image/png", "name": "a.png", "size": 123, "data": "<base64>"}

A part has exactly one of `data`, `url` and `blob` (the digest of a stored blob). Parts are plain dicts; `Image`,
`Audio` and `File` make them. Each adapter maps them to its provider's form.
"""

from __future__ import annotations

import base64
import mimetypes
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Literal, NotRequired, TypedDict, cast

from .errors import InvalidArgument

SOURCES = ("blob", "url", "data")
"""The members of a part that say where its bytes are."""

MEDIA = frozenset({"image", "audio", "file"})
ADDRESSES = ("https://", "http://", "data:", "sha256:")
"""Prefixes of strings that are addresses, not paths of files."""

MAGIC = {b"\x89PNG": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif", b"%PDF": "application/pdf"}
"""The first bytes of common file types."""


class TextPart(TypedDict):
    """A piece of text in a list of parts."""

    type: Literal["text"]
    text: str


class MediaPart(TypedDict):
    """An image, an audio recording or a file, with exactly one of `blob`, `url` and `data`."""

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


class _Media(dict[str, Any]):
    """A part made from bytes, a file or an address."""

    _kind: ClassVar[str]

    def __init__(
        self, source: bytes | str | PathLike[str], media_type: str | None = None, *, name: str | None = None
    ) -> None:
        """Take bytes, the path of a file, a URL (`https:`, `data:`) or the digest of a blob (`sha256:`).

        Raises `InvalidArgument` if the media type is neither given nor known from the name or the bytes.
        """
        if isinstance(source, PathLike) or (isinstance(source, str) and not source.startswith(ADDRESSES)):
            path = Path(source)
            source, name = path.read_bytes(), name or path.name
        known, where = _located(source)
        known = media_type or known or mimetypes.guess_type(name or where.get("url", ""))[0]
        if known is None:
            raise InvalidArgument(f"The media type of the {self._kind} is not known: pass media_type='type/subtype'.")
        super().__init__({"type": self._kind, "media_type": known, **({"name": name} if name else {}), **where})


def _located(source: bytes | str) -> tuple[str | None, dict[str, Any]]:
    """Return the media type found in the source, and the member that holds or names the bytes."""
    if isinstance(source, bytes):
        known = next((kind for start, kind in MAGIC.items() if source.startswith(start)), None)
        return known, {"size": len(source), "data": base64.b64encode(source).decode()}
    if source.startswith("sha256:"):
        return None, {"blob": source}
    part = from_url(source)
    return part.pop("media_type", None), part


class Image(_Media):
    """An image part: `Image(png_bytes)`, `Image("chart.png")`, `Image("https://...")`."""

    _kind = "image"


class Audio(_Media):
    """An audio part: `Audio("memo.wav")`."""

    _kind = "audio"


class File(_Media):
    """A file part: `File("report.pdf")`, `File(data, "text/csv", name="rows.csv")`."""

    _kind = "file"


def from_url(url: str) -> dict[str, Any]:
    """Return the `url` member of a part; for a `data:` URL its `data` and `media_type`."""
    head, is_data, data = url.partition(";base64,")
    if is_data and head.startswith("data:"):
        return {"media_type": head.removeprefix("data:"), "data": data}
    return {"url": url}


def as_part(part: Any) -> Part:
    """Return a part after checking its shape. OpenAI's `image_url` becomes an image. Raises `InvalidArgument`."""
    match part:
        case {"type": "text", "text": str()}:
            return cast(Part, part)
        case {"type": "image_url", "image_url": {"url": str(url)}}:
            return cast(Part, {"type": "image", "media_type": "image/*", **from_url(url)})
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


def as_parts(result: Any) -> list[Part] | None:
    """Return the parts of a tool's result; None if it is an ordinary value.

    Parts are one media part, or a list of parts and strings that has at least one media part.
    """
    items = result if isinstance(result, list) else [result]
    if not any(isinstance(item, dict) and item.get("type") in MEDIA and "media_type" in item for item in items):
        return None
    try:
        return [{"type": "text", "text": item} if isinstance(item, str) else as_part(item) for item in items]
    except InvalidArgument:
        return None


def described(content: Any) -> str:
    """Return content as text: media parts become references such as `[image 'a.png' (image/png)]`."""
    if isinstance(content, str):
        return content
    return "\n".join(_description(part) for part in content or ())


def _description(part: Any) -> str:
    match part:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": str(kind), "media_type": str(media_type), **rest}:
            return f"[{kind} {rest['name']!r} ({media_type})]" if rest.get("name") else f"[{kind} ({media_type})]"
        case {"type": str(kind)}:
            return f"[{kind}]"
    return str(part)
