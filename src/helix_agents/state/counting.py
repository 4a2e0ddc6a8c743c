"""Counters: the arithmetic of `increment`, the same for drafts and for merging."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Any

from ..errors import NotSerializable
from .frozen import type_name


def is_number(value: Any) -> bool:
    """Return whether a value is a finite JSON number; `True` is not."""
    return value.__class__ is int or (value.__class__ is float and isfinite(value))


def incremented(old: Any, by: Any, pointer: Callable[[], str]) -> int | float:
    """Return `old + by`. Raises `TypeError` unless both are numbers, `NotSerializable` if the sum is not finite."""
    if not is_number(by):
        raise TypeError(f"{pointer()}: increment() takes a finite number, not {by!r}.")
    if not is_number(old):
        raise TypeError(f"{pointer()}: {type_name(old)} is not a number, so it cannot be incremented.")
    try:
        new: int | float = old + by
    except OverflowError:
        raise NotSerializable(pointer(), "a number beyond float") from None
    if not is_number(new):
        raise NotSerializable(pointer(), str(new))
    return new
