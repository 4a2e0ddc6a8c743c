"""Touches: which writes of parallel tools conflict."""

from __future__ import annotations

import pytest

from helix_agents.state.touches import Touches


@pytest.mark.parametrize(
    ("first", "second", "is_free"),
    [
        (["a"], ["b"], True),
        (["a"], ["a"], False),
        (["a"], ["a", "b"], False),
        (["a", "b"], ["a"], False),
        (["a", "b"], ["a", "c"], True),
        (["a", 0], ["a", 1], False),  # a list is one place
        (["a", 0, "x"], ["b", 0, "x"], True),
    ],
)
def test_two_tools_conflict_at_the_same_place_and_above_or_below_it(
    first: list[str | int], second: list[str | int], is_free: bool
) -> None:
    touches = Touches()
    assert touches.add(0, first, ensures=False)
    assert touches.add(1, second, ensures=False) is is_free


def test_several_tools_may_create_the_same_container_and_fill_it() -> None:
    touches = Touches()
    assert touches.add(0, ["a"], ensures=True)
    assert touches.add(1, ["a"], ensures=True)
    assert touches.add(1, ["a", "b"], ensures=False)
    assert touches.add(2, ["a"], ensures=True)
    assert not touches.add(2, ["a"], ensures=False)


def test_a_tool_does_not_conflict_with_itself_or_with_one_that_is_forgotten() -> None:
    touches = Touches()
    assert touches.add(0, ["a"], ensures=False)
    assert touches.add(0, ["a", "b"], ensures=False)
    assert touches.is_alone(0)
    assert not touches.is_alone(1)
    touches.forget(0)
    assert touches.add(1, ["a"], ensures=False)
