"""The outcome of a step, as a pure function: no store, no loop."""

from __future__ import annotations

from typing import Any

import pytest

from helix_agents.executor.step.decisions import (
    REMINDER,
    Outcome,
    abandoned,
    close_step,
    committed_state,
    partial_message,
    suspend_step,
    suspended_state,
    tool_message,
    unanswered_calls,
)
from helix_agents.types import PendingClientToolCall, SessionState, SuspendedChildWait

CALLS = [{"id": "a", "name": "search", "arguments": {}}, {"id": "b", "name": "search", "arguments": {}}]
ANSWER: dict[str, Any] = {"role": "assistant", "content": "Looking.", "tool_calls": CALLS}
FINE = {"a": Outcome(success=True, result="x"), "b": Outcome(success=False, error="no")}
TEXT: dict[str, Any] = {"role": "assistant", "content": "Done."}
OPTIONS: dict[str, Any] = {"answer_is_stored": False, "wants_output": False, "steps_left": 5}


def test_outcomes_follow_the_answer_in_the_order_of_its_calls() -> None:
    commit = close_step(ANSWER, dict(reversed(FINE.items())), **OPTIONS)
    assert [message.get("tool_call_id") for message in commit.messages] == [None, "a", "b"]
    assert [message["content"] for message in commit.messages[1:]] == ["x", "Error: no"]
    assert commit.status == "active"


def test_an_answer_that_is_in_the_conversation_already_is_not_added_again() -> None:
    commit = close_step(ANSWER, FINE, **{**OPTIONS, "answer_is_stored": True})
    assert [message["role"] for message in commit.messages] == ["tool", "tool"]


def test_an_answer_without_calls_completes_the_run() -> None:
    commit = close_step(TEXT, {}, **OPTIONS)
    assert (commit.status, commit.output) == ("completed", "Done.")


def test_an_answer_without_calls_is_reminded_where_an_output_is_wanted() -> None:
    commit = close_step(TEXT, {}, **{**OPTIONS, "wants_output": True})
    assert (commit.status, commit.messages[-1]["content"]) == ("active", REMINDER)


def test_a_valid_finish_completes_the_run_whatever_its_siblings_did() -> None:
    outcomes = {"a": Outcome(success=True, result={"n": 1}, final=True), "b": FINE["b"]}
    commit = close_step(ANSWER, outcomes, **{**OPTIONS, "steps_left": 0})
    assert (commit.status, commit.output) == ("completed", {"n": 1})


def test_what_the_user_said_meanwhile_comes_last_and_keeps_the_run_going() -> None:
    commit = close_step(TEXT, {}, **OPTIONS, follow_up=[{"role": "user", "content": "Wait"}])
    assert (commit.status, commit.messages[-1]["content"]) == ("active", "Wait")


def test_without_steps_left_the_run_fails() -> None:
    commit = close_step(ANSWER, FINE, **{**OPTIONS, "steps_left": 0})
    assert (commit.status, commit.failure_reason) == ("failed", "max_steps")


PENDING = {"a": PendingClientToolCall("a", "ask")}
WAITS = {"b": SuspendedChildWait("b", "child")}


@pytest.mark.parametrize(
    ("pending", "children", "interrupted", "status"),
    [
        (PENDING, {}, False, "suspended_client_tool"),
        ({}, WAITS, False, "suspended_awaiting_children"),
        (PENDING, WAITS, False, "suspended_step_partial"),
        (PENDING, WAITS, True, "interrupted"),
    ],
)
def test_the_status_says_what_is_waited_for(pending: Any, children: Any, interrupted: bool, status: str) -> None:
    aside = suspend_step(ANSWER, answer_is_stored=False, pending=pending, children=children, interrupted=interrupted)
    assert aside.status == status


def test_a_suspension_keeps_an_answer_that_came_meanwhile() -> None:
    answered = PendingClientToolCall("a", "ask", response={"result": 1}, submitted_at=5)
    session = SessionState("s", "main", pending_client_tool_calls={"a": answered})
    aside = suspend_step(ANSWER, answer_is_stored=False, pending=PENDING, children={}, interrupted=False)
    assert suspended_state(session, aside, "step").pending_client_tool_calls == {"a": answered}


def test_a_commit_forgets_the_questions_of_its_step_only() -> None:
    other = PendingClientToolCall("z", "ask")
    session = SessionState("s", "main", pending_client_tool_calls={**PENDING, "z": other}, step_count=3)
    after = committed_state(session, close_step(ANSWER, FINE, **OPTIONS), ["a", "b"])
    assert (after.pending_client_tool_calls, after.step_count) == ({"z": other}, 4)


def test_unanswered_calls_are_found_and_can_be_abandoned() -> None:
    history = [{"role": "user", "content": "Hi"}, ANSWER, tool_message(CALLS[0], FINE["a"])]
    assert [call["id"] for call in unanswered_calls(history)[1]] == ["b"]
    assert [message["tool_call_id"] for message in abandoned(history, "gone")] == ["b"]
    assert abandoned([*history, *abandoned(history, "gone")], "gone") == []


def test_nothing_said_is_no_partial_reply() -> None:
    assert partial_message("", "") is None
    assert partial_message("Hel", "") == {"role": "assistant", "content": "Hel", "interrupted": True}
