"""The sequencer: patches of parallel tools end at the state that the commit stores."""

from __future__ import annotations

from typing import Any

from helix_agents.state import StepSequencer, apply_patch, merge_step_writes


def add(key: str, by: int, value: int) -> list[dict[str, Any]]:
    return [{"kind": "increment", "path": [key], "by": by, "value": value}]


def put(key: str, value: Any) -> list[dict[str, Any]]:
    return [{"kind": "replace", "path": [key], "value": value}]


def test_patches_follow_the_merge_in_any_order_of_arrival() -> None:
    base = {"n": 1, "x": 0}
    first, second = add("n", 2, 3), [*add("n", 5, 6), *put("x", 9)]
    shown: Any = base
    sequencer = StepSequencer(base)
    shown = apply_patch(shown, sequencer.accept(1, second))
    assert shown == {"n": 6, "x": 9}
    shown = apply_patch(shown, sequencer.accept(0, first))
    assert shown == merge_step_writes(base, [first, second])[0] == sequencer.state == {"n": 8, "x": 9}


def test_a_tool_that_failed_is_taken_back_and_the_others_stay() -> None:
    sequencer = StepSequencer({"n": 0})
    shown: Any = apply_patch({"n": 0}, sequencer.accept(0, add("n", 1, 1)))
    shown = apply_patch(shown, sequencer.accept(1, add("n", 10, 10)))
    shown = apply_patch(shown, sequencer.withdraw(0))
    assert shown == {"n": 10}
    assert apply_patch(shown, sequencer.take_back()) == {"n": 0}


def test_tools_that_replaced_a_number_by_the_same_number_probably_meant_to_count() -> None:
    sequencer = StepSequencer({"n": 0, "m": 0})
    for tool in (0, 1):
        sequencer.accept(tool, [*put("n", 1), *put("m", tool)])
    (warning,) = sequencer.likely_lost_counts()
    assert "Tools 0, 1 all replaced 0 by 1 at /n" in warning
    assert "increment('n', 1)" in warning
