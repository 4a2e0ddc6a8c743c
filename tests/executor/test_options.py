"""Options of a run: which inputs and combinations are valid."""

from __future__ import annotations

from typing import Any

import pytest

from helix_agents import Agent, InvalidArgument
from helix_agents.executor.options import as_messages, read_request

AGENT = Agent("a")


@pytest.mark.parametrize(
    ("given", "count"),
    [("Hi", 1), ({"role": "user", "content": "Hi"}, 1), ([{"role": "user", "content": "Hi"}] * 2, 2), ([], 0)],
)
def test_an_input_is_a_string_a_message_or_messages(given: Any, count: int) -> None:
    assert [message["content"] for message in as_messages(given)] == ["Hi"] * count


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (5, "not int"),
        (["Hi"], "not list"),
        ({"role": "nobody", "content": ""}, "Unknown role"),
        ({"role": "tool", "tool_call_id": "x", "content": ""}, "not a full conversation"),
    ],
)
def test_any_other_input_is_rejected(given: Any, reason: str) -> None:
    with pytest.raises(InvalidArgument, match=reason):
        as_messages(given)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"if_exists": "x"}, "Invalid if_exists 'x'"),
        ({"if_running": "x"}, "Invalid if_running 'x'"),
        ({"if_running": "enqueue", "idempotency_key": "k"}, "cannot be combined with idempotency_key"),
        ({"if_exists": "reject", "if_running": "interrupt"}, "if_exists='reject' cannot be combined"),
        ({"session_id": "helix/x"}, "reserved"),
        ({"not_before": -1}, "not_before"),
    ],
)
def test_options_that_contradict_each_other_are_rejected(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidArgument, match=reason):
        read_request(AGENT, "Hi", options)


def test_an_unknown_option_is_named() -> None:
    with pytest.raises(TypeError, match="'sesion_id'"):
        read_request(AGENT, "Hi", {"sesion_id": "s"})


def test_a_request_repeats_only_if_everything_stored_is_the_same() -> None:
    one = read_request(AGENT, "Hi", {"tags": ["t"]})
    assert one.fingerprint == read_request(AGENT, "Hi", {"tags": ["t"], "deps": object()}).fingerprint
    assert one.fingerprint != read_request(AGENT, "Hi", {"tags": ["u"]}).fingerprint
