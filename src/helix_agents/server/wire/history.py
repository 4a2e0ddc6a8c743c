"""A stored conversation as clients of the AI SDK and of AG-UI hold it, pending calls included. Pure.

Message ids agree with those of the live streams where the protocol needs it: a UI message is one turn, and a client
that reconnects replaces the one it has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...agent import FINISH_TOOL
from ...codec import Json, encode
from ...messages import Message, is_from_user
from ...types import PendingClientToolCall
from .ui_messages import question_part, reply_id

Shown = dict[str, Any]

DOCUMENT_KINDS = {"image": "image", "audio": "audio", "file": "document"}


def message_id(session_id: str, message: Message, position: int) -> str:
    """Return the id of a stored message."""
    given = message.get("id")
    return given if isinstance(given, str) else f"{session_id}-message-{position}"


# -- the AI SDK


def ui_messages(
    session_id: str, messages: Sequence[Message], pending: Mapping[str, PendingClientToolCall]
) -> list[Shown]:
    """Return `UIMessage[]`: one message per user message, one per reply."""
    shown: list[Shown] = []
    calls: dict[str, Shown] = {}
    count = 0
    for position, message in enumerate(messages):
        if is_from_user(message):
            count += 1
            parts = _ui_content(message.get("content"))
            shown.append({"id": message_id(session_id, message, position), "role": "user", "parts": parts})
        elif message["role"] == "assistant":
            if not shown or shown[-1]["role"] != "assistant":
                shown.append({"id": reply_id(session_id, count), "role": "assistant", "parts": []})
            shown[-1]["parts"] += _ui_step(message, pending, calls)
        elif message["role"] == "tool" and message.get("tool_call_id") in calls:
            _settle(calls[message["tool_call_id"]], message)
    return shown


def _ui_content(content: Any) -> list[Shown]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [_ui_part(part) for part in content or ()]


def _ui_part(part: Shown) -> Shown:
    if part.get("type") == "text":
        return {"type": "text", "text": part["text"]}
    named = {"filename": part["name"]} if "name" in part else {}
    return {"type": "file", "mediaType": part.get("media_type"), "url": _url(part), **named}


def _url(part: Shown) -> str:
    if "data" in part:
        return f"data:{part.get('media_type')};base64,{part['data']}"
    return str(part.get("url") or f"blob:{part.get('blob')}")


def _ui_step(message: Message, pending: Mapping[str, PendingClientToolCall], calls: dict[str, Shown]) -> list[Shown]:
    parts: list[Shown] = [{"type": "step-start"}]
    if message.get("thinking"):
        parts.append({"type": "reasoning", "text": message["thinking"], "state": "done"})
    if message.get("content"):
        parts.append({"type": "text", "text": message["content"], "state": "done"})
    for call in message.get("tool_calls", ()):
        if call["name"] != FINISH_TOOL:
            calls[call["id"]] = {
                "type": "dynamic-tool",
                "toolName": call["name"],
                "toolCallId": call["id"],
                "input": call["arguments"],
                "state": "input-available",
                **_approval(pending.get(call["id"])),
            }
            parts.append(calls[call["id"]])
            asked = pending.get(call["id"])
            if asked is not None and asked.later == "asked" and asked.submitted_at is None:
                question = asked.asked.question if asked.asked else None
                details = {"tool_name": asked.tool_name, "question": question, "approval_id": asked.approval_id}
                parts.append(question_part(call["id"], details))
    return parts


def _approval(pending: PendingClientToolCall | None) -> Shown:
    if pending is None or pending.kind != "approval":
        return {}
    match pending.response:
        case {"approved": bool(approved)}:
            return {"state": "approval-responded", "approval": {"id": pending.approval_id, "approved": approved}}
    return {"state": "approval-requested", "approval": {"id": pending.approval_id}}


def _settle(part: Shown, message: Message) -> None:
    part["input"] = message.get("arguments", part["input"])  # what a person has changed them to
    if message.get("success", True):
        part.update(state="output-available", output=message.get("content"))
    else:
        part.update(state="output-error", errorText=str(message.get("content")))


# -- AG-UI


def agui_messages(session_id: str, messages: Sequence[Message]) -> list[Shown]:
    """Return the messages as a `MESSAGES_SNAPSHOT` holds them."""
    shown: list[Shown] = []
    for position, message in enumerate(messages):
        named = {"id": message_id(session_id, message, position)}
        match message:
            case {"role": "user", "content": content} if is_from_user(message):
                shown.append({**named, "role": "user", "content": _agui_content(content)})
            case {"role": "assistant"}:
                if message.get("thinking"):
                    reasoning = {"id": f"{named['id']}-thinking", "role": "reasoning", "content": message["thinking"]}
                    shown.append(reasoning)
                shown.append({**named, "role": "assistant", **_agui_reply(message)})
            case {"role": "tool", "tool_call_id": str(call), "content": content}:
                text = content if isinstance(content, str) else encode(content)
                result = {"role": "tool", "toolCallId": call, "content": text}
                shown.append({**named, **result} | ({} if message.get("success", True) else {"error": text}))
    return shown


def _agui_content(content: Any) -> Json:
    if not isinstance(content, list):
        return content
    return [part if part.get("type") == "text" else _agui_part(part) for part in content]


def _agui_part(part: Shown) -> Shown:
    kind, value = ("data", part["data"]) if "data" in part else ("url", _url(part))
    source = {"type": kind, "value": value, "mimeType": part.get("media_type")}
    return {"type": DOCUMENT_KINDS.get(str(part.get("type")), "document"), "source": source}


def _agui_reply(message: Message) -> Shown:
    calls = [_agui_call(call) for call in message.get("tool_calls", ()) if call["name"] != FINISH_TOOL]
    content = {"content": message["content"]} if message.get("content") else {}
    return content | ({"toolCalls": calls} if calls else {})


def _agui_call(call: Mapping[str, Any]) -> Shown:
    function = {"name": call["name"], "arguments": encode(call["arguments"])}
    return {"id": call["id"], "type": "function", "function": function}
