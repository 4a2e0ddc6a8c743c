"""Images and files from AG-UI and AI SDK clients."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from helix_agents.backends.registry import Stores
from helix_agents.errors import InvalidArgument
from helix_agents.server.wire.content import agui_content, ai_sdk_content
from tests.server.test_problems import assert_problem

TEXT = {"type": "text", "text": "What is it?"}
IMAGE = {"type": "image", "media_type": "image/png", "data": "AAAA"}


def test_text_stays_text() -> None:
    assert agui_content({"content": "Hi"}) == "Hi"
    assert agui_content({"content": [TEXT, {"type": "text", "text": "Say."}]}) == "What is it?\nSay."
    assert ai_sdk_content({"parts": [TEXT, {"type": "data-theme", "data": "dark"}]}) == "What is it?"
    assert ai_sdk_content({}) == ""


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"type": "image", "source": {"type": "data", "value": "AAAA", "mimeType": "image/png"}}, IMAGE),
        (
            {"type": "image", "source": {"type": "url", "value": "https://example.org/a"}},
            {"type": "image", "media_type": "image/*", "url": "https://example.org/a"},
        ),
        (
            {"type": "audio", "source": {"type": "data", "value": "AAAA", "mimeType": "audio/wav"}},
            {"type": "audio", "media_type": "audio/wav", "data": "AAAA"},
        ),
        (
            {
                "type": "document",
                "source": {"type": "url", "value": "https://example.org/a", "mimeType": "application/pdf"},
            },
            {"type": "file", "media_type": "application/pdf", "url": "https://example.org/a"},
        ),
        ({"type": "binary", "mimeType": "image/png", "data": "AAAA", "filename": "a.png"}, {**IMAGE, "name": "a.png"}),
        (
            {"type": "binary", "mimeType": "application/pdf", "url": "https://example.org/a"},
            {"type": "file", "media_type": "application/pdf", "url": "https://example.org/a"},
        ),
        (IMAGE, IMAGE),
    ],
)
def test_parts_of_agui(part: Any, expected: Any) -> None:
    assert agui_content({"content": [TEXT, part]}) == [TEXT, expected]


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,AAAA"}, IMAGE),
        (
            {"type": "file", "mediaType": "application/pdf", "url": "https://example.org/a", "filename": "a.pdf"},
            {"type": "file", "media_type": "application/pdf", "url": "https://example.org/a", "name": "a.pdf"},
        ),
    ],
)
def test_parts_of_the_ai_sdk(part: Any, expected: Any) -> None:
    assert ai_sdk_content({"parts": [TEXT, part]}) == [TEXT, expected]


@pytest.mark.parametrize(
    "part", [{"type": "hologram"}, {"type": "binary", "id": "f1"}, 7, {"type": "image", "source": {}}]
)
def test_a_part_of_another_shape_is_rejected(part: Any) -> None:
    with pytest.raises(InvalidArgument):
        agui_content({"content": [part]})
    with pytest.raises(InvalidArgument):
        ai_sdk_content({"parts": [part]})


async def test_both_routes_store_the_parts(alice: httpx.AsyncClient, stores: Stores, sid: str) -> None:
    part = {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,AAAA"}
    chat = {"id": f"{sid}-chat", "messages": [{"id": "m", "role": "user", "parts": [TEXT, part]}]}
    binary = {"type": "binary", "mimeType": "image/png", "data": "AAAA"}
    said = {"id": "m", "role": "user", "content": [TEXT, binary]}
    agui = {"threadId": f"{sid}-agui", "runId": "r", "messages": [said], "tools": [], "context": [], "state": {}}
    for path, body in (("/chat/manager", chat), ("/agui/manager", agui)):
        assert (await alice.post(path, json=body)).status_code == 200
    for session_id in (f"{sid}-chat", f"{sid}-agui"):
        messages = (await stores.state.get_messages(session_id)).items
        assert messages[0]["content"] == [TEXT, IMAGE]


async def test_a_bad_part_is_a_bad_request(alice: httpx.AsyncClient, sid: str) -> None:
    body = {"id": sid, "messages": [{"id": "m", "role": "user", "parts": [{"type": "hologram"}]}]}
    assert_problem(await alice.post("/chat/manager", json=body), 400, "invalid_argument")
