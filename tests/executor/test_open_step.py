"""An open step: staged rows restore what a dead process had done."""

from __future__ import annotations

from typing import Any

import msgspec

from helix_agents.executor.step.decisions import Outcome, StagedOutcome
from helix_agents.executor.step.open_step import OpenStep, part_id, with_arguments
from helix_agents.messages import Message, ToolCall
from helix_agents.state import StepWrites
from helix_agents.types import StagedChanges, StagedKind

CALLS: list[ToolCall] = [{"id": each, "name": "work", "arguments": {}} for each in ("a", "b", "c")]
REPLY: Message = {"role": "assistant", "content": "", "tool_calls": CALLS}


def row(kind: StagedKind, call_id: str, index: int, result: Any, *ops: dict[str, Any]) -> StagedChanges:
    return StagedChanges(call_id, index, StepWrites(list(ops)), result, kind=kind)


def test_finished_calls_come_in_the_order_of_the_reply_with_their_patches() -> None:
    done = msgspec.to_builtins(StagedOutcome(Outcome(result=1, success=True)))
    put = {"kind": "replace", "path": ["x"], "value": 1, "new": True}
    step = OpenStep("s", 1, REPLY, {})
    found = step.load_staged([row("call", "b", 1, done), row("call", "a", 0, done, put)])
    assert [each.call["id"] for each in found] == ["a", "b"]
    assert found[0].patches == [{"op": "add", "path": "/x", "value": 1}]
    assert [call["id"] for call in step.missing] == ["c"]
    assert step.index_of("c") == 2


def test_a_call_that_began_and_has_no_outcome_is_unknown() -> None:
    step = OpenStep("s", 1, REPLY, {})
    begun = {"approval_id": None}
    part = part_id("b", "mail")
    step.load_staged([row("begun", "a", 0, begun), row("begun", part, 1, begun), row("part", part, 1, {"value": 7})])
    assert step.unknown == {"a"}
    assert step.parts == {"b.mail": 7}


def test_arguments_that_a_person_changed_replace_those_of_the_model() -> None:
    assert with_arguments(CALLS[0], None) is CALLS[0]
    assert with_arguments(CALLS[0], {"n": 1}) == {"id": "a", "name": "work", "arguments": {"n": 1}}
