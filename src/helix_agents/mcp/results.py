"""Convert the result of an MCP tool to the result of a tool call: JSON, a string, or a list of content parts. Pure."""

from __future__ import annotations

from typing import Any

from mcp import types

from ..codec import Json
from ..tools.tool import ModelRetry


def result_of(returned: types.CallToolResult) -> Json:
    """Return structured content if there is any, else the content as text or parts.

    Raises `ModelRetry` with the server's text if the tool failed: the model reads it.
    """
    parts = [_part(block) for block in returned.content]
    if returned.is_error:
        raise ModelRetry("\n".join(part["text"] for part in parts if part["type"] == "text") or "The tool failed.")
    if returned.structured_content is not None and all(part["type"] == "text" for part in parts):
        return _unwrapped(returned.structured_content)
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return list(parts)


def _unwrapped(content: Any) -> Json:
    """Unwrap a value that is not an object, which servers send as `{"result": value}`."""
    if isinstance(content, dict) and content.keys() == {"result"}:
        inner: Json = content["result"]
        return inner
    whole: Json = content
    return whole


def _part(block: Any) -> dict[str, Any]:
    match block:
        case types.TextContent(text=text):
            return {"type": "text", "text": text}
        case types.ImageContent(data=data, mime_type=media_type):
            return {"type": "image", "media_type": media_type, "data": data}
        case types.AudioContent(data=data, mime_type=media_type):
            return {"type": "audio", "media_type": media_type, "data": data}
        case types.ResourceLink(uri=uri, name=name):
            return {"type": "text", "text": f"{name}: {uri}"}
        case types.EmbeddedResource(resource=types.TextResourceContents(text=text)):
            return {"type": "text", "text": text}
        case types.EmbeddedResource(resource=types.BlobResourceContents(blob=data, mime_type=media_type, uri=uri)):
            kind = media_type or "application/octet-stream"
            return {"type": "file", "media_type": kind, "data": data, "name": str(uri).rpartition("/")[2] or "file"}
        case _:
            return {"type": "text", "text": f"[content of type {getattr(block, 'type', 'unknown')!r}]"}
