"""The draft of a list: the whole `list` API, plus `increment`.

`_low` splits the list. Before it, every position is still that of the base: an assignment is a mark, a container is a
child draft in `_kids`. From `_low` on (appended items, or everything after an insert, a removal or a sort) cells hold
the values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableSequence
from math import isfinite
from operator import index as as_position
from typing import Any, SupportsIndex

from ..errors import NotSerializable
from .counting import incremented
from .draft import Draft, Path, Scope, close_methods
from .freeze import checked, frozen_at
from .frozen import ATOMS, FINAL, FROZEN, FrozenList, copied_list, list_del, list_set, same_atom, same_value, thaw
from .marks import SET, ListMarks, added


class ListDraft(Draft, MutableSequence[Any]):
    """A list of the state while an update may change it."""

    __slots__ = ("_loose", "_low")
    __hash__ = None  # type: ignore[assignment]  # like list

    def __init__(self, base: FrozenList, parent: Draft | None, scope: Scope) -> None:
        super().__init__(base, parent, scope)
        self._low = len(base)
        self._loose = False  # some cell from _low on may hold a draft or something not frozen yet

    # Reading

    def __getitem__(self, index: Any) -> Any:
        source = self._base if self._copy is None else self._copy
        if index.__class__ is slice:
            return [self[at] for at in range(*index.indices(len(source)))]
        value = source[index]
        if value.__class__ in ATOMS:
            return value
        at = as_position(index)
        if at < 0:
            at += len(source)
        if at < self._low:
            kids = self._kids
            if kids is not None and at in kids:
                return kids[at]
        make = self._make.get(value.__class__)
        if make is None:
            return value  # put in by this update
        kid = make(value, self, self._scope)
        if at >= self._low:
            self._loose = True
            list_set(self._copy, at, kid)
        elif self._kids is None:
            self._kids = {at: kid}
        else:
            self._kids[at] = kid
        return kid

    def __len__(self) -> int:
        return len(self._current())

    def __iter__(self) -> Iterator[Any]:
        at = 0
        while at < len(self):
            yield self[at]
            at += 1

    def __contains__(self, value: object) -> bool:
        return next(self._places(value), None) is not None

    def index(self, value: Any, start: int = 0, stop: int | None = None) -> int:
        low, high, _ = slice(start, stop).indices(len(self))
        for at in self._places(value, low):
            if at < high:
                return at
            break
        raise ValueError(f"{value!r} is not in list")

    def count(self, value: Any) -> int:
        return sum(1 for _ in self._places(value))

    def _places(self, value: Any, start: int = 0) -> Iterator[int]:
        wanted = thaw(value) if isinstance(value, Draft) else value
        kids = self._kids or {}
        for at, item in enumerate(self._current()[start:], start):
            if item.__class__ not in ATOMS:
                item = kids.get(at, item)
                if item is not value and item.__class__ not in FROZEN:
                    item = thaw(item)
            if item is value or item == wanted:
                yield at

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, list | ListDraft):
            return NotImplemented
        return bool(thaw(self) == thaw(other))

    def __lt__(self, other: Any) -> bool:
        return bool(thaw(self) < thaw(other))

    def __le__(self, other: Any) -> bool:
        return bool(thaw(self) <= thaw(other))

    def __gt__(self, other: Any) -> bool:
        return bool(thaw(self) > thaw(other))

    def __ge__(self, other: Any) -> bool:
        return bool(thaw(self) >= thaw(other))

    def copy(self) -> list[Any]:
        return [self[at] for at in range(len(self))]

    def __deepcopy__(self, memo: dict[int, Any]) -> list[Any]:
        kids = self._kids or {}
        return [
            value if value.__class__ in ATOMS else thaw(kids.get(at, value)) for at, value in enumerate(self._current())
        ]

    def __add__(self, other: Any) -> Any:
        return [*self, *other] if isinstance(other, list | ListDraft) else NotImplemented

    def __radd__(self, other: Any) -> Any:
        return [*other, *self] if isinstance(other, list) else NotImplemented

    def __mul__(self, times: SupportsIndex) -> list[Any]:
        return self.copy() * times

    __rmul__ = __mul__

    # Writing

    def append(self, value: Any) -> None:
        value = self._incoming(value, len(self))
        if self._copy is None:
            self._own()
        list.append(self._copy, value)

    def extend(self, values: Iterable[Any]) -> None:
        for value in self.copy() if values is self else values:
            self.append(value)

    def __iadd__(self, values: Iterable[Any]) -> ListDraft:  # type: ignore[misc]  # mypy wants Self
        self.extend(values)
        return self

    def __imul__(self, times: SupportsIndex) -> ListDraft:
        if as_position(times) <= 0:
            self.clear()
        else:
            self.extend(self.copy() * (as_position(times) - 1))
        return self

    def insert(self, index: SupportsIndex, value: Any) -> None:
        size = len(self)
        at = as_position(index)
        at = max(0, size + at) if at < 0 else min(at, size)
        if at == size:
            self.append(value)
            return
        value = self._incoming(value, at)
        list.insert(self._loosen(at), at, value)

    def __setitem__(self, index: Any, value: Any) -> None:
        if index.__class__ is slice:
            self._set_slice(index, value)
            return
        source = self._current()
        at = self._position(index, len(source), "list assignment index out of range")
        old = source[at]
        kid = (self._kids or {}).get(at, old)
        if kid is value or same_atom(old, value):
            return
        value = self._incoming(value, at)
        if self._copy is None:
            self._own()
        if at < self._low:
            if self._kids is not None:
                self._kids.pop(at, None)
            self._marks[at] = SET  # type: ignore[index]  # _own made it
        list_set(self._copy, at, value)

    def _set_slice(self, where: slice, values: Iterable[Any]) -> None:
        values = self.copy() if values is self else list(values)
        size = len(self)
        start, stop, step = where.indices(size)
        places = range(start, stop, step)
        if len(places) == len(values):
            for at, value in zip(places, values, strict=True):
                self[at] = value
        elif step != 1:
            raise ValueError(
                f"attempt to assign sequence of size {len(values)} to extended slice of size {len(places)}"
            )
        elif start == size:
            self.extend(values)
        else:
            values = [self._incoming(value, at) for at, value in enumerate(values, start)]
            list_set(self._loosen(start), slice(start, max(start, stop)), values)

    def __delitem__(self, index: Any) -> None:
        if index.__class__ is slice:
            places = range(*index.indices(len(self)))
            if places:
                list_del(self._loosen(min(places[0], places[-1])), index)
            return
        at = self._position(index, len(self), "list assignment index out of range")
        list_del(self._loosen(at), at)

    def pop(self, index: SupportsIndex = -1) -> Any:
        if not len(self):
            raise IndexError("pop from empty list")
        at = self._position(index, len(self), "pop index out of range")
        value = self[at]  # a draft that is taken out stays usable, to be put in elsewhere
        list_del(self._loosen(at), at)
        return value

    def remove(self, value: Any) -> None:
        at = next(self._places(value), None)
        if at is None:
            raise ValueError("list.remove(x): x not in list")
        del self[at]

    def clear(self) -> None:
        del self[:]

    def reverse(self) -> None:
        if len(self) > 1:
            list.reverse(self._loosen(0))

    def sort(self, *, key: Callable[[Any], Any] | None = None, reverse: bool = False) -> None:
        items = self.copy()
        keys = items if key is None else [key(item) for item in items]
        order = sorted(range(len(items)), key=keys.__getitem__, reverse=reverse)
        moved = next((at for at, source in enumerate(order) if at != source), None)
        if moved is not None:
            list_set(self._loosen(moved), slice(moved, None), [items[source] for source in order[moved:]])

    def increment(self, index: SupportsIndex, by: int | float = 1) -> int | float:
        """Add to the number at `index`. Parallel increments add up; `+=` does not."""
        source = self._current()
        at = self._position(index, len(source), "list index out of range")
        new = incremented(source[at], by, lambda: self._pointer(at))
        if self._copy is None:
            self._own()
        list_set(self._copy, at, new)
        if at < self._low:
            marks: dict[int, Any] = self._marks  # type: ignore[assignment]  # _own made it
            marks[at] = added(marks.get(at), by)
        return new

    def _incoming(self, value: Any, at: int) -> Any:
        kind = value.__class__
        if kind not in ATOMS:
            self._loose = True
            return checked(value, self, at)
        if kind is float and not isfinite(value):
            raise NotSerializable(self._pointer(at), str(value))
        return value

    def _own(self) -> None:
        self._copy = copied_list(self._base)
        self._marks = {}
        self._touch()

    def _loosen(self, low: int) -> Any:
        """Return the working copy, in which order and length may change from `low` on."""
        if self._copy is None:
            self._own()
        if low < self._low:
            self._low = low
            marks, kids = self._marks or {}, self._kids or {}
            for at in [at for at in marks if at >= low]:
                del marks[at]
            for at in [at for at in kids if at >= low]:
                list_set(self._copy, at, kids.pop(at))
            self._loose = True
        return self._copy

    @staticmethod
    def _position(index: SupportsIndex, size: int, complaint: str) -> int:
        at = as_position(index)
        if at < 0:
            at += size
        if not 0 <= at < size:
            raise IndexError(complaint)
        return at

    # Finishing

    def _current(self) -> Any:
        return self._base if self._copy is None else self._copy

    def _members(self) -> Any:
        return enumerate(self._current())

    def _finished(self, path: Path) -> tuple[Any, Any]:
        if self._loose:
            for at in range(self._low, len(self._copy or ())):
                self._freeze_cell(at, path)
        marks = {at: mark for at, mark in (self._marks or {}).items() if self._kept(at, path)}
        if self._kids:
            self._finish_kids(marks, path)
        base, copy, low = self._base, self._copy, self._low
        if copy is None:
            return base, None
        if low < len(base) <= len(copy) and all(map(same_value, base[low:], copy[low : len(base)])):
            list_set(copy, slice(low, len(base)), base[low:])  # everything came back to its place
            low = len(base)
        if not marks and low == len(base) == len(copy):
            return base, None
        return copy, ListMarks(low, marks)

    def _freeze_cell(self, at: int, path: Path) -> Any:
        value = self._copy[at]
        if value.__class__ not in FINAL:
            path.append(at)
            value = frozen_at(value, path, self._scope)
            path.pop()
            list_set(self._copy, at, value)
        return value

    def _kept(self, at: int, path: Path) -> bool:
        """Freeze the value that was put at `at`; return False if it changes nothing."""
        old = self._base[at]
        if not same_value(old, self._freeze_cell(at, path)):
            return True
        list_set(self._copy, at, old)  # keep the shared object
        return False

    def _finish_kids(self, marks: dict[int, Any], path: Path) -> None:
        for at, kid in self._kids.items():  # type: ignore[union-attr]  # the caller looked
            if not kid._dirty:
                continue
            path.append(at)
            value, below = kid._finish(path)
            path.pop()
            if below is not None:
                if self._copy is None:
                    self._copy = copied_list(self._base)
                list_set(self._copy, at, value)
                marks[at] = below


_METHODS = (
    *("__getitem__", "__setitem__", "__delitem__", "__iter__", "__reversed__", "__len__", "__contains__", "__eq__"),
    *("__lt__", "__le__", "__gt__", "__ge__", "__add__", "__radd__", "__mul__", "__rmul__", "__iadd__", "__imul__"),
    *("__copy__", "__deepcopy__", "append", "extend", "insert", "pop", "remove", "clear", "reverse", "sort"),
    *("index", "count", "copy", "increment"),
)
ListDraft._make[FrozenList] = ListDraft
ListDraft._closed_class = close_methods(ListDraft, _METHODS)
