"""Choices: enums and literals in annotations, the values they allow, and lenient matching of what a model wrote."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

MAX_DEPTH = 50
_LISTS = (list, tuple, set, frozenset)
_PLAIN = (Any, None, type(None), str, int, float, bool)
_PLACE = re.compile(r"at `\$([^`]*)`")
_STEP = re.compile(r"\.([^.\[]+)|\[[^\]]*\]")


def choices_of(hint: Any) -> list[Any]:
    """Return the values that an annotation allows if it is a choice; empty if it is not."""
    origin = get_origin(hint)
    if origin is Literal:
        return list(get_args(hint))
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return [member.value for member in hint]
    if origin is Annotated or origin in _LISTS:
        return choices_of(get_args(hint)[0]) if get_args(hint) else []
    if origin in (Union, UnionType):
        return [choice for part in get_args(hint) for choice in choices_of(part)]
    return []


def may_have_choices(hint: Any) -> bool:
    """Return whether `meant` may change a value; True if in doubt."""
    if get_origin(hint) is Annotated:
        return may_have_choices(get_args(hint)[0])
    if get_origin(hint) in (*_LISTS, dict, Union, UnionType):
        return any(part is not Ellipsis and may_have_choices(part) for part in get_args(hint))
    return not any(hint is plain for plain in _PLAIN)


def allowed_at(hint: Any, error: str) -> str:
    """Return the allowed values to append to an error about an invalid choice; empty if it is not about a choice."""
    place = _PLACE.search(error)
    hints = [hint]
    for step in _STEP.finditer(place[1] if place is not None else ""):
        hints = [inner for each in hints for inner in _inside(each, step[1])]
    choices = [choice for each in hints for choice in choices_of(each)]
    return f"; allowed: {', '.join(map(repr, choices))}" if choices else ""


def meant(value: Any, hint: Any, depth: int = 0) -> Any:
    """Return the value with choices corrected at any depth: another case, or the name of an enum's member."""
    origin = get_origin(hint)
    if depth > MAX_DEPTH:
        return value
    if origin is Annotated:
        return meant(value, get_args(hint)[0], depth)
    if origin in (Union, UnionType):
        parts = get_args(hint)
        if isinstance(value, str) and any(part is str for part in parts):
            return value  # which is as good as it is
        return next((found for part in parts if (found := meant(value, part, depth + 1)) != value), value)
    if isinstance(value, list) and origin in _LISTS:
        return [meant(item, inner, depth + 1) for item in value for inner in _inside(hint, None)[:1]] or value
    if isinstance(value, dict):
        return {key: meant(item, next(iter(_inside(hint, key)), Any), depth + 1) for key, item in value.items()}
    return _choice(value, hint)


def _choice(value: Any, hint: Any) -> Any:
    if not isinstance(value, str) or value in (choices := choices_of(hint)):
        return value
    names: dict[str, Any] = {}
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        names = {member.name: member.value for member in hint}
    fits = [choice for choice in choices if str(choice).casefold() == value.casefold()]
    fits += [choice for name, choice in names.items() if name.casefold() == value.casefold() and choice not in fits]
    return fits[0] if len(fits) == 1 else value


def _inside(hint: Any, name: str | None) -> list[Any]:
    """Return the annotations of a member, or of a list's items (None), within an annotation."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _inside(parts[0], name)
    if origin in (Union, UnionType):
        return [inner for part in parts for inner in _inside(part, name)]
    if origin in _LISTS and parts:
        return [parts[0]]
    if isinstance(origin, type) and issubclass(origin, Mapping) and len(parts) == 2:
        return [parts[1]]
    if isinstance(hint, Mapping):  # names and their annotations
        return [hint[name]] if name in hint else []
    if name is None or not isinstance(hint, type):
        return []
    try:
        fields = get_type_hints(hint, include_extras=True)
    except (NameError, TypeError):
        return []
    return [fields[name]] if name in fields else []
