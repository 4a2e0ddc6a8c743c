"""Derive: the ops between two snapshots, given where they may differ."""

from __future__ import annotations

from typing import Any

import pytest

from helix_agents.state.derive import derive
from helix_agents.state.freeze import freeze
from helix_agents.state.marks import DELETED, SET, Added, DictMarks, Ensured, ListMarks

CASES: list[tuple[dict[str, Any], dict[str, Any], DictMarks, list[dict[str, Any]]]] = [
    ({"a": 1}, {"a": 1}, {"a": SET}, []),
    ({"a": 1}, {"a": 2}, {"a": SET}, [{"kind": "replace", "path": ["a"], "value": 2}]),
    ({}, {"a": 2}, {"a": SET}, [{"kind": "replace", "path": ["a"], "value": 2, "new": True}]),
    ({"a": 1}, {}, {"a": DELETED}, [{"kind": "delete", "path": ["a"]}]),
    ({}, {}, {"a": DELETED}, []),
    ({"n": 1}, {"n": 4}, {"n": Added(3)}, [{"kind": "increment", "path": ["n"], "by": 3, "value": 4}]),
    ({"n": 1}, {"n": 1}, {"n": Added(0)}, []),
    ({"l": [1]}, {"l": [1, 2]}, {"l": ListMarks(1, {})}, [{"kind": "append", "path": ["l"], "items": [2]}]),
    ({"l": [1]}, {"l": [5]}, {"l": ListMarks(1, {0: SET})}, [{"kind": "replace", "path": ["l", 0], "value": 5}]),
    ({"l": [1, 2]}, {"l": [2]}, {"l": ListMarks(0, {})}, [{"kind": "replace", "path": ["l"], "value": [2]}]),
    ({}, {"d": {}}, {"d": Ensured()}, [{"kind": "ensure", "path": ["d"], "value": {}}]),
]


@pytest.mark.parametrize(("base", "state", "marks", "ops"), CASES)
def test_the_ops_lead_from_one_snapshot_to_the_other(base: Any, state: Any, marks: DictMarks, ops: Any) -> None:
    assert derive(freeze(base), freeze(state), marks, array_delta_mode=True) == ops


def test_without_array_deltas_a_list_is_replaced_as_a_whole() -> None:
    ops = derive(freeze({"l": [1]}), freeze({"l": [1, 2]}), {"l": ListMarks(1, {})}, array_delta_mode=False)
    assert ops == [{"kind": "replace", "path": ["l"], "value": [1, 2]}]
