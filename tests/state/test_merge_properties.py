"""Random parallel tools: the merge is a function of base and tool order, and the wire ends where the merge does."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import jsonpatch
from hypothesis import given
from hypothesis import strategies as st

from helix_agents.state import StateTracker, StepSequencer, StepWrites, apply_patch, freeze, merge_step_writes, thaw

from .programs import atoms, modest, pools, programs, run_on_tracker, states, text, tracked, updates, values

tools = st.lists(updates, min_size=1, max_size=3)


@modest
@given(states, updates, pools)
def test_one_tool_alone_gets_exactly_its_state(base: Any, programs_: Any, pool: Any) -> None:
    tracker = tracked(base, programs_, pool)
    merged, warnings = merge_step_writes(freeze(base), [tracker.get_step_writes()])
    assert (text(merged), warnings) == (text(tracker.state), [])


@modest
@given(states, tools, pools)
def test_merging_is_pure_and_tools_without_writes_do_not_matter(base: Any, programs_: Any, pool: Any) -> None:
    start = freeze(base)
    writes = [tracked(start, one, pool).get_step_writes() for one in programs_]
    before = text([one.ops for one in writes])
    merged, warnings = merge_step_writes(start, writes)
    again, warnings_again = merge_step_writes(start, [*writes, StepWrites([])])
    assert (text(merged), warnings) == (text(again), warnings_again)
    assert text(start) == text(base)
    assert text([one.ops for one in writes]) == before
    plain, plain_warnings = merge_step_writes(thaw(start), writes)
    assert (text(plain), plain_warnings) == (text(merged), warnings)


@modest
@given(states, tools, pools)
def test_tools_that_touch_different_keys_commute_without_warnings(base: Any, programs_: Any, pool: Any) -> None:
    start = freeze(base)
    writes = [tracked(start, one, pool).get_step_writes() for one in programs_]
    keys = [{op["path"][0] for op in one.ops} for one in writes]
    own = [
        StepWrites([op for op in one.ops if not any(op["path"][0] in other for other in keys if other is not mine)])
        for one, mine in zip(writes, keys, strict=True)
    ]
    forth, warnings = merge_step_writes(start, own)
    back, warnings_back = merge_step_writes(start, own[::-1])
    assert text(forth) == text(back)
    assert (warnings, warnings_back) == ([], [])


@modest
@given(states, tools, pools)
def test_a_sparse_base_gives_the_same_values_for_the_touched_keys(base: Any, programs_: Any, pool: Any) -> None:
    start = freeze(base)
    writes = [tracked(start, one, pool).get_step_writes() for one in programs_]
    touched = {op["path"][0] for one in writes for op in one.ops}
    whole, warnings = merge_step_writes(start, writes)
    sparse, sparse_warnings = merge_step_writes({k: v for k, v in start.items() if k in touched}, writes)
    assert text(sparse) == text({key: value for key, value in whole.items() if key in touched})
    assert sparse_warnings == warnings
    assert all(whole[key] is start[key] for key in start if key not in touched)


@modest
@given(
    st.lists(st.lists(atoms, max_size=4), min_size=1, max_size=4),
    st.lists(atoms, max_size=3),
    st.lists(st.integers(-9, 9), min_size=4, max_size=4),
    st.integers(-1, 3),
)
def test_appends_survive_and_increments_add_up(items: Any, there: Any, by: Any, replacer: int) -> None:
    base = {"list": there, "n": 10, "deep": {"in": {"list": []}}}

    def work(draft: Any, number: int) -> None:
        draft["list"].extend(items[number])
        draft["deep"]["in"]["list"].extend([number, item] for item in items[number])
        draft.increment("n", by[number])
        draft.increment("missing", by[number])
        draft["deep"][f"tool {number}"] = number
        draft.setdefault("by tool", {})[f"t{number}"] = number
        draft.setdefault("log", []).append(number)

    writes = []
    for number in range(len(items)):
        tracker = StateTracker(base)
        tracker.update(partial(work, number=number))
        writes.append(tracker.get_step_writes())
    if replacer >= 0:  # some other tool replaces the list, somewhere in the order
        writes.insert(replacer, StepWrites([{"kind": "replace", "key": "list", "value": ["new"]}]))

    merged, warnings = merge_step_writes(base, writes)
    assert warnings == []
    first = ["new"] if replacer >= 0 else there
    assert text(merged["list"]) == text(first + [item for one in items for item in one])
    assert text(merged["deep"]["in"]["list"]) == text([[n, item] for n, one in enumerate(items) for item in one])
    assert merged["n"] == 10 + sum(by[: len(items)])
    assert merged["missing"] == sum(by[: len(items)])
    assert merged["by tool"] == {f"t{n}": n for n in range(len(items))}
    assert merged["log"] == list(range(len(items)))
    assert all(merged["deep"][f"tool {n}"] == n for n in range(len(items)))


def value_at(state: Any, path: list[Any]) -> tuple[bool, Any]:
    for token in path:
        if isinstance(state, dict):
            if not isinstance(token, str) or token not in state:
                return False, None
        elif not isinstance(state, list) or not isinstance(token, int) or token >= len(state):
            return False, None
        state = state[token]
    return True, state


@modest
@given(states, tools, pools)
def test_every_lost_write_has_a_warning(base: Any, programs_: Any, pool: Any) -> None:
    """Without a warning, every replace and delete of every tool is to be seen in the result."""
    start = freeze(base)
    writes = [tracked(start, one, pool).get_step_writes() for one in programs_]
    merged, warnings = merge_step_writes(start, writes)
    if warnings:
        return
    ops = [(tool, op) for tool, one in enumerate(writes) for op in one.ops]
    for tool, op in ops:
        path = op["path"]
        later_below = [other for at, other in ops if at != tool and other["path"][: len(path)] == path]
        if op["kind"] == "delete" and not later_below:
            assert value_at(merged, path) == (False, None)
        if op["kind"] == "replace" and not later_below:
            there, value = value_at(merged, path)
            assert (there, text(value)) == (True, text(op["value"]))
        if op["kind"] == "append":
            _, value = value_at(merged, path)
            assert all(text(item) in map(text, value) or isinstance(item, dict | list) for item in op["items"])


wild_values = values | st.sampled_from([float("nan"), object(), (1, 2), {1: 2}, {"a": b"bytes"}, {1, 2}])
wild_tokens = st.sampled_from(["a", "b", "", "x/y"]) | st.integers(-2, 4) | st.sampled_from([True, None, 1.5, ("a",)])
wild_ops = (
    st.fixed_dictionaries(
        {"kind": st.sampled_from(["replace", "delete", "append", "increment", "ensure", "explode", None, 7, ["x"]])},
        optional={
            "path": st.lists(wild_tokens, max_size=3) | st.none() | st.text(max_size=2),
            "key": st.sampled_from(["a", "b", 3, None]),
            "value": wild_values,
            "items": st.lists(wild_values, max_size=3) | wild_values,
            "by": wild_values,
            "new": wild_values,
        },
    )
    | wild_values
)


@modest
@given(states, st.lists(st.builds(StepWrites, st.lists(wild_ops, max_size=4)) | wild_values, max_size=3))
def test_merging_never_raises_and_the_result_is_json(base: Any, writes: Any) -> None:
    merged, warnings = merge_step_writes(base, writes)
    json.dumps(merged, allow_nan=False)
    assert all(isinstance(warning, str) for warning in warnings)
    frozen, _ = merge_step_writes(freeze(base), writes)
    assert text(frozen) == text(merged)


schedules = st.lists(st.tuples(st.integers(0, 2), programs), max_size=6)


@modest
@given(states, schedules, pools, st.integers(0, 2))
def test_the_wire_ends_at_the_merge_for_any_interleaving(base: Any, schedule: Any, pool: Any, failing: int) -> None:
    start = freeze(base)
    trackers = [StateTracker(start) for _ in range(3)]
    sequencer = StepSequencer(start)
    client, strict_client = thaw(start), thaw(start)
    for tool, program in schedule:
        run_on_tracker(trackers[tool], program, pool)
        patches = json.loads(json.dumps(sequencer.accept(tool, trackers[tool].get_step_writes())))
        client, strict_client = apply_patch(client, patches), jsonpatch.apply_patch(strict_client, patches)
    writes = [tracker.get_step_writes() for tracker in trackers]
    committed, warnings = merge_step_writes(start, writes)
    assert text(client) == text(strict_client) == text(sequencer.state) == text(committed)
    assert sequencer.warnings == warnings

    # A tool that fails halfway is undone.
    client = apply_patch(client, sequencer.withdraw(failing))
    survivors = [one for tool, one in enumerate(writes) if tool != failing]
    assert text(client) == text(merge_step_writes(start, survivors)[0])


@modest
@given(states, schedules, pools, st.integers(0, 2))
def test_updates_shown_one_by_one_end_at_the_merge(base: Any, schedule: Any, pool: Any, failing: int) -> None:
    start = freeze(base)
    trackers = [StateTracker(start) for _ in range(3)]
    sequencer = StepSequencer(start)
    client, strict_client = thaw(start), thaw(start)

    def show(patches: Any) -> None:
        nonlocal client, strict_client
        patches = json.loads(json.dumps(patches))
        client, strict_client = apply_patch(client, patches), jsonpatch.apply_patch(strict_client, patches)
        present, _ = merge_step_writes(start, [tracker.get_step_writes() for tracker in trackers])
        assert text(client) == text(strict_client) == text(sequencer.state) == text(present)

    for tool, program in schedule:
        tracker = trackers[tool]
        run_on_tracker(tracker, program, pool)
        show(sequencer.grow(tool, tracker.drain_ops(), tracker.state, tracker.get_step_writes))
    trackers[failing] = StateTracker(start)
    show(sequencer.withdraw(failing))
    for tool, tracker in enumerate(trackers):
        show(sequencer.finish(tool, tracker.get_step_writes()))
    assert sequencer.warnings == merge_step_writes(start, [one.get_step_writes() for one in trackers])[1]
