"""Usage limits: which ones are valid, and what tokens cost."""

from __future__ import annotations

from typing import Any

import pytest

from helix_agents import InvalidArgument, UsageLimits
from helix_agents.limits import Price


@pytest.mark.parametrize("bad", [{"steps": 0}, {"tokens": -1}, {"tool_calls": "3"}, {"cost": 0.0}, {"per": "day"}])
def test_limits_that_make_no_sense_are_refused_at_once(bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        UsageLimits(**bad)


def test_a_price_counts_what_a_cache_read_and_wrote() -> None:
    price = Price(prompt=10.0, completion=50.0, cached=1.0, cache_written=12.5)
    assert price.of(1_000_000, 100_000, 600_000, 200_000) == 2.0 + 0.6 + 2.5 + 5.0
    assert Price(prompt=10.0, completion=0.0).of(1_000_000, 0, 600_000, 200_000) == 10.0
