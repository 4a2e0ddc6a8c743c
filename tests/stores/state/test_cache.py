"""What a store caches of its own writes: never outdated values, and never more than its limit."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from helix_agents.codec import encode
from helix_agents.state import StepWrites
from helix_agents.stores.state import cache as held
from helix_agents.stores.state.cache import CellCache, StagingCache, staged_call
from helix_agents.stores.state.cells import plan_merge, prepare, replacement
from helix_agents.stores.state.commit import CellName, StagedRow

from .cell_table import Table

KEYS = ("a", "b")
SLOTS = (None, 0, 1, "x", "y")
NAMES = [CellName(key, slot) for key in KEYS for slot in SLOTS]

key = st.sampled_from(KEYS)
value = st.sampled_from([0, "text", [], [1, 2], {}, {"x": 1, "y": [2]}])
path = st.builds(lambda key, below: [key, *below], key, st.sampled_from([[], [], [0], [1], ["x"], ["y"]]))
op = st.one_of(
    st.builds(lambda path, value: {"kind": "replace", "path": path, "value": value}, path, value),
    st.builds(lambda path: {"kind": "delete", "path": path}, path),
    st.builds(lambda path: {"kind": "append", "path": path, "items": [1]}, path),
    st.builds(lambda path: {"kind": "increment", "path": path, "by": 1}, path),
)
steps = st.lists(st.one_of(st.lists(op, min_size=1, max_size=3), st.dictionaries(key, value)), min_size=1, max_size=8)


@given(steps)
def test_what_is_remembered_is_what_is_stored(steps: list[Any]) -> None:
    table, remembered = Table(), CellCache()
    stored = table.cells
    for step in steps:
        if isinstance(step, dict):
            changes = replacement(step)
        else:
            ready = prepare(StepWrites(step))
            known = {name: stored.text(name) for name in ready.touched}
            remembered.put("session", known)
            changes, _ = plan_merge(ready, known)
        table.commit(changes)
        remembered.learn("session", changes)
        for name, text in remembered.get("session", NAMES).items():
            assert text == stored.text(name), name


def test_a_text_that_is_too_long_is_not_remembered_nor_is_what_it_replaced() -> None:
    cells = CellCache()
    cells.put("session", {CellName("a"): "1"})
    cells.put("session", {CellName("a"): '"' + "x" * held.MAX_CELL_TEXT + '"'})
    assert cells.get("session", [CellName("a")]) == {}


def test_the_session_not_used_for_longest_is_forgotten_first() -> None:
    cells = CellCache()
    text = '"' + "x" * (held.MAX_CELL_TEXT - 2) + '"'
    room = held.MAX_TEXT_TOTAL // len(text)
    for number in range(room):
        cells.put(f"session-{number}", {CellName("a"): text})
        cells.get("session-0", [CellName("a")])
    cells.put("new", {CellName("a"): text})
    assert cells.get("session-0", [CellName("a")])
    assert not cells.get("session-1", [CellName("a")])
    for _ in range(2 * room):  # the same value again takes no more space
        cells.put("new", {CellName("a"): text})
    assert cells.get("session-0", [CellName("a")])


def row(call: str, position: int, token: str = "token") -> StagedRow:
    writes = encode([[{"kind": "append", "path": ["a"], "items": [call]}], []])
    return StagedRow("call", call, position, writes, "null", token, 0)


def test_staged_calls_come_in_the_order_of_the_model_and_go_with_their_step() -> None:
    staging = StagingCache()
    for each in (row("late", 1), row("early", 0, "old"), row("early", 0)):
        staging.put("session", "step", staged_call(each))
    ready = staging.get("session", "step")
    assert ready.guard.rows == (("call", "early", "token"), ("call", "late", "token"))
    assert [writes.ops[0]["items"] for writes in ready.prepared.writes] == [["early"], ["late"]]
    staging.forget("session")
    assert staging.get("session", "step").guard.rows == ()


def test_a_call_that_is_staged_again_counts_once() -> None:
    staging = StagingCache()
    for token in ("old", "new"):
        staging.put("session", "step", staged_call(row("only", 0, token)))
    assert staging.get("session", "step").guard.rows == (("call", "only", "new"),)
    staging.forget("session", "step")
    assert staging.get("session", "step").guard.rows == ()
