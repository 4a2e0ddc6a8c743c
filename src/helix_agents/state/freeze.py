"""Prepare incoming values: check that they are JSON, detach them from the caller, freeze them.

Only JSON passes (`helix_agents.codec` has the same rules without the conversion); enums and other subclasses of `str`,
`int`, `float`, `dict` and `list` become the plain value. Drafts of the same update are also accepted and finished here.
"""

from __future__ import annotations

from math import isfinite
from typing import Any

from ..codec import MAX_DEPTH
from ..errors import DraftClosed, NotSerializable
from .draft import Draft, Path, Scope
from .frozen import ATOMS, FROZEN, FrozenDict, FrozenList, dict_set
from .pointer import to_pointer


def freeze(value: Any) -> Any:
    """Return a value as a snapshot. Raises `NotSerializable` with the pointer to the part that is not JSON."""
    return frozen_at(value, [], None)


def frozen_at(value: Any, path: Path, scope: Scope | None) -> Any:
    """Freeze a value at `path` of the state in the update `scope`."""
    return _Walk(scope).freeze(value, path)


def checked(value: Any, owner: Draft, key: str | int) -> Any:
    """Return what a draft may hold at `key` until its update ends. Atoms are checked here, so the traceback shows the
    assignment."""
    kind = value.__class__
    if kind in FROZEN:
        return value
    scope = owner._scope
    if kind is dict or kind is list:
        return scope.stand_in(value)
    if isinstance(value, Draft):
        if value.__class__ is value._closed_class:
            raise DraftClosed("A draft of an update that has ended cannot be put into the state: use a copy of it.")
        if value._scope is not scope:
            raise NotSerializable(owner._pointer(key), "draft of another update")
        return value
    if isinstance(value, dict | list):
        return value
    try:
        return frozen_at(value, [], scope)
    except NotSerializable as error:
        raise NotSerializable(owner._pointer(key), error.type_name) from None


def plain_key(key: Any, pointer: str) -> str:
    """Return a key as an exact `str`. Raises `NotSerializable`."""
    if isinstance(key, str):
        return str.__str__(key)
    raise NotSerializable(pointer, f"object key {key!r} ({type(key).__name__})")


class _Walk:
    __slots__ = ("above", "scope")

    def __init__(self, scope: Scope | None) -> None:
        self.scope = scope
        self.above: set[int] = set()  # the containers around the current one, to detect cycles

    def freeze(self, value: Any, path: Path) -> Any:
        kind = value.__class__
        if kind in ATOMS:
            if kind is float and not isfinite(value):
                raise NotSerializable(to_pointer(path), str(value))
            return value
        if kind in FROZEN:
            return value
        if isinstance(value, dict | list):
            return self._container(value, path)
        if isinstance(value, Draft):
            return self._draft(value, path)
        for plain in (str, int, float):
            if isinstance(value, plain):
                return self.freeze(_PLAIN[plain](value), path)
        raise NotSerializable(to_pointer(path), kind.__name__)

    def _draft(self, draft: Draft, path: Path) -> Any:
        if draft.__class__ is draft._closed_class:
            raise DraftClosed("A draft of an update that has ended cannot be put into the state: use a copy of it.")
        if draft._scope is not self.scope:
            raise NotSerializable(to_pointer(path), "draft of another update")
        return draft._finish(path)[0]

    def _container(self, value: Any, path: Path) -> Any:
        mark = id(value)
        if mark in self.above:
            raise NotSerializable(to_pointer(path), "circular reference")
        if len(path) >= MAX_DEPTH:
            raise NotSerializable(to_pointer(path), f"nesting deeper than {MAX_DEPTH}")
        if not value and self.scope is not None and self.scope.stand_in(value) is not value:
            return self._draft(self.scope.stand_in(value), path)  # filled through its draft, if at all
        self.above.add(mark)
        result = self._members(value, path) if isinstance(value, dict) else self._items(value, path)
        self.above.discard(mark)
        return result

    def _members(self, value: dict[Any, Any], path: Path) -> FrozenDict:
        result = FrozenDict()
        for key, item in value.items():
            if key.__class__ is not str:
                key = plain_key(key, to_pointer(path))
            kind = item.__class__
            if kind is not str and kind is not int and kind is not bool and item is not None:
                path.append(key)
                item = self.freeze(item, path)
                path.pop()
            dict_set(result, key, item)
        return result

    def _items(self, value: list[Any], path: Path) -> FrozenList:
        result = []
        for index, item in enumerate(value):
            kind = item.__class__
            if kind is not str and kind is not int and kind is not bool and item is not None:
                path.append(index)
                item = self.freeze(item, path)
                path.pop()
            result.append(item)
        return FrozenList(result)


_PLAIN: dict[type, Any] = {str: str.__str__, int: int.__int__, float: float.__float__}
