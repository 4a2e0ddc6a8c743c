"""Results of MCP tools: structured content, text, or parts."""

from __future__ import annotations

from typing import Any

import pytest
from mcp import types

from helix_agents.mcp.results import result_of
from helix_agents.tools.tool import ModelRetry

TEXT = types.TextContent(type="text", text="Hi")
IMAGE = types.ImageContent(type="image", data="QQ==", mime_type="image/png")
FILE = types.EmbeddedResource(
    type="resource", resource=types.BlobResourceContents(uri="file:///a/b.bin", blob="QQ==", mime_type=None)
)


def returned(*content: Any, structured: Any = None, is_error: bool = False) -> types.CallToolResult:
    return types.CallToolResult(content=list(content), structured_content=structured, is_error=is_error)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (returned(), ""),
        (returned(TEXT, TEXT), "Hi\nHi"),
        (returned(TEXT, structured={"a": 1}), {"a": 1}),
        (returned(TEXT, structured={"result": [1]}), [1]),
        (returned(TEXT, structured={"result": 1, "more": 2}), {"result": 1, "more": 2}),
        (
            returned(TEXT, IMAGE, structured={"a": 1}),
            [{"type": "text", "text": "Hi"}, {"type": "image", "media_type": "image/png", "data": "QQ=="}],
        ),
        (returned(FILE), [{"type": "file", "media_type": "application/octet-stream", "data": "QQ==", "name": "b.bin"}]),
    ],
)
def test_a_result_is_the_simplest_form_that_loses_nothing(given: types.CallToolResult, expected: Any) -> None:
    assert result_of(given) == expected


@pytest.mark.parametrize(("content", "text"), [([TEXT], "Hi"), ([], "The tool failed.")])
def test_a_failure_is_for_the_model_to_read(content: list[Any], text: str) -> None:
    with pytest.raises(ModelRetry, match=text):
        result_of(returned(*content, is_error=True))
