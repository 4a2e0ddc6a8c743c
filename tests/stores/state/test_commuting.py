"""Writes that conflict with nothing skip the merge, and end where the merge would."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from helix_agents.state import StepWrites
from helix_agents.stores.state.cells import combine, merge_cells, plan_merge, prepare, replacement
from helix_agents.stores.state.commit import CellName, CustomChanges

from .cell_table import Table

KEYS = ("a", "b", "c")

whole = st.one_of(
    st.integers(-5, 5), st.sampled_from([10**15 - 1, 10**15, -(10**15), 2**53 - 1, 2**53, -(2**53), 2**62, 2**63 - 1])
)
values = st.one_of(whole, st.lists(st.integers(0, 9), max_size=3), st.just({"x": 1}), st.text(max_size=2), st.none())
increments = st.builds(
    lambda key, by: {"kind": "increment", "path": [key], "by": by},
    st.sampled_from(KEYS),
    st.one_of(whole, whole.map(lambda by: -by), st.sampled_from([1.5, 0, True])),
)
appends = st.builds(
    lambda key, items: {"kind": "append", "path": [key], "items": items},
    st.sampled_from(KEYS),
    st.lists(st.one_of(st.integers(0, 9), st.text(max_size=2)), max_size=3),
)
others = st.one_of(
    st.builds(lambda key, value: {"kind": "replace", "path": [key], "value": value}, st.sampled_from(KEYS), values),
    st.builds(lambda key: {"kind": "delete", "path": [key]}, st.sampled_from(KEYS)),
    st.builds(
        lambda key, slot, value: {"kind": "replace", "path": [key, slot], "value": value},
        st.sampled_from(KEYS),
        st.sampled_from(["x", "y", 0, 2, -1]),
        values,
    ),
    st.builds(lambda key: {"kind": "append", "path": [key, "x"], "items": [1]}, st.sampled_from(KEYS)),
    st.builds(lambda key: {"kind": "append", "key": key, "items": [1]}, st.sampled_from(KEYS)),
)
ops = st.one_of(increments, appends, others, others)
writes = st.builds(StepWrites, st.lists(ops, max_size=4), st.sampled_from([[], [], [], ["A warning."]]))
states = st.dictionaries(st.sampled_from(KEYS), values)


def table_of(state: dict[str, Any]) -> Table:
    table = Table()
    table.commit(replacement(state))
    return table


def outcome(state: dict[str, Any], planned: tuple[CustomChanges, list[str]]) -> tuple[dict[str, Any], list[str]]:
    """Return custom state after the changes, and the warnings."""
    changes, warnings = planned
    table = table_of(state)
    table.commit(changes)
    return table.state(), warnings


@given(states, st.lists(writes, max_size=3))
def test_sums_of_parallel_tools_end_where_the_merge_ends(state: dict[str, Any], tools: list[StepWrites]) -> None:
    ready = combine([prepare(each) for each in tools])
    known = {name: table_of(state).cells.text(name) for name in ready.touched}
    merged = merge_cells(ready.writes, known, in_order=False)
    assert outcome(state, plan_merge(ready, known)) == outcome(state, merged)


@given(states, writes)
def test_sums_of_one_list_end_where_its_ops_end_one_by_one(state: dict[str, Any], only: StepWrites) -> None:
    ready = prepare(only)
    known = {name: table_of(state).cells.text(name) for name in ready.touched}
    merged = merge_cells(ready.writes, known, in_order=True)
    assert outcome(state, plan_merge(ready, known, in_order=True)) == outcome(state, merged)


def test_what_is_assigned_by_one_tool_alone_needs_no_merge() -> None:
    tools: list[dict[str, Any]] = [
        {"kind": "replace", "path": ["a"], "value": [1]},
        {"kind": "replace", "path": ["b", "x"], "value": 2},
    ]
    ready = combine([prepare(StepWrites([op])) for op in tools])
    assert ready.commuting is not None
    assert CellName("a") not in ready.touched
    same_key = {"kind": "replace", "path": ["a"], "value": 3}
    assert combine([ready, prepare(StepWrites([same_key]))]).commuting is None  # one of them is lost: the merge warns


def test_what_most_tools_write_is_a_sum() -> None:
    increment = {"kind": "increment", "path": ["a"], "by": 2}
    append = {"kind": "append", "path": ["b"], "items": ["new"]}
    ready = combine([prepare(StepWrites([increment, append])), prepare(StepWrites([increment]))])
    assert ready.commuting is not None
    known = {name: table_of({"a": 3, "b": []}).cells.text(name) for name in ready.touched}
    changes, warnings = plan_merge(ready, known)
    assert outcome({"a": 3, "b": []}, (changes, warnings)) == ({"a": 7, "b": ["new"]}, [])
