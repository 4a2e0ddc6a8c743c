"""Undo: the plan that undoes what a failed turn did, and what the model reads about it."""

from __future__ import annotations

from helix_agents.executor.step.undo import ModelReading, is_undoing, undo_id, undo_messages
from helix_agents.messages import Message
from helix_agents.tools.tool import UNDO_PREFIX
from helix_agents.types import SessionState


def did(call_id: str, key: str, *, undo: bool = True, **more: object) -> list[Message]:
    call = {"id": call_id, "name": "pay", "arguments": {"n": call_id}}
    result = {"role": "tool", "tool_call_id": call_id, "tool_name": "pay", "content": "ok", "effect_key": key, **more}
    return [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {**result, **({"undo": {"result": f"receipt {key}"}} if undo else {})},
    ]


TURN = [*did("1", "a"), *did("2", "b"), *did("3", "c", undo=False), *did("4", "d", outcome="unknown")]


def test_effects_are_taken_back_latest_first_if_their_tool_can() -> None:
    (plan,) = undo_messages(TURN, [], "run-3-undo", "Boom", "error")
    assert plan["undo"] == {"error": "Boom", "failure_reason": "error"}
    assert [(call["id"], call["name"], call["arguments"]["result"]) for call in plan["tool_calls"]] == [
        ("run-3-undo-1", f"{UNDO_PREFIX}pay", "receipt b"),
        ("run-3-undo-2", f"{UNDO_PREFIX}pay", "receipt a"),
    ]


def test_without_such_effects_there_is_no_plan() -> None:
    assert undo_messages(did("1", "a", undo=False), [], "u", None, None) == []


def test_the_model_reads_one_note_instead_of_the_calls() -> None:
    plan = undo_messages(did("1", "a"), [], "u", "Boom", None)
    done: list[Message] = [{"role": "tool", "tool_call_id": "u-1", "content": "refunded"}]
    reading = ModelReading()
    assert list(reading.read(plan)) == []
    (note,) = reading.read(done)
    assert note["content"] == 'The run failed: Boom\nWhat it had done was taken back:\n- pay {"n":"1"}: refunded'
    assert list(reading.read([{"role": "user", "content": "Hi"}])) == [{"role": "user", "content": "Hi"}]


def test_a_session_is_undoing_while_its_open_step_takes_effects_back() -> None:
    assert undo_id("run", 2) == "run-3-undo"
    assert is_undoing(SessionState("s", "a", suspended_step_id="run-3-undo"))
    assert not is_undoing(SessionState("s", "a", suspended_step_id="run-3"))
    assert not is_undoing(SessionState("s", "a", status="failed", suspended_step_id="run-3-undo"))
