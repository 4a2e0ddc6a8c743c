"""Artifacts: store large tool results, images and files of a conversation as blobs.

A message holds a reference, and for a long text also its start and end. Blobs are stored before the row that refers to
them is staged, so a crash may leave an unused blob, never a broken reference. Models see the bytes of media, never a
reference, and read the rest of a long result with the tool `read_artifact`.
"""

from __future__ import annotations

import base64
import re
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from ...codec import Json, encode
from ...content import MEDIA, as_parts
from ...errors import InvalidArgument
from ...messages import Message
from ...stores.blobs.contract import BlobStore
from ...tools import ModelRetry, Tool, ToolContext

MAX_RESULT_CHARS = 60_000
"""The longest text result that goes into the conversation whole, unless the tool sets its own limit."""
INLINE_BYTES = 4_096
"""Media up to this size stay in the message."""
MAX_READ_CHARS = 20_000
CACHED_BYTES = 64_000_000
READ_ARTIFACT = "read_artifact"

_REFERENCE = re.compile(r"artifact (sha256:[0-9a-f]{64})")
_SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "description": "The artifact, as in 'sha256:...'."},
        "offset": {"type": "integer", "minimum": 0, "default": 0, "description": "The first character."},
        "length": {"type": "integer", "minimum": 1, "default": MAX_READ_CHARS, "maximum": MAX_READ_CHARS},
        "search": {"type": "string", "description": "Return the first lines that contain this text instead."},
    },
    "required": ["id"],
}


class Artifacts:
    """Stores and reads the blobs of one run's session tree."""

    def __init__(self, blobs: BlobStore | None, space: str, messages: Sequence[Message] = ()) -> None:
        self._blobs = blobs
        self._space = space
        self._cached: OrderedDict[str, bytes] = OrderedDict()
        self.has_any = blobs is not None and any(
            message["role"] == "tool" and _REFERENCE.search(str(message.get("content"))) for message in messages
        )
        """Whether the conversation refers to a long result, so that the model needs `read_artifact`."""
        self.tool = Tool.from_schema(
            READ_ARTIFACT,
            "Read more of a long tool result, which the conversation shows only in part.",
            _SCHEMA,
            self._read,
            idempotent=True,
        )

    # -- into the conversation

    async def store_large(self, result: Json, max_chars: int | None) -> Json:
        """Return a tool's result for the conversation, with large content replaced by a reference to a blob."""
        if self._blobs is None:
            return result
        parts = as_parts(result)
        if parts is not None:
            return [await self._without_bytes(dict(part)) for part in parts]
        limit = MAX_RESULT_CHARS if max_chars is None else max_chars
        text = result if isinstance(result, str) else encode(result)
        if len(text) <= limit:
            return result
        media_type = "text/plain" if isinstance(result, str) else "application/json"
        ref = await self._blobs.put(self._space, text.encode("utf-8", "surrogatepass"), media_type=media_type)
        self.has_any = True
        start, end = limit * 2 // 3, limit // 6
        left_out = f"[... {len(text) - start - end:,} characters left out; artifact {ref.digest} ...]"
        return f"{text[:start]}\n{left_out}\n{text[len(text) - end :]}"

    async def without_bytes(self, messages: Sequence[Message]) -> list[Message]:
        """Return messages with media stored as blobs, for user input."""
        if self._blobs is None:
            return list(messages)
        return [await self._stored(message) for message in messages]

    async def _stored(self, message: Message) -> Message:
        content = message.get("content")
        if not isinstance(content, list):
            return message
        return {**message, "content": [await self._without_bytes(part) for part in content]}

    async def _without_bytes(self, part: dict[str, Any]) -> dict[str, Any]:
        if self._blobs is None or part.get("type") not in MEDIA or "data" not in part:
            return part
        try:
            data = base64.b64decode(part["data"], validate=True)
        except ValueError as error:
            raise InvalidArgument(f"The data of a part of type {part['type']!r} must be base64.") from error
        if len(data) <= INLINE_BYTES:
            return part
        ref = await self._blobs.put(self._space, data, media_type=part["media_type"])
        rest = {name: value for name, value in part.items() if name != "data"}
        return {**rest, "size": len(data), "blob": ref.digest}

    # -- to the model

    async def filled_in(self, messages: Sequence[Message]) -> list[Message]:
        """Return messages with references replaced by bytes. The reference to a deleted blob stays."""
        if self._blobs is None:
            return list(messages)
        # Most messages are plain text and need no call.
        return [await self._filled(each) if isinstance(each.get("content"), list) else each for each in messages]

    async def _filled(self, message: Message) -> Message:
        if not any("blob" in part for part in message["content"]):
            return message
        return {**message, "content": [await self._with_bytes(part) for part in message["content"]]}

    async def _with_bytes(self, part: dict[str, Any]) -> dict[str, Any]:
        data = await self._bytes_of(part["blob"]) if "blob" in part else None
        if data is None:
            return part
        rest = {name: value for name, value in part.items() if name != "blob"}
        return {**rest, "data": base64.b64encode(data).decode()}

    async def _bytes_of(self, digest: str) -> bytes | None:
        if self._blobs is None:
            return None
        if digest in self._cached:
            self._cached.move_to_end(digest)
            return self._cached[digest]
        data = await self._blobs.get(self._space, digest)
        if data is not None:
            self._cached[digest] = data
            while sum(map(len, self._cached.values())) > CACHED_BYTES:
                self._cached.popitem(last=False)
        return data

    async def _read(self, arguments: dict[str, Any], context: ToolContext) -> Json:
        try:
            data = await self._bytes_of(arguments["id"])
        except InvalidArgument as error:
            raise ModelRetry(str(error)) from error
        if data is None:
            raise ModelRetry(f"There is no artifact {arguments['id']!r}: copy the id from a tool result.")
        text = data.decode("utf-8", "replace")
        if search := arguments.get("search"):
            found = [f"{number}: {line[:500]}" for number, line in enumerate(text.splitlines(), 1) if search in line]
            return "\n".join(found[:50]) or f"No line contains {search!r}."
        offset, length = arguments.get("offset", 0), arguments.get("length", MAX_READ_CHARS)
        if not isinstance(offset, int) or not isinstance(length, int) or offset < 0 or length < 1:
            raise ModelRetry("offset and length must be positive integers.")
        return text[offset : offset + min(length, MAX_READ_CHARS)]


def references(value: Json) -> set[str]:
    """Return the digests of all blobs that a message refers to."""
    return set(re.findall(r"sha256:[0-9a-f]{64}", encode(value)))
