"""Turn marks and two snapshots into ops: the result of `get_step_writes`.

The marks say where something changed, the final snapshot holds the values, so ops and state cannot drift apart. The op
list is in normal form: no two ops at one path (but `ensure` with the `append` that fills it) and none below a path that
another op of the list overwrites.
"""

from __future__ import annotations

from typing import Any

from .frozen import EMPTY_DICT, FrozenDict, FrozenList, same_atom, same_value
from .marks import DELETED, MISSING, SET, Added, DictMarks, ListMarks
from .writes import Op

Path = list[Any]


def derive(base: FrozenDict, state: FrozenDict, marks: DictMarks, *, array_delta_mode: bool) -> list[Op]:
    """Return the ops that turn `base` into `state`, given where they may differ."""
    ops: list[Op] = []
    _members(base, state, marks, [], ops, array_delta_mode)
    return ops


def _members(base: FrozenDict, state: FrozenDict, marks: DictMarks, path: Path, ops: list[Op], deltas: bool) -> None:
    for key, mark in marks.items():
        at = [*path, key]
        if mark is SET:
            _replace(base.get(key, MISSING), state[key], at, ops)
        elif mark is DELETED:
            if key in base:
                ops.append({"kind": "delete", "path": at})
        elif mark.__class__ is dict:
            _members(base[key], state[key], mark, at, ops, deltas)
        elif mark.__class__ is ListMarks:
            _items(base[key], state[key], mark, at, ops, deltas)
        elif mark.__class__ is Added:
            _increment(base.get(key, MISSING), state[key], mark.by, at, ops)
        else:
            _ensure(state[key], mark.below, at, ops, deltas)


def _replace(old: Any, value: Any, path: Path, ops: list[Op]) -> None:
    if old is MISSING:
        ops.append({"kind": "replace", "path": path, "value": value, "new": True})
    elif not same_value(old, value):
        ops.append({"kind": "replace", "path": path, "value": value})


def _increment(old: Any, value: Any, by: Any, path: Path, ops: list[Op]) -> None:
    """Choose `by` so that `old + by` is exactly the final value. Floats may need another `by`, or a replace."""
    new = old is MISSING
    start = 0 if new else old
    if not new and same_atom(old, value):
        return
    try:
        if not same_atom(start + by, value):
            by = value - start
        exact = same_atom(start + by, value)
    except OverflowError:  # an integer beyond float met a float
        exact = False
    if not exact:
        _replace(old, value, path, ops)
        return
    op = {"kind": "increment", "path": path, "by": by, "value": value}
    if new:
        op["new"] = True
    ops.append(op)


def _ensure(value: Any, below: DictMarks | ListMarks | None, path: Path, ops: list[Op], deltas: bool) -> None:
    if value.__class__ is FrozenDict:
        ops.append({"kind": "ensure", "path": path, "value": {}})
        if isinstance(below, dict):
            _members(EMPTY_DICT, value, below, path, ops, deltas)
    elif value and not deltas:
        _replace(MISSING, value, path, ops)
    else:
        ops.append({"kind": "ensure", "path": path, "value": []})
        if value:
            ops.append({"kind": "append", "path": path, "items": value[:]})


def _items(base: FrozenList, state: FrozenList, marks: ListMarks, path: Path, ops: list[Op], deltas: bool) -> None:
    if state is base:
        return
    size, low = len(base), marks.low
    moved = low < size and (len(state) < size or not all(map(same_value, base[low:], state[low:size])))
    if moved or not deltas:
        _replace(base, state, path, ops)
        return
    for index in sorted(marks.items):
        _item(base[index], state[index], marks.items[index], [*path, index], ops)
    if len(state) > size:
        ops.append({"kind": "append", "path": path, "items": state[size:]})


def _item(old: Any, value: Any, mark: Any, path: Path, ops: list[Op]) -> None:
    if mark is SET:
        _replace(old, value, path, ops)
    elif mark.__class__ is Added:
        _increment(old, value, mark.by, path, ops)
    elif mark.__class__ is dict:
        _members(old, value, mark, path, ops, True)
    else:
        _items(old, value, mark, path, ops, True)
