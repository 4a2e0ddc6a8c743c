"""Writes that commute: what increments and appends come to, known before the present state is.

They are what most tools write. Their order does not matter to each other, so where keys hold numbers and lists there is
nothing to merge and nothing to warn of, and the changes can be read off. Whatever else there is goes the way of
`stores/state/cells.py`, with the same result.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ...codec import encode
from ...state import StepWrites
from .commit import LIST, CellName, CellTexts, CustomChanges, KeyContent

# Counters below 2**53 are whole and exact everywhere; the merge knows about the others.
_MOST_DIGITS = 15
_MOST_REACH = 2**53 - 10**_MOST_DIGITS


class CommutingWrites(NamedTuple):
    """By how much to change which counters, and what to append to which lists."""

    counters: dict[CellName, int]
    lists: tuple[CellName, ...]
    append: dict[str, tuple[str, ...]]
    reach: int
    """No counter was ever further away from where it began."""


def sums_of(writes: StepWrites) -> CommutingWrites | None:
    """What the writes come to; None if there is anything else among them, or a warning."""
    if writes.warnings:
        return None
    counters: dict[CellName, int] = {}
    lists: dict[CellName, list[str]] = {}
    reach = 0
    for op in writes.ops:
        path, kind = op.get("path"), op.get("kind")
        if type(path) is not list or len(path) != 1 or type(path[0]) is not str:
            return None
        name = CellName(path[0])
        if kind == "append" and isinstance(items := op.get("items"), list):
            lists.setdefault(name, []).extend(map(encode, items))
        elif kind == "increment" and type(by := op.get("by")) is int:
            counters[name] = counters.get(name, 0) + by
            reach += abs(by)
        else:
            return None
    return CommutingWrites(
        counters, tuple(lists), {name.key: tuple(texts) for name, texts in lists.items() if texts}, reach
    )


def added_up(parts: Iterable[CommutingWrites | None]) -> CommutingWrites | None:
    """The sums of several tools in their order, if all have some."""
    counters: dict[CellName, int] = {}
    lists: dict[CellName, None] = {}
    append: dict[str, tuple[str, ...]] = {}
    reach = 0
    for part in parts:
        if part is None:
            return None
        for name, by in part.counters.items():
            counters[name] = counters.get(name, 0) + by
        for key, texts in part.append.items():
            append[key] = append.get(key, ()) + texts
        lists |= dict.fromkeys(part.lists)
        reach += part.reach
    return CommutingWrites(counters, tuple(lists), append, reach)


def changes_by(sums: CommutingWrites, known: CellTexts) -> CustomChanges | None:
    """The changes, if the keys hold numbers and lists, as they should."""
    if sums.reach > _MOST_REACH:
        return None
    for name in sums.lists:
        if known[name] != LIST:
            return None
    set_keys = {}
    for name, by in sums.counters.items():
        text = known[name]
        if text is None or len(text) > _MOST_DIGITS or not text.lstrip("-").isdigit():
            return None
        set_keys[name.key] = KeyContent(str(int(text) + by))
    return CustomChanges(expected=known, set_keys=set_keys, append=sums.append)
