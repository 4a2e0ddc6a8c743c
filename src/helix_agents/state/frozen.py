"""Snapshots: JSON trees that cannot change, so that they can be shared.

A snapshot is still a `dict` or a `list` to `json`, `==` and `match`; every mutator raises. Inside a frozen
container there are only atoms and frozen containers: the code that makes one (`freeze`, a draft, an editor) keeps that
promise. Nothing here knows of drafts, writes or patches.
"""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Callable
from typing import Any, Final

ATOMS: Final = frozenset({str, int, bool, float, type(None)})

# Owners of a working copy write through the methods of the base class, past the ones that raise.
dict_set = dict.__setitem__
dict_del = dict.__delitem__
list_set = list.__setitem__
list_del = list.__delitem__


class FrozenDict(dict[str, Any]):
    """A read-only `dict`; `copy.copy` and `copy.deepcopy` give ordinary ones."""

    __slots__ = ()

    def __copy__(self) -> dict[str, Any]:
        return dict(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        return {key: value if value.__class__ in ATOMS else thaw(value) for key, value in self.items()}

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return FrozenDict, (dict(self),)


class FrozenList(list[Any]):
    """A read-only `list`; `copy.copy` and `copy.deepcopy` give ordinary ones."""

    __slots__ = ()

    def __copy__(self) -> list[Any]:
        return self[:]

    def __deepcopy__(self, memo: dict[int, Any]) -> list[Any]:
        return [value if value.__class__ in ATOMS else thaw(value) for value in self]

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return FrozenList, (self[:],)


def _refusal(name: str) -> Callable[..., Any]:
    def refuse(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"State snapshots are read-only ({name}): change state inside tracker.update().")

    refuse.__name__ = name
    return refuse


_DICT_MUTATORS = ("__setitem__", "__delitem__", "__ior__", "clear", "pop", "popitem", "setdefault", "update")
_LIST_MUTATORS = (
    *("__setitem__", "__delitem__", "__iadd__", "__imul__", "append", "clear"),
    *("extend", "insert", "pop", "remove", "reverse", "sort"),
)
for _name in _DICT_MUTATORS:
    setattr(FrozenDict, _name, _refusal(_name))
for _name in _LIST_MUTATORS:
    setattr(FrozenList, _name, _refusal(_name))

FROZEN: Final = frozenset({FrozenDict, FrozenList})
FINAL: Final = ATOMS | FROZEN
EMPTY_DICT: Final = FrozenDict()
EMPTY_LIST: Final = FrozenList()

_LONG = sys.maxsize if sys.platform == "emscripten" else 4096


def copied_list(source: list[Any]) -> FrozenList:
    """Return a working copy. Slicing first is a memcpy, which wins until the second allocation costs page faults."""
    return FrozenList(source[:]) if len(source) < _LONG else FrozenList(source)


def thaw(value: Any) -> Any:
    """Return an ordinary, mutable deep copy of a snapshot or a draft."""
    if value.__class__ in ATOMS:
        return value
    if isinstance(value, dict):
        return {key: item if item.__class__ in ATOMS else thaw(item) for key, item in value.items()}
    if isinstance(value, list):
        return [item if item.__class__ in ATOMS else thaw(item) for item in value]
    return copy.deepcopy(value)  # a draft knows how to copy itself


def type_name(value: Any) -> str:
    """Return the name of a value's type for messages: a snapshot is called a dict or a list."""
    return "dict" if isinstance(value, dict) else "list" if isinstance(value, list) else type(value).__name__


def same_atom(a: Any, b: Any) -> bool:
    """Return whether two values are the same JSON atom: `1`, `1.0` and `True` differ, and so do `0.0` and `-0.0`."""
    if a.__class__ is not b.__class__ or a.__class__ not in ATOMS or a != b:
        return False
    return a.__class__ is not float or a != 0.0 or math.copysign(1.0, a) == math.copysign(1.0, b)


def same_value(a: Any, b: Any) -> bool:
    """Return whether two snapshots are the same JSON value. Strict like `same_atom`, and cheap where they share
    structure."""
    if a is b:
        return True
    kind = a.__class__
    if kind is not b.__class__ or a != b:  # the comparison in C finds nearly every difference
        return False
    if kind is FrozenDict:
        return all(same_value(value, b[key]) for key, value in a.items())
    if kind is FrozenList:
        return all(map(same_value, a, b))
    return same_atom(a, b)
