"""The merge of parallel tools, written a second time as plainly as possible, on deep copies.

Three phases over all op lists in the order given: ensure/replace/delete, then increments, then appends. The result
says whether a write was certainly lost (there must be a warning) or certainly not (there must be none); None if
the contract allows both, e.g. two tools that set one path to the same value.
"""

from __future__ import annotations

import copy
from typing import Any

Path = tuple[Any, ...]
_ABSENT: Any = object()


class _Lost(Exception):  # an outcome of one op
    """The op has no target."""


def naive_merge(base: dict[str, Any], lists: list[list[dict[str, Any]]]) -> tuple[dict[str, Any], bool | None]:
    """Return the merged state, and whether writes were lost (None: either is allowed)."""
    document: dict[str, Any] = copy.deepcopy(base)
    overwritten = [
        (tool, _path(op)) for tool, ops in enumerate(lists) for op in ops if op["kind"] in ("replace", "delete")
    ]
    lost = False
    unsure = False
    for phase in (("ensure", "replace", "delete"), ("increment",), ("append",)):
        for tool, ops in enumerate(lists):
            for op in ops:
                if op["kind"] not in phase:
                    continue
                path = _path(op)
                others = [seen for other, seen in overwritten if other != tool]
                if any(_position_lost_meaning(seen, path) for seen in others):
                    lost = True
                    continue
                if "replace" in phase:
                    unsure = unsure or any(_touch(seen, path) for seen in others)
                lost = not _applied(document, path, op) or lost
    return document, True if lost else (None if unsure else False)


def naive_apply(base: dict[str, Any], ops: list[dict[str, Any]]) -> tuple[dict[str, Any], bool]:
    """Return the state after one list of ops, in order, and whether one of them had no target.

    An index refers to the base: an item that an earlier op of the list appended has none.
    """
    document: dict[str, Any] = copy.deepcopy(base)
    lengths = {key: len(value) for key, value in base.items() if isinstance(value, list)}
    lost = False
    for op in ops:
        path = _path(op)
        if len(path) == 1 and op["kind"] in ("replace", "delete"):
            lengths.pop(path[0], None)
        past_the_end = len(path) > 1 and isinstance(path[1], int) and path[1] >= lengths.get(path[0], path[1] + 1)
        if past_the_end or not _applied(document, path, op):
            lost = True
    return document, lost


def _path(op: dict[str, Any]) -> Path:
    return tuple(op["path"]) if "path" in op else (op["key"],)


def _touch(one: Path, other: Path) -> bool:
    """Return whether the paths are equal or one is a prefix of the other."""
    shorter = min(len(one), len(other))
    return one[:shorter] == other[:shorter]


def _position_lost_meaning(overwritten: Path, path: Path) -> bool:
    """Return whether the path has a list index somewhere inside what was overwritten."""
    depth = len(overwritten)
    return depth < len(path) and path[:depth] == overwritten and any(isinstance(it, int) for it in path[depth:])


def _applied(document: dict[str, Any], path: Path, op: dict[str, Any]) -> bool:
    try:
        _apply(document, path, copy.deepcopy(op))
    except _Lost:
        return False
    return True


def _apply(document: dict[str, Any], path: Path, op: dict[str, Any]) -> None:
    parent: Any = document
    for step in path[:-1]:
        parent = _child(parent, step)
        if parent is _ABSENT:
            raise _Lost
    last = path[-1]
    old = _child(parent, last)
    match op["kind"]:
        case "replace":
            _put(parent, last, op["value"])
        case "delete":
            if not isinstance(parent, dict):
                raise _Lost
            parent.pop(last, None)
        case "ensure":
            if old is _ABSENT:
                _put(parent, last, op["value"])
            elif type(old) is not type(op["value"]):
                raise _Lost
        case "increment":
            if old is _ABSENT:
                old = 0
            if isinstance(old, bool) or not isinstance(old, int | float):
                raise _Lost
            _put(parent, last, old + op["by"])
        case "append":
            if old is _ABSENT:
                _put(parent, last, op["items"])
            elif isinstance(old, list):
                old.extend(op["items"])
            else:
                raise _Lost


def _child(parent: Any, step: Any) -> Any:
    if isinstance(parent, dict) and isinstance(step, str):
        return parent.get(step, _ABSENT)
    if isinstance(parent, list) and isinstance(step, int) and 0 <= step < len(parent):
        return parent[step]
    if isinstance(parent, dict | list) and isinstance(step, str) == isinstance(parent, dict):
        return _ABSENT
    raise _Lost


def _put(parent: Any, step: Any, value: Any) -> None:
    if isinstance(parent, list) and not 0 <= step < len(parent):
        raise _Lost
    parent[step] = value
