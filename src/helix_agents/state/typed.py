"""Typed views: the JSON state as a pydantic model, a dataclass, a TypedDict or a msgspec Struct, and back.

The state itself stays plain JSON; a view is a checked copy of it. `TypedState` lets a function change such a copy and
compares it with the original, so that the tracker records the same writes as for a plain draft.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import iscoroutine
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from ..errors import InvalidArgument
from ..values import InvalidInput, convert, to_json
from .diff import diff
from .freeze import freeze
from .frozen import same_atom, thaw
from .tracker import StateTracker

T = TypeVar("T")


def view(state: dict[str, Any], schema: type[T]) -> T:
    """Return a checked, independent copy of the state as `schema`. Raises `InvalidArgument` if it does not fit."""
    try:
        seen: T = convert(thaw(state), schema)
    except InvalidInput as error:
        raise InvalidArgument(f"The state is not a valid {getattr(schema, '__name__', schema)}: {error}") from error
    return seen


def ensure_fits(state: dict[str, Any], schema: Any) -> None:
    """Raise `InvalidArgument` unless the state is a valid `schema` exactly as it is."""
    try:
        convert(thaw(state), schema, strict=True)
    except InvalidInput as error:
        raise InvalidArgument(f"The state is not a valid {getattr(schema, '__name__', schema)}: {error}") from error


def initial_state(source: Any) -> dict[str, Any]:
    """Return a plain state, given a dict, an instance of a schema, or a schema whose fields all have defaults."""
    schema = source if isinstance(source, type) else type(source)
    if isinstance(source, type):
        source = _defaults(source)
    plain = source if isinstance(source, dict) else to_json(source)
    if not isinstance(plain, dict):
        raise InvalidArgument(
            f"The state of a session must be a dict or a schema with fields, not {type(source).__name__}."
        )
    result: dict[str, Any] = thaw(freeze(plain))
    if plain is not source:
        view(result, schema)  # fail now if the state cannot be read back
    return result


def _defaults(schema: type) -> Any:
    try:
        return schema()
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"{schema.__name__} has fields without a default: give a dict or an instance.") from error


class TypedState(Generic[T]):
    """The state of a tracker as instances of a schema."""

    def __init__(self, tracker: StateTracker, schema: type[T]) -> None:
        self._tracker = tracker
        self._schema = schema
        self._shown: _Shown | None = None

    @property
    def state(self) -> T:
        """The current state, read-only: changes to the instance are not stored."""
        if self._shown is None or self._shown.state is not self._tracker.state:
            self.ensure_untouched()
            seen = view(self._tracker.state, self._schema)
            self._shown = _Shown(self._tracker.state, seen, to_json(seen))
        instance: T = self._shown.instance
        return instance

    def update(self, fn: Callable[[T], object]) -> T:
        """Let `fn` change an instance, write the changes to the tracker, and return the new state."""
        self.ensure_untouched()
        draft = view(self._tracker.state, self._schema)
        before = to_json(draft)
        answer = fn(draft)
        if answer is not None and iscoroutine(answer):
            answer.close()
            raise InvalidArgument("update_state() takes a plain function, not an async one: await first, then update.")
        after = to_json(draft)
        ensure_fits(after, self._schema)  # a dataclass takes anything
        edits = _edits(self._tracker.state, before, after)
        if edits:
            self._tracker.update(lambda plain: _apply(plain, edits))
        return self.state

    def ensure_untouched(self) -> None:
        """Raise `InvalidArgument` if a read-only instance has been changed."""
        if self._shown is not None and diff(self._shown.plain, to_json(self._shown.instance)):
            self._shown = None
            raise InvalidArgument(
                "The state was changed in place, which stores nothing: write ctx.update_state(lambda draft: ...)."
            )


class _Shown(NamedTuple):
    state: dict[str, Any]
    instance: Any
    plain: Any


class _Edit(NamedTuple):
    kind: Literal["set", "delete", "extend"]
    path: tuple[str | int, ...]
    value: Any = None


def _edits(stored: Any, before: Any, after: Any, path: tuple[str | int, ...] = ()) -> list[_Edit]:
    """Return edits of the stored value that turn `before` into `after`. The stored value may have other members."""
    if isinstance(stored, dict) and isinstance(before, dict) and isinstance(after, dict):
        return _edits_of_members(stored, before, after, path)
    if isinstance(stored, list) and isinstance(before, list) and isinstance(after, list):
        return _edits_of_items(stored, before, after, path)
    return [_Edit("set", path, after)] if diff(before, after) else []


def _edits_of_members(
    stored: dict[str, Any], before: dict[str, Any], after: dict[str, Any], path: tuple[str | int, ...]
) -> list[_Edit]:
    edits = [_Edit("delete", (*path, key)) for key in before if key not in after and key in stored]
    for key, value in after.items():
        if key in stored and key in before:
            edits += _edits(stored[key], before[key], value, (*path, key))
        elif key not in before or diff(before[key], value):
            edits.append(_Edit("set", (*path, key), value))
    return edits


def _edits_of_items(stored: list[Any], before: list[Any], after: list[Any], path: tuple[str | int, ...]) -> list[_Edit]:
    """Return edits item by item and an append, or a replacement of the list if items have moved."""
    whole = [_Edit("set", path, after)]
    if len(stored) != len(before) or len(after) < len(before):
        return whole if diff(before, after) else []
    edits: list[_Edit] = []
    for index, value in enumerate(before):
        if diff(value, after[index]):
            if not isinstance(value, dict | list) and not same_atom(stored[index], value):
                return whole  # stored in another order: a set
            edits += _edits(stored[index], value, after[index], (*path, index))
    if len(after) > len(before):
        if edits:
            return whole
        edits.append(_Edit("extend", path, after[len(before) :]))
    return edits


def _apply(draft: Any, edits: list[_Edit]) -> None:
    for kind, (*parents, key), value in edits:
        place = draft
        for parent in parents:
            place = place[parent]
        if kind == "extend":
            place[key].extend(value)
        elif kind == "delete":
            del place[key]
        else:
            place[key] = value
