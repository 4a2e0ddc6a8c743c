"""The base of dict drafts and list drafts: lazy copying, dirty flags, the scope of one update.

A draft stands for one container of a snapshot. Reading copies nothing; the first write makes one shallow working copy
of that container and flags the drafts above it. The working copy is already of the frozen class, so finishing is free.
Containers that the user's function assigns are held by reference until the update ends, as in plain Python; then they
are checked and frozen. What a draft hands back is a snapshot and marks; it knows nothing of writes or patches.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from ..codec import MAX_DEPTH
from ..errors import DraftClosed, NotSerializable
from .pointer import to_pointer

Path = list[str | int]


class Scope(list["Draft"]):
    """All drafts of one update, so that they can be closed when it ends."""

    # id of a container given to setdefault -> (it, the draft that took its place); see DictDraft.setdefault
    ensured: dict[int, tuple[Any, Draft]] | None = None

    def stand_in(self, value: Any) -> Any:
        """Return the draft that took the place of a container, or the container itself."""
        if self.ensured is None:
            return value
        return self.ensured.get(id(value), (None, value))[1]

    def close(self) -> None:
        for draft in self:
            draft.__class__ = draft._closed_class
            draft._kids = None  # parents and children refer to each other
        self.clear()


class Draft:
    """One container of a snapshot while an update may change it."""

    __slots__ = ("_base", "_copy", "_dirty", "_kids", "_marks", "_parent", "_result", "_scope")

    _closed_class: ClassVar[type[Draft]]
    _make: ClassVar[dict[type, Callable[[Any, Draft, Scope], Draft]]] = {}  # frozen class -> its draft class

    def __init__(self, base: Any, parent: Draft | None, scope: Scope) -> None:
        self._base = base
        self._copy: Any = None
        self._kids: dict[Any, Draft] | None = None  # drafts of containers that still sit where the base has them
        self._marks: dict[Any, Any] | None = None
        self._parent = parent
        self._scope = scope
        self._dirty = False  # this container or one below it was written to
        self._result: Any = None  # the memo of _finish: an aliased draft is finished once
        scope.append(self)

    def _touch(self) -> None:
        draft: Draft | None = self
        while draft is not None and not draft._dirty:
            draft._dirty = True
            draft = draft._parent

    def _finish(self, path: Path) -> tuple[Any, Any]:
        """Return the frozen result and its marks (None if there are none). `path` is where the draft is, for errors."""
        if not self._dirty:
            return self._base, None
        result = self._result
        if result is None:
            if len(path) >= MAX_DEPTH:
                raise NotSerializable(to_pointer(path), f"nesting deeper than {MAX_DEPTH}")
            self._result = _BUSY
            result = self._result = self._finished(path)
        elif result is _BUSY:
            raise NotSerializable(to_pointer(path), "circular reference")
        return result  # type: ignore[no-any-return]  # the memo is Any because of the busy mark

    def _finished(self, path: Path) -> tuple[Any, Any]:
        raise NotImplementedError

    def _members(self) -> Iterable[tuple[Any, Any]]:
        raise NotImplementedError

    def _pointer(self, key: str | int) -> str:
        """Return the pointer to `key` of this draft. Searches the tree, because only errors need it."""
        path: Path = [key]
        draft: Draft = self
        while draft._parent is not None:
            parent = draft._parent
            places = [*(parent._kids or {}).items(), *parent._members()]
            path.append(next((place for place, value in places if value is draft), "?"))
            draft = parent
        return to_pointer(reversed(path))

    def __copy__(self) -> Any:
        return self.copy()  # type: ignore[attr-defined]  # both kinds have it

    def __repr__(self) -> str:
        return f"<draft {self.__deepcopy__({})!r}>"

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        raise NotImplementedError

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("A draft lives only inside its update: pickle copy.deepcopy(draft).")


_BUSY = object()


def close_methods(draft_class: type[Draft], names: Iterable[str]) -> type[Draft]:
    """Return a class of the same layout whose methods all raise `DraftClosed`; closing a draft changes its class to
    it."""

    def closed(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise DraftClosed(
            "This draft belongs to an update that has ended: read tracker.state, or copy what you need "
            "with copy.deepcopy(draft) inside the update."
        )

    body: dict[str, Any] = dict.fromkeys(names, closed)
    body |= {"__slots__": (), "__hash__": None, "__repr__": lambda self: "<closed draft>"}
    made: type[Draft] = types.new_class("Closed" + draft_class.__name__, (draft_class,), {}, lambda ns: ns.update(body))
    return made
