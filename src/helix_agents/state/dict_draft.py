"""The draft of a dict: the whole `dict` API, plus `increment`.

Values are not recorded, only marks (see `marks`). A key whose mark is `SET` has its value in the working copy; a
container that still sits where the base has it is a child draft in `_kids`.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, Mapping, MutableMapping, ValuesView
from math import isfinite
from typing import Any

from ..errors import NotSerializable
from .counting import incremented
from .draft import Draft, Path, close_methods
from .freeze import checked, frozen_at, plain_key
from .frozen import ATOMS, EMPTY_DICT, EMPTY_LIST, FROZEN, FrozenDict, dict_del, dict_set, same_atom, same_value, thaw
from .marks import DELETED, MISSING, SET, DictMarks, Ensured, added


class DictDraft(Draft, MutableMapping[str, Any]):
    """A dict of the state while an update may change it."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]  # like dict

    # Reading

    def __getitem__(self, key: str) -> Any:
        copy = self._copy
        value = (self._base if copy is None else copy)[key]
        if value.__class__ in ATOMS:
            return value
        kids = self._kids
        if kids is not None:
            kid = kids.get(key)
            if kid is not None:
                return kid
        make = self._make.get(value.__class__)
        if make is None:
            return value  # put in by this update: the user's own object, or a draft that was moved here
        kid = make(value, self, self._scope)
        if kids is None:
            self._kids = {key: kid}
        else:
            kids[key] = kid
        return kid

    def get(self, key: str, default: Any = None) -> Any:
        return self[key] if key in self else default  # noqa: SIM401  # this is get

    def __contains__(self, key: object) -> bool:
        copy = self._copy
        return key in (self._base if copy is None else copy)

    def __len__(self) -> int:
        return len(self._current())

    def __iter__(self) -> Iterator[str]:
        return iter(self._current())

    def __reversed__(self) -> Iterator[str]:
        return reversed(self._current())

    def keys(self) -> KeysView[str]:
        return _Keys(self)

    def values(self) -> ValuesView[Any]:
        return _Values(self)

    def items(self) -> ItemsView[str, Any]:
        return _Items(self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, dict | DictDraft):
            return NotImplemented
        return bool(thaw(self) == thaw(other))

    def copy(self) -> dict[str, Any]:
        return {key: self[key] for key in self}

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        kids = self._kids or {}
        return {
            key: value if value.__class__ in ATOMS else thaw(kids.get(key, value))
            for key, value in self._current().items()
        }

    def __or__(self, other: Any) -> Any:
        return {**self.copy(), **other} if isinstance(other, Mapping) else NotImplemented

    def __ror__(self, other: Any) -> Any:
        return {**other, **self.copy()} if isinstance(other, Mapping) else NotImplemented

    # Writing

    def __setitem__(self, key: str, value: Any) -> None:
        copy = self._copy
        old = (self._base if copy is None else copy).get(key, MISSING)
        kind = value.__class__
        if kind in ATOMS:
            if kind is float and not isfinite(value):
                raise NotSerializable(self._pointer(key), str(value))
            if old == value and same_atom(old, value):
                return
        else:
            if (self._kids or {}).get(key, old) is value:
                return
            value = checked(value, self, key)
        if key.__class__ is not str:
            key = plain_key(key, self._pointer(str(key)).rpartition("/")[0])
        self._put(key, value, SET)

    def _put(self, key: str, value: Any, mark: Any) -> None:
        if self._copy is None:
            self._own()
        if self._kids is not None:
            self._kids.pop(key, None)
        dict_set(self._copy, key, value)
        self._marks[key] = mark  # type: ignore[index]  # _own made it

    def _own(self) -> None:
        self._copy = FrozenDict(self._base)
        self._marks = {}
        self._touch()

    def __delitem__(self, key: str) -> None:
        if key not in self:
            raise KeyError(key)
        if self._copy is None:
            self._own()
        if self._kids is not None:
            self._kids.pop(key, None)
        dict_del(self._copy, key)
        self._marks[key] = DELETED  # type: ignore[index]  # _own made it

    def pop(self, key: str, default: Any = MISSING) -> Any:
        if key not in self:
            if default is MISSING:
                raise KeyError(key)
            return default
        value = self[key]  # a draft that is taken out stays usable, to be put in elsewhere
        del self[key]
        return value

    def popitem(self) -> tuple[str, Any]:
        for key in reversed(self):
            return key, self.pop(key)
        raise KeyError("popitem(): dictionary is empty")

    def clear(self) -> None:
        for key in list(self):
            del self[key]

    def update(self, other: Any = (), /, **members: Any) -> None:
        if hasattr(other, "keys"):
            for key in other.keys():  # noqa: SIM118  # what dict.update does: it may be no Mapping
                self[key] = other[key]
        else:
            for key, value in other:
                self[key] = value
        for key, value in members.items():
            self[key] = value

    def __ior__(self, other: Any) -> DictDraft:
        self.update(other)
        return self

    def setdefault(self, key: str, default: Any = None) -> Any:
        """Set a missing key, as for a dict. An empty container is `ensure`: parallel tools may all create it and fill
        it together."""
        if key in self:
            return self[key]
        kind = default.__class__
        scope = self._scope
        plain = (kind is not dict and kind is not list) or default or key.__class__ is not str
        if plain or scope.stand_in(default) is not default:
            self[key] = default
            return self[key]
        deleted = self._marks is not None and key in self._marks
        self._put(key, EMPTY_DICT if kind is dict else EMPTY_LIST, SET if deleted else Ensured(default))
        draft = self[key]
        # The caller may hold `default` by a name of its own and put it elsewhere: that is the same container then.
        if scope.ensured is None:
            scope.ensured = {}
        scope.ensured[id(default)] = default, draft
        return draft

    def increment(self, key: str, by: int | float = 1) -> int | float:
        """Add to the number at `key`; a missing key counts as 0. Parallel increments add up; `+=` does not."""
        if key.__class__ is not str:
            key = plain_key(key, self._pointer(str(key)).rpartition("/")[0])
        new = incremented(self._current().get(key, 0), by, lambda: self._pointer(key))
        self._put(key, new, added((self._marks or {}).get(key), by))
        return new

    # Finishing

    def _current(self) -> FrozenDict:
        return self._base if self._copy is None else self._copy  # type: ignore[no-any-return]

    def _members(self) -> Any:
        return self._current().items()

    def _finished(self, path: Path) -> tuple[Any, Any]:
        marks: DictMarks = {}
        if self._marks:
            base, copy = self._base, self._copy
            for key, mark in self._marks.items():
                if mark is SET and (value := copy[key]).__class__ in ATOMS and base.get(key, MISSING) != value:
                    marks[key] = SET  # the common case, short
                elif self._kept(key, mark, path):
                    marks[key] = self._marks[key]
        if self._kids:
            self._finish_kids(marks, path)
        return (self._copy, marks) if marks else (self._base, None)

    def _kept(self, key: str, mark: Any, path: Path) -> bool:
        """Freeze the value that was put at `key`; return False if it changes nothing."""
        if mark is DELETED:
            return key in self._base
        if mark.__class__ is Ensured:
            return self._keep_ensured(key, mark, path)
        value = self._copy[key]
        if value.__class__ not in ATOMS and value.__class__ not in FROZEN:
            path.append(key)
            value = frozen_at(value, path, self._scope)
            path.pop()
            dict_set(self._copy, key, value)
        old = self._base.get(key, MISSING)
        if not same_value(old, value):
            return True
        dict_set(self._copy, key, old)  # keep the shared object
        return False

    def _keep_ensured(self, key: str, mark: Ensured, path: Path) -> bool:
        default, mark.default = mark.default, None
        if default:  # filled by the caller's own name for it
            kid = (self._kids or {}).pop(key, None)
            if kid is not None and kid._dirty:
                raise NotSerializable(self._pointer(key), "a container filled both as a draft and by another name")
            path.append(key)
            dict_set(self._copy, key, frozen_at(default, path, self._scope))
            path.pop()
            self._marks[key] = SET  # type: ignore[index]  # there is at least this mark
        return True

    def _finish_kids(self, marks: DictMarks, path: Path) -> None:
        for key, kid in self._kids.items():  # type: ignore[union-attr]  # the caller looked
            if not kid._dirty:
                continue
            path.append(key)
            value, below = kid._finish(path)
            path.pop()
            if below is None:
                continue
            if self._copy is None:
                self._copy = FrozenDict(self._base)
            dict_set(self._copy, key, value)
            mark = marks.get(key)
            if mark is None:
                marks[key] = below
            elif mark.__class__ is Ensured:
                mark.below = below


class _Keys(KeysView[str]):
    __slots__ = ()

    def __reversed__(self) -> Iterator[str]:
        return reversed(self._mapping)  # type: ignore[attr-defined]  # of the mixin


class _Values(ValuesView[Any]):
    __slots__ = ()

    def __reversed__(self) -> Iterator[Any]:
        return (self._mapping[key] for key in reversed(self._mapping))  # type: ignore[attr-defined]


class _Items(ItemsView[str, Any]):
    __slots__ = ()

    def __reversed__(self) -> Iterator[tuple[str, Any]]:
        return ((key, self._mapping[key]) for key in reversed(self._mapping))  # type: ignore[attr-defined]


_METHODS = (
    *("__getitem__", "__setitem__", "__delitem__", "__iter__", "__reversed__", "__len__", "__contains__", "__eq__"),
    *("__or__", "__ror__", "__ior__", "__copy__", "__deepcopy__", "get", "pop", "popitem", "setdefault", "clear"),
    *("update", "keys", "values", "items", "copy", "increment"),
)
DictDraft._make[FrozenDict] = DictDraft
DictDraft._closed_class = close_methods(DictDraft, _METHODS)
