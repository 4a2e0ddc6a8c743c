"""Prefixes in listings: the range of ids that start with one."""

from __future__ import annotations

import pytest

from helix_agents.backends.sql_shared.state.listing import CREATED_AT, after_prefix, merged_page


@pytest.mark.parametrize("prefix", ["a", "ab", "a\ud7ff", "z~", "\ue000"])
def test_the_range_of_a_prefix_holds_exactly_the_ids_that_start_with_it(prefix: str) -> None:
    end = after_prefix(prefix)
    assert end is not None
    assert prefix <= prefix + "\U0010ffff" < end
    assert not end.startswith(prefix)


def test_nothing_follows_the_last_character() -> None:
    assert after_prefix("\U0010ffff") is None


def test_pages_by_status_are_merged_newest_first() -> None:
    old, middle, new = (("s", *[0] * (CREATED_AT - 1), created) for created in (1, 2, 3))
    assert merged_page([[new, old], [middle]], 2, 1) == [middle, old]
