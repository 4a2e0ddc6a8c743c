"""Compute the JSON Patch from one document to another. Shared objects cost nothing to compare."""

from __future__ import annotations

from itertools import compress, count
from operator import is_not
from typing import Any

from ..codec import escape_pointer
from .frozen import same_atom
from .writes import JsonPatch


def diff(a: Any, b: Any) -> JsonPatch:
    """Return a strictly valid patch that turns `a` into `b`; `1`, `1.0` and `True` are different values."""
    patch: JsonPatch = []
    _diff(a, b, "", patch)
    return patch


def _diff(a: Any, b: Any, pointer: str, patch: JsonPatch) -> None:
    if a is b or same_atom(a, b):
        return
    if isinstance(a, dict) and isinstance(b, dict):
        _diff_members(a, b, pointer, patch)
    elif isinstance(a, list) and isinstance(b, list):
        _diff_items(a, b, pointer, patch)
    else:
        patch.append({"op": "replace", "path": pointer, "value": b})


def _diff_members(a: dict[str, Any], b: dict[str, Any], pointer: str, patch: JsonPatch) -> None:
    for key in a:
        if key not in b:
            patch.append({"op": "remove", "path": f"{pointer}/{escape_pointer(key)}"})
    for key, value in b.items():
        if key not in a:
            patch.append({"op": "add", "path": f"{pointer}/{escape_pointer(key)}", "value": value})
        elif a[key] is not value:
            _diff(a[key], value, f"{pointer}/{escape_pointer(key)}", patch)


def _diff_items(a: list[Any], b: list[Any], pointer: str, patch: JsonPatch) -> None:
    """Skip equal items at both ends, compare the middle item by item, remove or add the rest."""
    start = _common_start(a, b)
    end = _common_end(a, b, start)
    old, new = len(a) - end, len(b) - end  # the middle is [start:old] and [start:new]
    both = min(old, new)
    edits: JsonPatch = []
    for at in range(start, both):
        _diff(a[at], b[at], f"{pointer}/{at}", edits)
    edits += [{"op": "remove", "path": f"{pointer}/{at}"} for at in range(old - 1, both - 1, -1)]
    for at in range(both, new):
        edits.append({"op": "add", "path": f"{pointer}/{at if end else '-'}", "value": b[at]})
    if len(edits) > max(len(b), 1):  # a list that was reordered or emptied: replacing it is shorter
        edits = [{"op": "replace", "path": pointer, "value": b}]
    patch += edits


def _common_start(a: list[Any], b: list[Any]) -> int:
    shorter = min(len(a), len(b))
    # Skip runs of identical objects, the common case for snapshots, in C.
    at = next(compress(count(), map(is_not, a, b)), shorter)
    while at < shorter and _same(a[at], b[at]):
        at += 1
    return at


def _common_end(a: list[Any], b: list[Any], start: int) -> int:
    most = min(len(a), len(b)) - start
    size = min(most, next(compress(count(), map(is_not, reversed(a), reversed(b))), most))
    while size < most and _same(a[-1 - size], b[-1 - size]):
        size += 1
    return size


def _same(a: Any, b: Any) -> bool:
    return a is b or same_atom(a, b)
