"""Choices: enums and literals in annotations, what they allow, and what somebody meant who wrote one differently."""

from __future__ import annotations

import enum
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin


def choices_of(hint: Any) -> list[Any]:
    """The values that an annotation allows, if it is a choice; empty if it is not."""
    origin = get_origin(hint)
    if origin is Literal:
        return list(get_args(hint))
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return [member.value for member in hint]
    if origin in (Annotated, list, tuple, set, frozenset):
        return choices_of(get_args(hint)[0])
    if origin in (Union, UnionType):
        return [choice for part in get_args(hint) for choice in choices_of(part)]
    return []


def meant(value: Any, hint: Any) -> Any:
    """The choice that a value means: in other letters, or by the name of an enum's member. Else the value itself."""
    origin = get_origin(hint)
    if isinstance(value, list) and origin in (list, tuple, set, frozenset):
        return [meant(item, get_args(hint)[0]) for item in value]
    if origin is Annotated:
        return meant(value, get_args(hint)[0])
    if origin in (Union, UnionType):
        parts = get_args(hint)
        if any(part is str for part in parts):
            return value  # which is as good as it is
        return next((found for part in parts if (found := meant(value, part)) != value), value)
    if not isinstance(value, str) or value in (choices := choices_of(hint)):
        return value
    names: dict[str, Any] = {}
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        names = {member.name: member.value for member in hint}
    fits = [choice for choice in choices if str(choice).casefold() == value.casefold()]
    fits += [choice for name, choice in names.items() if name.casefold() == value.casefold() and choice not in fits]
    return fits[0] if len(fits) == 1 else value
