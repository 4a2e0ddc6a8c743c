"""What a listing asks of its `offset`, and how rows become a `Page`."""

from __future__ import annotations

from typing import TypeVar

from ..errors import InvalidArgument
from ..types import Page
from .state.validate import ensure_count

T = TypeVar("T")

MAX_OFFSET = 2**53 - 1
"""What every database can carry as a parameter."""


def ensure_offset(offset: object) -> int:
    """The offset itself, or `InvalidArgument`."""
    found = ensure_count(offset, "offset")
    if found > MAX_OFFSET:
        raise InvalidArgument(f"offset is at most {MAX_OFFSET}, not {found}.")
    return found


def page_of(rows: list[T], total: int | None, *, limit: int, offset: int) -> Page[T]:
    """The page of rows that were read with one row more than `limit`, which only tells that there is more."""
    return Page(items=rows[:limit], total=total, offset=offset, limit=limit, has_more=len(rows) > limit)
