"""A stored conversation as clients of the AI SDK and of AG-UI hold it."""

from __future__ import annotations

from typing import Any

import pytest

from helix_agents.messages import Message, automatic_message
from helix_agents.server.wire.history import agui_messages, ui_messages
from helix_agents.types import PendingClientToolCall

CALL = {"id": "c", "name": "add", "arguments": {"a": 1}}
CONVERSATION: list[Message] = [
    {"role": "user", "content": "Hi", "id": "u1"},
    {"role": "assistant", "content": "", "thinking": "Hm", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c", "content": "2"},
    automatic_message("Use the tool."),
    {"role": "assistant", "content": "Done."},
]


def test_one_ui_message_holds_a_whole_reply() -> None:
    user, reply = ui_messages("s", CONVERSATION, {})
    assert user == {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "Hi"}]}
    assert reply["id"] == "s-1"
    assert [part["type"] for part in reply["parts"]] == [
        "step-start",
        "reasoning",
        "dynamic-tool",
        "step-start",
        "text",
    ]
    assert (reply["parts"][2]["state"], reply["parts"][2]["output"]) == ("output-available", "2")


@pytest.mark.parametrize(
    ("response", "expected"),
    [(None, {"id": "q"}), ({"approved": False}, {"id": "q", "approved": False})],
)
def test_an_approval_is_shown_with_its_response(response: Any, expected: dict[str, Any]) -> None:
    pending = {"c": PendingClientToolCall("c", "add", {}, approval_id="q", response=response)}
    _, reply = ui_messages("s", CONVERSATION[:2], pending)
    assert reply["parts"][-1]["approval"] == expected


def test_a_failed_call_shows_its_error() -> None:
    failed = [*CONVERSATION[:2], {**CONVERSATION[2], "success": False}]
    assert ui_messages("s", failed, {})[1]["parts"][-1]["errorText"] == "2"
    assert agui_messages("s", failed)[-1]["error"] == "2"


def test_ag_ui_shows_reasoning_calls_and_results_as_messages() -> None:
    shown = agui_messages("s", CONVERSATION)
    assert [message["role"] for message in shown] == ["user", "reasoning", "assistant", "tool", "assistant"]
    assert shown[2]["toolCalls"] == [
        {"id": "c", "type": "function", "function": {"name": "add", "arguments": '{"a":1}'}}
    ]
