"""Random programs: a draft ends with the same value as plain Python, and every view of it agrees."""

from __future__ import annotations

import json
from typing import Any

import jsonpatch
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix_agents.errors import NotSerializable
from helix_agents.state import StateTracker, StepWrites, apply_patch, apply_step_writes, diff, thaw

from .programs import (
    Machine,
    draft_increment,
    modest,
    pools,
    programs,
    run_on_plain,
    run_on_tracker,
    states,
    text,
    tracked,
    updates,
    values,
)


@modest
@given(states, updates, pools)
def test_a_draft_ends_as_plain_python_would(base: Any, programs_: Any, pool: Any) -> None:
    tracker = StateTracker(base)
    for program in programs_:
        expected = run_on_plain(tracker.state, program, pool)
        run_on_tracker(tracker, program, pool)
        assert text(tracker.state) == text(expected)


@modest
@given(states, updates, pools)
def test_older_snapshots_never_change(base: Any, programs_: Any, pool: Any) -> None:
    tracker = StateTracker(base)
    seen = [(tracker.state, text(tracker.state))]
    for program in programs_:
        run_on_tracker(tracker, program, pool)
        seen.append((tracker.state, text(tracker.state)))
    assert all(text(snapshot) == was for snapshot, was in seen)


@modest
@given(states, updates, pools, st.booleans(), st.integers(0, 3))
def test_ops_patches_and_state_agree(base: Any, programs_: Any, pool: Any, delta: bool, reset_after: int) -> None:
    tracker = StateTracker(base, array_delta_mode=delta)
    start = tracker.state
    for number, program in enumerate(programs_):
        run_on_tracker(tracker, program, pool)
        writes = tracker.get_step_writes()
        stored = msgspec.json.decode(json.dumps(msgspec.to_builtins(writes)), type=StepWrites)
        for form in (writes, stored):
            state, warnings = apply_step_writes(start, form)
            assert (text(state), warnings) == (text(tracker.state), [])
        assert text(apply_step_writes(thaw(start), stored)[0]) == text(tracker.state)
        patches = json.loads(json.dumps(tracker.get_rfc6902_patches()))
        assert text(apply_patch(start, patches)) == text(tracker.state)
        assert text(jsonpatch.apply_patch(thaw(start), patches)) == text(tracker.state)
        if number + 1 == reset_after:
            tracker.reset_tracking()
            start = tracker.state
            assert tracker.get_step_writes().ops == []


@modest
@given(states, updates, pools, st.lists(st.booleans(), min_size=4, max_size=4))
def test_drained_patches_keep_a_client_in_step_and_hide_nothing(
    base: Any, programs_: Any, pool: Any, drains: Any
) -> None:
    tracker, quiet = StateTracker(base), StateTracker(base)
    client = thaw(tracker.state)
    for program, drain in zip(programs_, drains, strict=False):
        run_on_tracker(tracker, program, pool)
        run_on_tracker(quiet, program, pool)
        if drain:
            client = jsonpatch.apply_patch(client, json.loads(json.dumps(tracker.drain_patches())))
            assert text(client) == text(tracker.state)
        assert text(tracker.get_step_writes().ops) == text(quiet.get_step_writes().ops)


@modest
@given(states, updates, pools)
def test_ops_are_in_normal_form(base: Any, programs_: Any, pool: Any) -> None:
    ops = tracked(base, programs_, pool).get_step_writes().ops
    kinds: dict[tuple, list[str]] = {}
    for op in ops:
        kinds.setdefault(tuple(op["path"]), []).append(op["kind"])
    assert all(len(at) == 1 or at == ["ensure", "append"] for at in kinds.values())
    overwritten = {path for path, at in kinds.items() if at[0] in ("replace", "delete", "increment")}
    assert not [path for path in kinds for depth in range(len(path)) if path[:depth] in overwritten]
    assert all(isinstance(op["path"][-1], str) for op in ops if op["kind"] in ("delete", "ensure"))


@modest
@given(states, updates, pools)
def test_without_delta_mode_lists_are_only_replaced_whole(base: Any, programs_: Any, pool: Any) -> None:
    tracker = StateTracker(base, array_delta_mode=False)
    for program in programs_:
        run_on_tracker(tracker, program, pool)
    for op in tracker.get_step_writes().ops:
        assert op["kind"] != "append"
        assert all(isinstance(token, str) for token in op["path"])


@modest
@given(states, programs, pools)
def test_no_op_writes_means_the_value_is_the_same(base: Any, program: Any, pool: Any) -> None:
    tracker = StateTracker(base)
    before = tracker.state
    run_on_tracker(tracker, program, pool)
    assert (tracker.get_step_writes().ops == []) == (text(tracker.state) == text(before))


@modest
@given(states, programs, pools)
def test_what_was_not_touched_is_the_same_object(base: Any, program: Any, pool: Any) -> None:
    tracker = StateTracker(base)
    before = tracker.state
    run_on_tracker(tracker, program, pool)
    touched = {op["path"][0] for op in tracker.get_step_writes().ops}
    for key, value in tracker.state.items():
        if key not in touched and isinstance(value, dict | list):
            assert value is before[key] or text(before[key]) in ("{}", "[]")


@modest
@given(states, programs, pools)
def test_a_failed_update_leaves_no_trace(base: Any, program: Any, pool: Any) -> None:
    tracker = StateTracker(base)
    tracker.update(lambda d: d.update(a=1))
    state, was, ops = tracker.state, text(tracker.state), text(tracker.get_step_writes().ops)

    def spoiled(draft: Any) -> None:
        Machine(draft, pool, draft_increment).run(program)
        draft["zz"] = {"k": [1, object()]}

    def broken(draft: Any) -> None:
        Machine(draft, pool, draft_increment).run(program)
        raise KeyError("boom")

    with pytest.raises(NotSerializable) as caught:
        tracker.update(spoiled)
    assert caught.value.path == "/zz/k/1"
    with pytest.raises(KeyError, match="boom"):
        tracker.update(broken)
    assert tracker.state is state
    assert (text(state), text(tracker.get_step_writes().ops)) == (was, ops)


@modest
@given(values, values)
def test_diff_is_a_patch_from_one_value_to_the_other(a: Any, b: Any) -> None:
    patch = json.loads(json.dumps(diff(a, b)))
    assert text(apply_patch(a, patch)) == text(b)
    assert diff(b, json.loads(json.dumps(b))) == []
    if isinstance(a, dict | list):
        assert text(jsonpatch.apply_patch(a, patch)) == text(b)
