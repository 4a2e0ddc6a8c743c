"""Marks: *where* a draft was changed, not to which value.

The marks of a dict are `{key: mark}`, those of a list a `ListMarks`. A mark is `SET`, `DELETED`, `Added` (a counter),
`Ensured` (a container made by `setdefault`) or the marks of the container below. Marks of successive updates are
composed into one tree relative to the initial state; `derive` reads the values from the two snapshots. So coalescing
needs no rules of its own: a value that was set and set back is a mark whose two values are equal.
"""

from __future__ import annotations

from typing import Any, Final

from .frozen import EMPTY_DICT, EMPTY_LIST, FrozenDict, FrozenList


class _Symbol:
    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


SET: Final = _Symbol("SET")
DELETED: Final = _Symbol("DELETED")
MISSING: Final = _Symbol("MISSING")


class Added:
    """A number that only `increment` changed, by `by` in total."""

    __slots__ = ("by",)

    def __init__(self, by: int | float) -> None:
        self.by = by


def added(before: Any, by: int | float) -> Any:
    """Return the mark after an increment; `before` is the previous mark, or None."""
    if before is None:
        return Added(by)
    if before.__class__ is not Added:
        return SET
    try:
        return Added(before.by + by)
    except OverflowError:  # an integer beyond float met a float
        return SET


class Ensured:
    """A key that `setdefault` created with an empty container; `below` holds the marks inside it."""

    __slots__ = ("below", "default")

    def __init__(self, default: Any = None) -> None:
        self.below: DictMarks | ListMarks | None = None
        self.default = default  # the caller's own object, only until the update ends


class ListMarks:
    """The first `low` items are those of the base except for `items`; later items may have changed in any way.

    `low == len(base)` means that items were only appended.
    """

    __slots__ = ("items", "low")

    def __init__(self, low: int, items: dict[int, Any]) -> None:
        self.low = low
        self.items = items


DictMarks = dict[str, Any]


def compose(earlier: DictMarks, later: DictMarks, base: FrozenDict) -> None:
    """Add the marks of a later update to `earlier`, which is relative to `base`."""
    for key, mark in later.items():
        before = earlier.get(key)
        if before is None:
            earlier[key] = mark
        elif mark is DELETED:
            if key in base:
                earlier[key] = DELETED
            else:
                del earlier[key]
        elif mark is SET or mark.__class__ is Ensured:  # ensured after it was deleted
            earlier[key] = SET
        elif mark.__class__ is Added:
            earlier[key] = added(before, mark.by)
        elif before is not SET:  # what was set is read from the snapshot as a whole
            _compose_below(before, mark, base.get(key))


def _compose_below(before: Any, mark: Any, base: Any) -> None:
    if before.__class__ is Ensured:
        if before.below is None:
            before.below = mark
            return
        before = before.below
        base = EMPTY_DICT if before.__class__ is dict else EMPTY_LIST
    if mark.__class__ is dict:
        compose(before, mark, base)
    else:
        _compose_list(before, mark, base)


def _compose_list(earlier: ListMarks, later: ListMarks, base: FrozenList) -> None:
    items = earlier.items
    low = later.low
    if low < earlier.low:
        earlier.low = low
        for index in [index for index in items if index >= low]:
            del items[index]
    low = earlier.low
    for index, mark in later.items.items():
        if index >= low:
            continue
        before = items.get(index)
        if before is None or mark is SET:
            items[index] = mark
        elif mark.__class__ is Added:
            items[index] = added(before, mark.by)
        elif before is not SET:
            _compose_below(before, mark, base[index])


def cloned(mark: Any) -> Any:
    """Return a copy for a second tree of marks, because composing changes a tree in place."""
    if mark.__class__ is dict:
        return {key: cloned(below) for key, below in mark.items()}
    if mark.__class__ is ListMarks:
        return ListMarks(mark.low, {index: cloned(below) for index, below in mark.items.items()})
    if mark.__class__ is Ensured:
        copy = Ensured()
        copy.below = cloned(mark.below)
        return copy
    return mark
