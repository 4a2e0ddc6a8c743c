"""Pages: check `limit` and `offset` of a listing, and turn rows into a `Page`."""

from __future__ import annotations

from typing import TypeVar

from ..codec import MAX_COUNT, ensure_count
from ..errors import InvalidArgument, shown
from ..types import Page

T = TypeVar("T")

MAX_PAGE = 200


def ensure_offset(offset: object) -> int:
    """Return the offset. Raises `InvalidArgument`."""
    return ensure_count(offset, "offset")


def ensure_limit(limit: object, most: int | None = MAX_PAGE) -> None:
    """Check a page size. Raises `InvalidArgument`."""
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= (most or MAX_COUNT):
        span = f"from 1 to {most}" if most is not None else "of at least 1"
        raise InvalidArgument(f"limit must be an integer {span}, not {shown(limit)}.")


def page_of(rows: list[T], total: int | None, *, limit: int, offset: int) -> Page[T]:
    """Return the page of rows that were read with `limit + 1`; an extra row means that there is another page."""
    return Page(items=rows[:limit], total=total, offset=offset, limit=limit, has_more=len(rows) > limit)
