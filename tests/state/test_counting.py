"""Counters: what counts as a number, and what an increment returns."""

from __future__ import annotations

import math
from typing import Any

import pytest

from helix_agents.errors import NotSerializable
from helix_agents.state.counting import incremented, is_number


@pytest.mark.parametrize(
    ("value", "expected"),
    [(1, True), (1.5, True), (True, False), ("1", False), (None, False), (math.inf, False), (math.nan, False)],
)
def test_only_finite_numbers_count(value: Any, expected: bool) -> None:
    assert is_number(value) is expected


@pytest.mark.parametrize(("old", "by", "new"), [(1, 2, 3), (1, -1, 0), (1, 0.5, 1.5), (2**70, 1, 2**70 + 1)])
def test_an_increment_adds(old: Any, by: Any, new: Any) -> None:
    assert incremented(old, by, lambda: "/n") == new


@pytest.mark.parametrize(
    ("old", "by", "error", "reason"),
    [
        ("a", 1, TypeError, "/n: str is not a number"),
        ([], 1, TypeError, "/n: list is not a number"),
        (1, True, TypeError, "takes a finite number"),
        (1, math.inf, TypeError, "takes a finite number"),
        (1e308, 1e308, NotSerializable, "/n: inf"),
        (10**400, 0.5, NotSerializable, "beyond float"),
    ],
)
def test_a_sum_that_is_not_a_json_number_is_rejected(old: Any, by: Any, error: Any, reason: str) -> None:
    with pytest.raises(error, match=reason):
        incremented(old, by, lambda: "/n")
