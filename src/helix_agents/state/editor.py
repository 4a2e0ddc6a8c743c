"""Edit a JSON tree by copying: each container on the path is copied at most once, and the original stays unchanged.

Shared by merging writes and by applying patches. Everything else stays the identical object. A copy has the type of its
original: a snapshot stays a snapshot, plain data stays plain.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .freeze import freeze
from .frozen import FrozenDict, FrozenList, copied_list, dict_del, dict_set, list_del, list_set, thaw, type_name


class Misfit(Exception):
    """The tree has no such path, or a value of another type there."""


class Editor:
    """A series of edits to a tree; `root` is its current form."""

    __slots__ = ("_alive", "_owned", "root")

    def __init__(self, root: Any) -> None:
        self.root = root
        self._owned: set[int] = set()
        self._alive: list[Any] = []  # keeps the ids in _owned from being given to something else

    def find(self, path: Iterable[str | int]) -> Any:
        """Return the value at a path."""
        node = self.root
        for token in path:
            node = member(node, token)
        return node

    def container(self, path: Iterable[Any]) -> Any:
        """Return a copy of the container at a path, which the caller may change."""
        node = self.root = self._own(self.root)
        for token in path:
            child = member(node, token)
            own = self._own(child)
            if own is not child:
                (dict_set if isinstance(node, dict) else list_set)(node, token, own)
            node = own
        return node

    def _own(self, container: Any) -> Any:
        if id(container) in self._owned:
            return container
        copy: Any
        if isinstance(container, dict):
            copy = FrozenDict(container) if container.__class__ is FrozenDict else dict(container)
        elif isinstance(container, list):
            copy = copied_list(container) if container.__class__ is FrozenList else container[:]
        else:
            raise Misfit(f"a {type_name(container)} has no members")
        self._owned.add(id(copy))
        self._alive.append(copy)
        return copy

    def share(self) -> None:
        """Forget which containers were copied, because a subtree is about to appear in two places."""
        self._owned.clear()
        self._alive.clear()


def member(node: Any, token: Any) -> Any:
    """Return the member or item that a token names."""
    if isinstance(node, dict):
        if token.__class__ is str and token in node:
            return node[token]
        raise Misfit(f"there is no member {token!r}")
    if isinstance(node, list):
        if token.__class__ is int and token < len(node):
            return node[token]
        raise Misfit(f"there is no item {token!r}")
    raise Misfit(f"a {type_name(node)} has no {token!r}")


def fitting(container: Any, value: Any) -> Any:
    """Return a value that fits its container: frozen for a frozen one, a plain copy for a plain one."""
    value = freeze(value)
    return value if container.__class__ is FrozenDict or container.__class__ is FrozenList else thaw(value)


def put(container: Any, token: Any, value: Any) -> None:
    """Set a member, or replace an existing item."""
    value = fitting(container, value)
    (dict_set if isinstance(container, dict) else list_set)(container, token, value)


def remove(container: Any, token: Any) -> None:
    """Remove an existing member or item."""
    (dict_del if isinstance(container, dict) else list_del)(container, token)
