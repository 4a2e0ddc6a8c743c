"""Marks: those of successive updates combine into one tree."""

from __future__ import annotations

from typing import Any

import pytest

from helix_agents.state.frozen import FrozenDict
from helix_agents.state.marks import DELETED, SET, Added, Ensured, ListMarks, added, cloned, compose

BASE = FrozenDict({"old": 1, "list": [1, 2, 3]})


@pytest.mark.parametrize(
    ("earlier", "later", "combined"),
    [
        ({}, {"a": SET}, {"a": SET}),
        ({"new": SET}, {"new": DELETED}, {}),
        ({"old": SET}, {"old": DELETED}, {"old": DELETED}),
        ({"old": DELETED}, {"old": SET}, {"old": SET}),
        ({"a": SET}, {"a": {"b": SET}}, {"a": SET}),
        ({"a": {"b": SET}}, {"a": {"c": SET}}, {"a": {"b": SET, "c": SET}}),
    ],
)
def test_the_marks_of_a_later_update_are_added(earlier: Any, later: Any, combined: Any) -> None:
    compose(earlier, later, BASE)
    assert earlier == combined


def test_increments_add_up_until_something_else_sets_the_value() -> None:
    total = added(added(None, 2), 3)
    assert (type(total), total.by) == (Added, 5)
    assert added(SET, 1) is SET
    assert added(Added(10**400), 0.5) is SET


def test_list_marks_below_the_lowest_change_stay() -> None:
    marks: dict[str, Any] = {"list": ListMarks(3, {0: SET, 1: SET, 2: SET})}
    compose(marks, {"list": ListMarks(1, {})}, BASE)
    assert (marks["list"].low, marks["list"].items) == (1, {0: SET})


def test_a_container_that_setdefault_created_collects_the_marks_inside_it() -> None:
    marks: dict[str, Any] = {"new": Ensured()}
    compose(marks, {"new": {"a": SET}}, BASE)
    compose(marks, {"new": {"b": SET}}, BASE)
    assert marks["new"].below == {"a": SET, "b": SET}


def test_a_clone_does_not_follow_the_original() -> None:
    marks: dict[str, Any] = {"a": {"b": SET}, "list": ListMarks(1, {0: SET})}
    copy = cloned(marks)
    compose(marks, {"a": {"c": SET}, "list": ListMarks(0, {})}, BASE)
    assert copy["a"] == {"b": SET}
    assert (copy["list"].low, copy["list"].items) == (1, {0: SET})
