"""StepWrites: what one tool call wrote, as plain data, and its JSON Patch.

An op is a plain dict with `kind` and `path`, as stored and as sent. Ops may be hand-written, come from an old row or
from another program: only `parsed` decides whether an op is well formed. `merge` applies them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from ..errors import NotSerializable, PatchError
from .counting import is_number
from .freeze import freeze
from .pointer import to_pointer

Op = dict[str, Any]
"""One write: `kind` replace, delete, append, increment or ensure; `path`, or `key` for a path of one key."""

JsonPatch = list[dict[str, Any]]


class StepWrites(msgspec.Struct, frozen=True):
    """The writes of one tracker since its last reset, in the order in which they apply."""

    ops: Sequence[Op] = []
    warnings: Sequence[str] = []


AnyWrites = StepWrites | Sequence[Op]
"""Writes, or a bare list of ops."""


class ParsedOp(NamedTuple):
    """A well-formed op. `value` is frozen: the value of replace and ensure, the items of append, the `by` of
    increment."""

    kind: str
    path: tuple[str | int, ...]
    value: Any
    op: Op

    def __str__(self) -> str:
        return f"{self.kind} {to_pointer(self.path) or '(root)'}"


def parsed(writes: AnyWrites) -> tuple[list[ParsedOp], list[str]]:
    """Return the well-formed ops of `writes`, and a warning for every other op."""
    good: list[ParsedOp] = []
    warnings: list[str] = []
    ops = _ops_of(writes)
    if ops is None:
        warnings.append(f"Dropped writes: a {type(writes).__name__} has no list of ops.")
        return good, warnings
    for op in ops:
        try:
            good.append(_parse(op))
        except (_Malformed, NotSerializable) as error:
            warnings.append(f"Dropped {str(op)[:120]}: {error}")
    return good, warnings


def _ops_of(writes: object) -> Sequence[Op] | None:
    ops = writes.ops if isinstance(writes, StepWrites) else writes
    return ops if isinstance(ops, list | tuple) else None


class _Malformed(ValueError):
    pass


def _parse(op: object) -> ParsedOp:
    if op.__class__ is not dict and not isinstance(op, Mapping):  # the first is five times as fast
        raise _Malformed("an op must be an object")
    kind = op.get("kind")
    if not isinstance(kind, str) or kind not in _MEMBER:
        raise _Malformed(f"{kind!r} is not a kind of op")
    path = _parse_path(op)
    member = _MEMBER[kind]
    if not path and not (kind == "replace" and isinstance(op.get("value"), dict)):
        raise _Malformed("the state as a whole can only be replaced, by an object")
    if member is None:
        return ParsedOp(kind, path, None, op)  # type: ignore[arg-type]  # read only from here on
    if member not in op:
        raise _Malformed(f"{kind} needs {member!r}")
    value = freeze(op[member])
    if kind == "append" and not isinstance(value, list):
        raise _Malformed("the items of append must be a list")
    if kind == "increment" and not is_number(value):
        raise _Malformed("increment needs a number")
    if kind == "ensure" and not isinstance(value, dict | list):
        raise _Malformed("ensure needs an empty list or an empty object")
    return ParsedOp(kind, path, value, op)  # type: ignore[arg-type]


_MEMBER = {"replace": "value", "delete": None, "append": "items", "increment": "by", "ensure": "value"}


def _parse_path(op: Mapping[str, Any]) -> tuple[str | int, ...]:
    path = op["path"] if "path" in op else [op["key"]] if isinstance(op.get("key"), str) else None
    if not isinstance(path, list | tuple):
        raise _Malformed("an op needs a path, a list of keys and positions, or a key")
    for token in path:
        if token.__class__ is not str and (token.__class__ is not int or token < 0):
            raise _Malformed(f"{token!r} in a path is neither a key nor a position")
    return tuple(path)


def step_writes_to_rfc6902(writes: AnyWrites) -> JsonPatch:
    """Return the JSON Patch with the same effect on the base of the writes. Raises `PatchError` for a malformed op."""
    ops = _ops_of(writes)
    if ops is None:
        raise PatchError(f"Writes must be a StepWrites or a list of ops, not {type(writes).__name__}.")
    patch: JsonPatch = []
    op: Any = None
    try:
        for op in ops:
            _append_patch(patch, op)
    except (_Malformed, KeyError, TypeError, AttributeError) as error:
        raise PatchError(f"{str(op)[:120]} cannot become a patch: {error}") from error
    return patch


def _append_patch(patch: JsonPatch, op: Op) -> None:
    kind = op["kind"]
    pointer = to_pointer(op["path"]) if "path" in op else to_pointer([op["key"]])
    if kind == "replace" or kind == "increment":
        patch.append({"op": "add" if op.get("new") else "replace", "path": pointer, "value": op["value"]})
    elif kind == "append":
        end = pointer + "/-"
        patch.extend([{"op": "add", "path": end, "value": item} for item in op["items"]])
    elif kind == "delete":
        patch.append({"op": "remove", "path": pointer})
    elif kind == "ensure":
        patch.append({"op": "add", "path": pointer, "value": op["value"]})
    else:
        raise _Malformed(f"{kind!r} is not a kind of op")
