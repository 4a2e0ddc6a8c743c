"""What each kind of change is recorded as."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import pytest

from helix_agents.errors import InvalidArgument
from helix_agents.state import StateTracker, StepWrites, apply_step_writes, step_writes_to_rfc6902

Change = Callable[[Any], object]


def ops_of(base: dict[str, Any], *changes: Change, **options: Any) -> list[dict[str, Any]]:
    tracker = StateTracker(base, **options)
    for change in changes:
        tracker.update(change)
    return list(tracker.get_step_writes().ops)


def patches_of(base: dict[str, Any], *changes: Change, **options: Any) -> list[dict[str, Any]]:
    tracker = StateTracker(base, **options)
    for change in changes:
        tracker.update(change)
    return tracker.get_rfc6902_patches()


def test_setting_a_member_is_a_replace() -> None:
    assert ops_of({"n": 0}, lambda d: d.update(n=5)) == [{"kind": "replace", "path": ["n"], "value": 5}]
    assert patches_of({"n": 0}, lambda d: d.update(n=5)) == [{"op": "replace", "path": "/n", "value": 5}]


def test_a_new_member_is_marked_new_and_becomes_add() -> None:
    assert ops_of({}, lambda d: d.update(n=5)) == [{"kind": "replace", "path": ["n"], "value": 5, "new": True}]
    assert patches_of({}, lambda d: d.update(n=5)) == [{"op": "add", "path": "/n", "value": 5}]


def test_a_nested_set_is_one_op_at_the_exact_path() -> None:
    base = {"user": {"profile": {"name": "Alice", "age": 3}}}
    ops = ops_of(base, lambda d: d["user"]["profile"].update(name="Bob"))
    assert ops == [{"kind": "replace", "path": ["user", "profile", "name"], "value": "Bob"}]


def test_a_set_inside_a_list_item_never_writes_the_list() -> None:
    base = {"large": [{"modified": False} for _ in range(100)]}
    patches = patches_of(base, lambda d: d["large"][50].update(modified=True))
    assert patches == [{"op": "replace", "path": "/large/50/modified", "value": True}]


def test_deleting_a_member() -> None:
    assert ops_of({"a": 1, "b": 2}, lambda d: d.pop("a")) == [{"kind": "delete", "path": ["a"]}]
    assert patches_of({"a": 1}, lambda d: d.clear()) == [{"op": "remove", "path": "/a"}]


def test_appends_of_several_updates_are_one_append_and_one_patch_an_item() -> None:
    changes = [lambda d: d["items"].append("a"), lambda d: d["items"].extend(["b", "c"])]
    assert ops_of({"items": []}, *changes) == [{"kind": "append", "path": ["items"], "items": ["a", "b", "c"]}]
    assert patches_of({"items": []}, *changes) == [
        {"op": "add", "path": "/items/-", "value": value} for value in ("a", "b", "c")
    ]


@pytest.mark.parametrize(
    ("change", "items"),
    [
        (lambda new: new.__setitem__(2, "A"), ["A", "b"]),
        (lambda new: new.pop(), ["a"]),
        (lambda new: new.pop(2), ["b"]),
        (lambda new: new.insert(2, "first"), ["first", "a", "b"]),
        (lambda new: new.__setitem__(slice(2, None), ["z"]), ["z"]),
    ],
)
def test_edits_among_the_items_of_this_step_fold_into_the_append(change: Change, items: list[Any]) -> None:
    ops = ops_of({"l": [1, 2]}, lambda d: d["l"].extend(["a", "b"]), lambda d: change(d["l"]))
    assert ops == [{"kind": "append", "path": ["l"], "items": items}]


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.insert(0, 0),
        lambda x: x.pop(1),
        lambda x: x.remove(3),
        lambda x: x.sort(),
        lambda x: x.reverse(),
        lambda x: x.__setitem__(slice(0, 2), []),
        lambda x: x.__delitem__(slice(None, None, 2)),
        lambda x: x.clear(),
    ],
)
def test_any_other_list_change_is_one_replace_of_that_list(change: Change) -> None:
    tracker = StateTracker({"deep": {"l": [3, 1, 2]}})
    tracker.update(lambda d: change(d["deep"]["l"]))
    expected = [{"kind": "replace", "path": ["deep", "l"], "value": tracker.state["deep"]["l"]}]
    assert tracker.get_step_writes().ops == expected


@pytest.mark.parametrize(
    "change", [lambda x: x[1]["in"].append(2), lambda x: x.append(3), lambda x: x[1].increment("n")]
)
def test_without_delta_mode_the_outermost_list_is_replaced(change: Change) -> None:
    tracker = StateTracker({"l": [0, {"in": [1], "n": 1}]}, array_delta_mode=False)
    tracker.update(lambda d: change(d["l"]))
    assert tracker.get_step_writes().ops == [{"kind": "replace", "path": ["l"], "value": tracker.state["l"]}]


def test_increment_carries_the_amount_and_the_value_seen() -> None:
    changes = [lambda d: d.increment("n"), lambda d: d.increment("n", 4)]
    assert ops_of({"n": 1}, *changes) == [{"kind": "increment", "path": ["n"], "by": 5, "value": 6}]
    assert patches_of({"n": 1}, *changes) == [{"op": "replace", "path": "/n", "value": 6}]


def test_increment_of_a_missing_key_counts_from_zero() -> None:
    tracker = StateTracker({})
    tracker.update(lambda d: d.increment("n", 2))
    assert tracker.state == {"n": 2}
    assert tracker.get_rfc6902_patches() == [{"op": "add", "path": "/n", "value": 2}]


def test_increment_works_on_list_positions() -> None:
    ops = ops_of({"l": [1, 2]}, lambda d: d["l"].increment(-1, 3))
    assert ops == [{"kind": "increment", "path": ["l", 1], "by": 3, "value": 5}]


def test_plus_equals_is_a_replace() -> None:
    def add(draft: Any) -> None:
        draft["n"] += 1

    assert ops_of({"n": 1}, add) == [{"kind": "replace", "path": ["n"], "value": 2}]


@pytest.mark.parametrize(("value", "by"), [("1", 1), (True, 1), (None, 1), (1, "1"), (1, True), (1, float("nan"))])
def test_only_numbers_can_be_incremented(value: Any, by: Any) -> None:
    tracker = StateTracker({"n": value})
    with pytest.raises(TypeError, match="/n: "):
        tracker.update(lambda d: d.increment("n", by))
    assert tracker.state == {"n": value}


def add_to_n(draft: Any, by: float) -> None:
    draft.increment("n", by)


def test_float_increments_add_up_to_the_value_seen() -> None:
    base = {"n": 0.1}
    tracker = StateTracker(base)
    for by in (0.2, 0.3, -0.6, 1e17, -1e17):
        tracker.update(partial(add_to_n, by=by))
        assert apply_step_writes(base, tracker.get_step_writes())[0] == tracker.state


def test_setdefault_of_an_empty_container_is_ensure() -> None:
    assert ops_of({}, lambda d: d.setdefault("log", []).append(1)) == [
        {"kind": "ensure", "path": ["log"], "value": []},
        {"kind": "append", "path": ["log"], "items": [1]},
    ]
    assert ops_of({}, lambda d: d.setdefault("by", {}).setdefault("x", {}).increment("n")) == [
        {"kind": "ensure", "path": ["by"], "value": {}},
        {"kind": "ensure", "path": ["by", "x"], "value": {}},
        {"kind": "increment", "path": ["by", "x", "n"], "by": 1, "value": 1, "new": True},
    ]


def test_setdefault_of_something_there_is_nothing() -> None:
    assert ops_of({"log": [1]}, lambda d: d.setdefault("log", [])) == []


@pytest.mark.parametrize(
    "changes",
    [
        [lambda d: d.update(n=2), lambda d: d.update(n=1)],
        [lambda d: d["l"].append(3), lambda d: d["l"].pop()],
        [lambda d: d.update(new=1), lambda d: d.pop("new")],
        [lambda d: d.update(o=d.pop("o"))],
        [lambda d: d.update(o={"x": {}})],
        [lambda d: d["l"].reverse(), lambda d: d["l"].reverse()],
        [lambda d: d["l"].insert(0, 9), lambda d: d["l"].pop(0)],
        [lambda d: d.increment("n", 3), lambda d: d.increment("n", -3)],
        [lambda d: d.setdefault("s", []), lambda d: d.pop("s")],
        [lambda d: d.pop("o"), lambda d: d.setdefault("o", {}).update(x={})],
    ],
)
def test_what_is_undone_leaves_no_ops(changes: list[Change]) -> None:
    assert ops_of({"n": 1, "l": [1, 2], "o": {"x": {}}}, *changes) == []


@pytest.mark.parametrize("value", [1.0, True, 1.5, "1"])
def test_values_that_python_calls_equal_are_still_different(value: Any) -> None:
    tracker = StateTracker({"n": 1, "o": {"k": 1}, "l": [1]})
    tracker.update(lambda d: d.update(n=value, o={"k": value}, l=[value]))
    assert json.dumps(tracker.state) == json.dumps({"n": value, "o": {"k": value}, "l": [value]})
    assert len(tracker.get_step_writes().ops) == 3


def test_negative_zero_is_a_value_of_its_own() -> None:
    tracker = StateTracker({"n": -0.0, "l": [-0.0]})
    tracker.update(lambda d: d.update(n=0.0, l=[0.0]))
    assert json.dumps(tracker.state) == '{"n": 0.0, "l": [0.0]}'


def test_no_change_answers_the_same_snapshot() -> None:
    tracker = StateTracker({"n": 1, "l": [{"a": 1}]})
    before = tracker.state
    assert tracker.update(lambda d: d["l"][0].update(a=1)) is before
    assert tracker.update(lambda d: d.update(l=[{"a": 1}])) is before
    assert tracker.update(lambda d: d["l"].sort(key=str)) is before


def test_the_answer_of_the_function_is_ignored_and_the_new_state_returned() -> None:
    tracker = StateTracker({"n": 1})
    assert tracker.update(lambda d: d.pop("n")) == {}
    assert tracker.state == {}


def test_draining_hides_nothing_from_the_step_writes() -> None:
    tracker = StateTracker({"items": [], "n": 0})
    tracker.update(lambda d: d["items"].append("a"))
    assert tracker.drain_patches() == [{"op": "add", "path": "/items/-", "value": "a"}]
    assert tracker.drain_patches() == []
    tracker.update(lambda d: d["items"].append("b"))
    assert tracker.drain_patches() == [{"op": "add", "path": "/items/-", "value": "b"}]
    assert tracker.get_step_writes().ops == [{"kind": "append", "path": ["items"], "items": ["a", "b"]}]


def test_resetting_forgets_the_record_and_keeps_the_state() -> None:
    tracker = StateTracker({"n": 0})
    tracker.update(lambda d: d.update(n=1))
    tracker.reset_tracking()
    assert (tracker.get_step_writes().ops, tracker.drain_patches()) == ([], [])
    tracker.update(lambda d: d.update(n=2))
    assert tracker.get_rfc6902_patches() == [{"op": "replace", "path": "/n", "value": 2}]


def test_step_writes_round_trip_as_json() -> None:
    tracker = StateTracker({"l": [], "o": {}})
    tracker.update(lambda d: (d["l"].append({"deep": [1, 1.0, None]}), d["o"].update(k={"v": True}), d.increment("n")))
    writes = tracker.get_step_writes()
    text = msgspec.json.encode(writes)
    assert msgspec.json.decode(text, type=StepWrites) == writes
    assert step_writes_to_rfc6902(msgspec.json.decode(text, type=StepWrites)) == tracker.get_rfc6902_patches()


def test_a_state_that_is_no_object_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="not list"):
        StateTracker([1])  # type: ignore[arg-type]


def test_an_async_function_is_refused() -> None:
    async def change(draft: Any) -> None:
        draft["n"] = 1

    tracker = StateTracker({})
    with pytest.raises(InvalidArgument, match="plain function"):
        tracker.update(change)
    assert tracker.state == {}


def test_an_update_inside_an_update_is_refused_and_the_tracker_stays_usable() -> None:
    tracker = StateTracker({})
    with pytest.raises(InvalidArgument, match="inside"):
        tracker.update(lambda d: tracker.update(lambda inner: inner.update(n=1)))
    assert tracker.update(lambda d: d.update(n=2)) == {"n": 2}


def test_integers_beyond_float_do_not_break_counters() -> None:
    base = {"n": 10**400}
    tracker = StateTracker(base)
    tracker.update(lambda d: d.increment("n", -(10**400)))
    tracker.update(lambda d: d.increment("n", 0.5))
    assert tracker.state == {"n": 0.5}
    assert apply_step_writes(base, tracker.get_step_writes()) == ({"n": 0.5}, [])


def test_a_container_deleted_and_made_again_is_a_new_one() -> None:
    base = {"o": {"old": 1}}
    tracker = StateTracker(base)
    tracker.update(lambda d: (d.pop("o"), d.setdefault("o", {}).update(new=1)))
    assert tracker.state == {"o": {"new": 1}}
    assert tracker.get_step_writes().ops == [{"kind": "replace", "path": ["o"], "value": {"new": 1}}]


def test_draining_between_updates_does_not_mix_the_two_records() -> None:
    tracker = StateTracker({"o": {}})
    tracker.update(lambda d: d.update(n=1))
    tracker.drain_patches()
    tracker.update(lambda d: d["o"].update(a=1))
    tracker.update(lambda d: d["o"].update(b=1))
    tracker.drain_patches()
    tracker.update(lambda d: d["o"].pop("a"))
    assert tracker.drain_patches() == [{"op": "remove", "path": "/o/a"}]
    assert [op["path"] for op in tracker.get_step_writes().ops] == [["n"], ["o", "b"]]
