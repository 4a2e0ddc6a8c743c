"""Snapshots: dicts and lists that cannot change."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import pytest

from helix_agents.state import FrozenDict, FrozenList, StateTracker, freeze, thaw
from helix_agents.state.frozen import same_value

SNAPSHOT_MUTATORS = [
    lambda s: s.__setitem__("n", 1),
    lambda s: s.__delitem__("l"),
    lambda s: s.update(n=1),
    lambda s: s.setdefault("n", 1),
    lambda s: s.pop("l"),
    lambda s: s.popitem(),
    lambda s: s.clear(),
    lambda s: s.__ior__({"n": 1}),
    lambda s: s["l"].append(1),
    lambda s: s["l"].extend([1]),
    lambda s: s["l"].insert(0, 1),
    lambda s: s["l"].pop(),
    lambda s: s["l"].remove(1),
    lambda s: s["l"].clear(),
    lambda s: s["l"].sort(),
    lambda s: s["l"].reverse(),
    lambda s: s["l"].__setitem__(0, 2),
    lambda s: s["l"].__delitem__(0),
    lambda s: s["l"].__iadd__([1]),
    lambda s: s["l"].__imul__(2),
]


@pytest.mark.parametrize("mutate", SNAPSHOT_MUTATORS)
def test_every_mutator_of_a_snapshot_raises(mutate: Any) -> None:
    state = StateTracker({"l": [1]}).state
    with pytest.raises(TypeError, match="read-only"):
        mutate(state)
    assert state == {"l": [1]}


def test_snapshots_are_dicts_and_lists_to_the_rest_of_the_world() -> None:
    state = StateTracker({"l": [1, {"a": None}]}).state
    assert json.dumps(state) == '{"l": [1, {"a": null}]}'
    assert state == {"l": [1, {"a": None}]}
    assert isinstance(state, dict)
    assert isinstance(state["l"], list)
    match state:
        case {"l": [1, {"a": None}]}:
            pass
        case _:
            pytest.fail("a snapshot matches like a dict")


def test_copies_of_snapshots_are_mutable_and_pickles_are_not() -> None:
    state = StateTracker({"l": [1]}).state
    deep = copy.deepcopy(state)
    deep["l"].append(2)
    assert (state, deep) == ({"l": [1]}, {"l": [1, 2]})
    assert type(copy.copy(state)) is dict
    again = pickle.loads(pickle.dumps(state))
    assert (type(again), type(again["l"]), again) == (FrozenDict, FrozenList, state)


def test_thawing_gives_a_mutable_copy() -> None:
    frozen = freeze({"l": [{"a": 1}]})
    thawed = thaw(frozen)
    thawed["l"][0]["a"] = 2
    assert frozen == {"l": [{"a": 1}]}


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (1, 1, True),
        (1, 1.0, False),
        (1, True, False),
        (0.0, -0.0, False),
        ([1], [1], True),
        ({"a": 1}, {"a": True}, False),
    ],
)
def test_values_are_the_same_only_if_they_are_the_same_json(a: Any, b: Any, expected: bool) -> None:
    assert same_value(freeze(a), freeze(b)) is expected
