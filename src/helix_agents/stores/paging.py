"""What a listing asks of its `offset`, and how rows become a `Page`."""

from __future__ import annotations

from typing import TypeVar

from ..codec import ensure_count
from ..types import Page

T = TypeVar("T")


def ensure_offset(offset: object) -> int:
    """The offset itself, or `InvalidArgument`."""
    return ensure_count(offset, "offset")


def page_of(rows: list[T], total: int | None, *, limit: int, offset: int) -> Page[T]:
    """The page of rows that were read with one row more than `limit`, which only shows that there is more."""
    return Page(items=rows[:limit], total=total, offset=offset, limit=limit, has_more=len(rows) > limit)
