"""Chunks as the UI message stream of the AI SDK."""

from __future__ import annotations

from typing import Any

from helix_agents.server.wire.ui_messages import UiMessageEncoder

TEXT: dict[str, Any] = {"type": "text_delta", "delta": "Hi", "step": 1}
CALL: dict[str, Any] = {"type": "tool_start", "tool_call_id": "c", "tool_name": "add", "arguments": {}}
DONE: dict[str, Any] = {"type": "tool_end", "tool_call_id": "c", "tool_name": "add", "success": True, "result": 2}


def types_of(encoder: UiMessageEncoder, *chunks: dict[str, Any]) -> list[str]:
    return [part["type"] for chunk in chunks for part in encoder.chunk(chunk)]


def test_a_step_opens_and_closes_what_it_shows() -> None:
    encoder = UiMessageEncoder("m")
    assert types_of(encoder, TEXT, TEXT, CALL, DONE, {"type": "step_committed"}) == [
        "start-step", "text-start", "text-delta", "text-delta", "text-end",
        "tool-input-available", "tool-output-available", "finish-step",
    ]  # fmt: skip
    assert encoder.end("end", {}) == [{"type": "finish"}]


def test_a_connection_that_joins_in_the_middle_opens_what_is_open() -> None:
    encoder = UiMessageEncoder("m")
    types_of(encoder, CALL, TEXT)
    assert [part["type"] for part in encoder.begin()] == ["start", "start-step", "tool-input-available", "text-start"]


def test_a_rewind_takes_the_open_step_back() -> None:
    encoder = UiMessageEncoder("m")
    types_of(encoder, CALL, DONE)
    assert types_of(encoder, {"type": "stream_rewound"}) == ["reset-step"]
    assert types_of(encoder, CALL) == ["start-step", "tool-input-available"]
    old = UiMessageEncoder("m", can_reset=False)
    types_of(old, CALL)
    assert types_of(old, {"type": "stream_rewound"}) == ["data-helix-rewound", "finish-step"]


def test_an_outcome_without_its_call_shows_the_call_first() -> None:
    assert types_of(UiMessageEncoder("m"), DONE) == ["tool-input-available", "tool-output-available"]


def test_a_question_about_an_outcome_is_never_an_approval() -> None:
    shown = types_of(
        UiMessageEncoder("m"), CALL, {"type": "tool_outcome_request", "tool_call_id": "c", "tool_name": "add"}
    )
    assert "tool-approval-request" not in shown
    assert shown[-1] == "data-helix-outcome"
