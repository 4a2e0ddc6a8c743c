"""Requests as AG-UI clients and the chat of the AI SDK send them, and the events of the responses."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx

Event = dict[str, Any]


async def events_of(client: httpx.AsyncClient, method: str, path: str, **options: Any) -> list[Event]:
    """Return all events of a stream that ends by itself."""
    async with asyncio.timeout(60), client.stream(method, path, **options) as response:
        text = (await response.aread()).decode()
        assert response.status_code == 200, text
    assert response.headers["content-type"] == "text/event-stream"
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def agui_input(session_id: str, run_id: str, *texts: str, **members: Any) -> Event:
    """Return the input of an AG-UI run: the user's messages so far, and the other given fields."""
    messages = [{"id": f"u{number}", "role": "user", "content": text} for number, text in enumerate(texts)]
    return {
        "threadId": session_id,
        "runId": run_id,
        "messages": messages,
        "tools": [],
        "context": [],
        "state": {},
        **members,
    }


def resume(interrupt: str, payload: Any = None, status: str = "resolved") -> list[Event]:
    """Return the `resume` that responds to one interrupt."""
    return [{"interruptId": interrupt, "status": status, "payload": payload}]


def chat_request(session_id: str, *messages: Event, **members: Any) -> Event:
    """Return what the chat transport of the AI SDK sends."""
    return {"id": session_id, "messages": list(messages), "trigger": "submit-message", **members}


def user_says(*parts: str | Event, id: str = "u") -> Event:
    """Return a user's message; a string is a text part."""
    shown = [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]
    return {"id": id, "role": "user", "parts": shown}


def reply(*parts: Event, id: str = "a") -> Event:
    """Return an assistant's message as the client holds it."""
    return {"id": id, "role": "assistant", "parts": [{"type": "step-start"}, *parts]}


def tool_part(call: Event, **members: Any) -> Event:
    """Return the part of a call that a stream has shown with `tool-input-available`."""
    named = {name: call[name] for name in ("toolCallId", "toolName", "input")}
    return {"type": "dynamic-tool", **named, **members}
