"""Pages: which limits are valid, and when there is another page."""

from __future__ import annotations

from typing import Any

import pytest

from helix_agents.errors import InvalidArgument
from helix_agents.stores.paging import MAX_PAGE, ensure_limit, ensure_offset, page_of


@pytest.mark.parametrize("limit", [0, -1, MAX_PAGE + 1, True, 1.0, "1", None])
def test_an_invalid_limit_is_rejected(limit: Any) -> None:
    with pytest.raises(InvalidArgument, match="limit must be an integer from 1 to 200"):
        ensure_limit(limit)


@pytest.mark.parametrize("offset", [-1, True, "0", None])
def test_an_invalid_offset_is_rejected(offset: Any) -> None:
    with pytest.raises(InvalidArgument, match="offset"):
        ensure_offset(offset)


def test_without_a_maximum_any_positive_limit_is_valid() -> None:
    ensure_limit(1_000_000, None)
    with pytest.raises(InvalidArgument, match="of at least 1"):
        ensure_limit(0, None)


@pytest.mark.parametrize(
    ("rows", "items", "has_more"), [([], [], False), ([1, 2], [1, 2], False), ([1, 2, 3], [1, 2], True)]
)
def test_one_row_more_than_the_limit_means_another_page(rows: list[int], items: list[int], has_more: bool) -> None:
    page = page_of(rows, 7, limit=2, offset=4)
    assert (page.items, page.has_more, page.total, page.offset, page.limit) == (items, has_more, 7, 4, 2)
