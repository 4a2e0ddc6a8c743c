"""What happens when parallel tools write: one rule of the merge each."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Any

import msgspec
import pytest

from helix_agents.errors import PatchError
from helix_agents.state import (
    StateTracker,
    StepSequencer,
    StepWrites,
    apply_patch,
    apply_step_writes,
    merge_step_writes,
    step_writes_to_rfc6902,
)

BASE = {"n": 0, "items": [{"v": 1}, {"v": 2}], "user": {"name": "a", "profile": {"age": 1}}}


def writes(change: Callable[[Any], object], base: Any = BASE) -> StepWrites:
    tracker = StateTracker(base)
    tracker.update(change)
    return tracker.get_step_writes()


def both_orders(one: StepWrites, other: StepWrites, base: Any = BASE) -> list[tuple[Any, list[str]]]:
    return [merge_step_writes(base, list(order)) for order in permutations([one, other])]


def test_the_last_tool_wins_a_path_and_the_other_is_warned_about() -> None:
    one, two = writes(lambda d: d.update(n=1)), writes(lambda d: d.update(n=2))
    (first, warned), (second, _) = both_orders(one, two)
    assert (first["n"], second["n"]) == (2, 1)
    assert warned == [
        "Dropped replace /n of tool 0: tool 1 wrote the same path later. "
        "To count in parallel tools write draft.increment('n', 1)."
    ]


def test_the_same_value_written_twice_is_not_lost() -> None:
    assert merge_step_writes(BASE, [writes(lambda d: d.update(n=1))] * 2)[1] == []


def test_different_paths_below_one_object_all_survive() -> None:
    name = writes(lambda d: d["user"].update(name="z"))
    age = writes(lambda d: d["user"]["profile"].update(age=5))
    for state, warnings in both_orders(name, age):
        assert state["user"] == {"name": "z", "profile": {"age": 5}}
        assert warnings == []


def test_an_append_survives_a_replaced_and_a_deleted_list() -> None:
    append = writes(lambda d: d["items"].append("new"))
    for state, warnings in both_orders(append, writes(lambda d: d.update(items=["other"]))):
        assert (state["items"], warnings) == (["other", "new"], [])
    for state, warnings in both_orders(append, writes(lambda d: d.pop("items"))):
        assert (state["items"], warnings) == (["new"], [])


def test_an_append_to_what_is_no_list_any_more_is_dropped_with_a_warning() -> None:
    append = writes(lambda d: d["items"].append("new"))
    for state, warnings in both_orders(append, writes(lambda d: d.update(items=5))):
        assert state["items"] == 5
        assert len(warnings) == 1
        assert "append /items" in warnings[0]


def test_an_increment_counts_on_top_of_a_set() -> None:
    for state, warnings in both_orders(writes(lambda d: d.increment("n", 3)), writes(lambda d: d.update(n=2))):
        assert (state["n"], warnings) == (5, [])


def test_an_edit_at_a_position_of_a_list_that_another_tool_changed_is_dropped() -> None:
    edit = writes(lambda d: d["items"][0].update(v=7))
    for state, warnings in both_orders(edit, writes(lambda d: d["items"].reverse())):
        assert state["items"] == [{"v": 2}, {"v": 1}]
        assert len(warnings) == 1
        assert "/items/0/v" in warnings[0]


def test_an_edit_at_a_position_and_an_append_both_survive() -> None:
    edit, append = writes(lambda d: d["items"][0].update(v=7)), writes(lambda d: d["items"].append(9))
    for state, warnings in both_orders(edit, append):
        assert (state["items"], warnings) == ([{"v": 7}, {"v": 2}, 9], [])


def test_a_write_below_a_deleted_object_is_lost_with_a_warning() -> None:
    below = writes(lambda d: d["user"]["profile"].update(age=5))
    for state, warnings in both_orders(below, writes(lambda d: d.pop("user"))):
        assert "user" not in state
        assert len(warnings) == 1


def test_a_write_into_what_an_earlier_tool_replaced_lands_there_and_says_so() -> None:
    replace, below = writes(lambda d: d.update(user={"name": "r"})), writes(lambda d: d["user"].update(name="z"))
    (state, warnings), (reverse, lost) = both_orders(replace, below)
    assert state["user"] == {"name": "z"}
    assert "changed what tool 0 wrote" in warnings[0]
    assert reverse["user"] == {"name": "r"}
    assert lost == ["Dropped replace /user/name of tool 0: tool 1 overwrote /user."]


def test_two_tools_may_create_one_container() -> None:
    one = writes(lambda d: d.setdefault("by", {}).setdefault("kind", []).append(1))
    two = writes(lambda d: d.setdefault("by", {}).setdefault("kind", []).append(2))
    assert merge_step_writes(BASE, [one, two]) == ({**BASE, "by": {"kind": [1, 2]}}, [])


def test_containers_of_different_kinds_at_one_key_are_warned_about() -> None:
    one, two = writes(lambda d: d.setdefault("x", {})), writes(lambda d: d.setdefault("x", []).append(1))
    for _, warnings in both_orders(one, two):
        assert warnings


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ({"kind": "append", "key": "items", "items": [1]}, {"items": [1]}),
        ({"kind": "increment", "key": "n", "by": 2}, {"n": 2}),
        ({"kind": "ensure", "key": "o", "value": {}}, {"o": {}}),
        ({"kind": "replace", "key": "k", "value": 1}, {"k": 1}),
        ({"kind": "delete", "key": "k"}, {}),
        ({"kind": "replace", "path": [], "value": {"all": 1}}, {"all": 1}),
    ],
)
def test_ops_at_a_missing_key(op: dict[str, Any], expected: dict[str, Any]) -> None:
    assert merge_step_writes({}, [StepWrites((op,))]) == (expected, [])
    assert apply_step_writes({}, [op]) == (expected, [])


@pytest.mark.parametrize(
    "op",
    [
        {"kind": "explode", "key": "n"},
        {"key": "n", "value": 1},
        {"kind": "replace", "value": 1},
        {"kind": "replace", "path": "n", "value": 1},
        {"kind": "replace", "path": [None], "value": 1},
        {"kind": "replace", "path": ["items", -1], "value": 1},
        {"kind": "replace", "path": ["items", True], "value": 1},
        {"kind": "replace", "path": ["items", 2], "value": 1},
        {"kind": "replace", "path": ["items", "0"], "value": 1},
        {"kind": "replace", "path": ["user", 0], "value": 1},
        {"kind": "replace", "path": ["missing", "x"], "value": 1},
        {"kind": "replace", "path": ["n", "x"], "value": 1},
        {"kind": "replace", "path": [], "value": [1]},
        {"kind": "replace", "key": "n"},
        {"kind": "replace", "key": "n", "value": {1, 2}},
        {"kind": "delete", "path": ["items", 0]},
        {"kind": "delete", "path": []},
        {"kind": "append", "key": "n", "items": [1]},
        {"kind": "append", "key": "items", "items": 1},
        {"kind": "append", "key": "items"},
        {"kind": "increment", "key": "user", "by": 1},
        {"kind": "increment", "key": "n", "by": "1"},
        {"kind": "increment", "key": "n", "by": True},
        {"kind": "ensure", "key": "n", "value": {}},
        {"kind": "ensure", "key": "new", "value": 5},
        "replace",
        None,
    ],
)
def test_an_op_that_makes_no_sense_is_dropped_with_one_warning(op: Any) -> None:
    good = {"kind": "append", "key": "items", "items": [3]}
    for merged, warnings in (apply_step_writes(BASE, [op, good]), merge_step_writes(BASE, [StepWrites([op, good])])):
        assert merged == {**BASE, "items": [*BASE["items"], 3]}  # type: ignore[misc]
        assert len(warnings) == 1


def test_warnings_that_writes_carry_are_handed_on() -> None:
    assert merge_step_writes({}, [StepWrites([], ["earlier"])]) == ({}, ["earlier"])


def test_merging_leaves_what_it_was_given_alone_and_shares_the_rest() -> None:
    base = {"a": [1], "b": {"deep": [1]}}
    op = {"kind": "append", "key": "a", "items": [[2]]}
    merged, _ = merge_step_writes(base, [StepWrites([op]), StepWrites([op])])
    assert base == {"a": [1], "b": {"deep": [1]}}
    assert op == {"kind": "append", "key": "a", "items": [[2]]}
    assert merged["b"] is base["b"]
    merged["a"][1].append(3)  # plain data in, plain data out, nothing shared with the op
    assert merged["a"] == [1, [2, 3], [2]]


def test_writes_made_by_hand_become_patches() -> None:
    by_hand = StepWrites(({"kind": "append", "key": "a/b", "items": [1]}, {"kind": "delete", "path": ("o", "~k")}))
    assert step_writes_to_rfc6902(by_hand) == [
        {"op": "add", "path": "/a~1b/-", "value": 1},
        {"op": "remove", "path": "/o/~0k"},
    ]


@pytest.mark.parametrize(
    "op", [{"kind": "x", "key": "n"}, {"kind": "increment", "key": "n", "by": 1}, {"kind": "delete"}]
)
def test_what_cannot_become_a_patch_raises(op: Any) -> None:
    with pytest.raises(PatchError, match="cannot become a patch"):
        step_writes_to_rfc6902(StepWrites([op]))


def test_stored_writes_decode_as_they_were() -> None:
    one = StepWrites(({"kind": "append", "key": "a", "items": [1], "extra": True},), ("w",))
    decoded = msgspec.json.decode(msgspec.json.encode(one), type=StepWrites)
    assert decoded == StepWrites([{"kind": "append", "key": "a", "items": [1], "extra": True}], ["w"])


def test_patches_that_tools_send_on_their_own_would_drift_and_the_sequencer_does_not() -> None:
    base = {"l": [], "n": 0}
    trackers = [StateTracker(base), StateTracker(base)]
    sequencer = StepSequencer(base)
    naive, shown = base, base
    script: list[tuple[int, Callable[[Any], object]]] = [
        (0, lambda d: d["l"].append({"of": 0})),
        (1, lambda d: d["l"].append({"of": 1})),
        (1, lambda d: d["l"][0].update(done=True)),  # its own item, at position 0 of its own view
        (0, lambda d: d.increment("n")),
        (1, lambda d: d.increment("n")),
    ]
    for tool, change in script:
        trackers[tool].update(change)
        naive = apply_patch(naive, trackers[tool].drain_patches())
        shown = apply_patch(shown, sequencer.accept(tool, trackers[tool].get_step_writes()))
    committed, warnings = merge_step_writes(base, [tracker.get_step_writes() for tracker in trackers])
    assert warnings == []
    assert shown == committed == {"l": [{"of": 0}, {"of": 1, "done": True}], "n": 2}
    assert naive != committed


def test_an_append_is_shown_as_an_append() -> None:
    sequencer = StepSequencer({"l": [1]})
    assert sequencer.accept(0, [{"kind": "append", "key": "l", "items": [2]}]) == [
        {"op": "add", "path": "/l/-", "value": 2}
    ]
    assert sequencer.withdraw(0) == [{"op": "remove", "path": "/l/1"}]
    assert sequencer.withdraw(5) == []
