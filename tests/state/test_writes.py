"""Writes: which ops are well formed, and the patch they become."""

from __future__ import annotations

from typing import Any

import pytest

from helix_agents.errors import PatchError
from helix_agents.state import StepWrites, step_writes_to_rfc6902
from helix_agents.state.writes import parsed


@pytest.mark.parametrize(
    ("op", "shown", "value"),
    [
        ({"kind": "replace", "path": ["a"], "value": 1}, "replace /a", 1),
        ({"kind": "replace", "key": "a", "value": 1}, "replace /a", 1),
        ({"kind": "replace", "path": [], "value": {}}, "replace (root)", {}),
        ({"kind": "delete", "path": ["a", 0]}, "delete /a/0", None),
        ({"kind": "append", "path": ["a"], "items": [1]}, "append /a", [1]),
        ({"kind": "increment", "path": ["a"], "by": -2}, "increment /a", -2),
        ({"kind": "ensure", "path": ["a"], "value": []}, "ensure /a", []),
    ],
)
def test_a_well_formed_op_is_parsed(op: Any, shown: str, value: Any) -> None:
    (only,), warnings = parsed([op])
    assert (str(only), only.value, warnings) == (shown, value, [])


@pytest.mark.parametrize(
    ("op", "reason"),
    [
        (5, "must be an object"),
        ({"kind": "explode", "path": ["a"]}, "'explode' is not a kind of op"),
        ({"kind": "replace", "value": 1}, "needs a path"),
        ({"kind": "replace", "path": ["a"]}, "replace needs 'value'"),
        ({"kind": "replace", "path": [], "value": []}, "only be replaced, by an object"),
        ({"kind": "delete", "path": []}, "only be replaced, by an object"),
        ({"kind": "delete", "path": [-1]}, "neither a key nor a position"),
        ({"kind": "delete", "path": [True]}, "neither a key nor a position"),
        ({"kind": "append", "path": ["a"], "items": "ab"}, "must be a list"),
        ({"kind": "increment", "path": ["a"], "by": "1"}, "needs a number"),
        ({"kind": "ensure", "path": ["a"], "value": 1}, "needs an empty list"),
        ({"kind": "replace", "path": ["a"], "value": {1}}, "set is not JSON"),
    ],
)
def test_any_other_op_is_dropped_with_a_warning(op: Any, reason: str) -> None:
    good, (warning,) = parsed(StepWrites([op]))
    assert good == []
    assert reason in warning


def test_writes_become_a_json_patch() -> None:
    ops: list[dict[str, Any]] = [
        {"kind": "replace", "path": ["a"], "value": 1, "new": True},
        {"kind": "increment", "path": ["n"], "by": 2, "value": 5},
        {"kind": "append", "path": ["l"], "items": [1, 2]},
        {"kind": "delete", "path": ["a/b"]},
        {"kind": "ensure", "path": ["e"], "value": {}},
    ]
    assert step_writes_to_rfc6902(ops) == [
        {"op": "add", "path": "/a", "value": 1},
        {"op": "replace", "path": "/n", "value": 5},
        {"op": "add", "path": "/l/-", "value": 1},
        {"op": "add", "path": "/l/-", "value": 2},
        {"op": "remove", "path": "/a~1b"},
        {"op": "add", "path": "/e", "value": {}},
    ]


@pytest.mark.parametrize("writes", [5, [{"kind": "explode", "path": []}], [{"path": ["a"]}]])
def test_what_is_not_a_list_of_ops_cannot_become_a_patch(writes: Any) -> None:
    with pytest.raises(PatchError):
        step_writes_to_rfc6902(writes)
