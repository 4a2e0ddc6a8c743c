"""Cells: custom state to cells and back, and what a merge changes."""

from __future__ import annotations

from typing import Any

import pytest

from helix_agents.state import StepWrites
from helix_agents.stores.state.cells import combine, plan_merge, prepare, rebuild, replacement
from helix_agents.stores.state.commit import LIST, OBJECT, CellName

A = CellName("a")


def test_a_replacement_has_a_cell_for_each_item_and_member() -> None:
    changes = replacement({"n": 1, "l": [1, "x"], "o": {"k": None}})
    assert changes.replace_all
    assert changes.set_keys["n"].text == "1"
    assert changes.set_keys["l"].items == ("1", '"x"')
    assert changes.set_keys["o"].members == (("k", "null"),)


def test_custom_state_is_rebuilt_from_its_cells() -> None:
    keys = [('"n"', "1", ()), ('"l"', LIST, ["1", '"x"']), ('"o"', OBJECT, ['"k":null']), ('"e"', LIST, [])]
    assert rebuild(keys) == {"n": 1, "l": [1, "x"], "o": {"k": None}, "e": []}


@pytest.mark.parametrize(
    ("op", "touched"),
    [
        ({"kind": "replace", "path": ["a"], "value": {"x": 1}}, set()),
        ({"kind": "increment", "path": ["a"], "by": 1}, {A}),
        ({"kind": "append", "path": ["a"], "items": [1]}, {A}),
        ({"kind": "delete", "path": ["a"]}, {A}),
        ({"kind": "replace", "path": ["a", "b", "c"], "value": 1}, {A, CellName("a", "b")}),
        ({"kind": "replace", "path": ["a", 0], "value": 1}, {A, CellName("a", 0)}),
    ],
)
def test_a_write_must_know_the_cells_it_depends_on(op: dict[str, Any], touched: set[CellName]) -> None:
    assert prepare(StepWrites([op])).touched == touched


def test_parallel_increments_and_appends_add_up() -> None:
    tools = [
        StepWrites([{"kind": "increment", "path": ["n"], "by": by}, {"kind": "append", "path": ["l"], "items": [by]}])
        for by in (1, 2)
    ]
    changes, warnings = plan_merge(
        combine([prepare(each) for each in tools]), {CellName("n"): "5", CellName("l"): LIST}
    )
    assert warnings == []
    assert changes.set_keys["n"].text == "8"
    assert changes.append == {"l": ("1", "2")}


def test_in_order_an_item_that_does_not_exist_is_dropped_with_a_warning() -> None:
    writes = prepare(StepWrites([{"kind": "replace", "path": ["l", 5, "x"], "value": 1}]))
    known = {CellName("l"): LIST, CellName("l", 5): None}
    changes, (warning,) = plan_merge(writes, known, in_order=True)
    assert (changes.set_cells, warning) == ({}, "Dropped replace /l/5/x: there is no item 5.")
