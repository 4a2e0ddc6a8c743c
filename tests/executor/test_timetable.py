"""Timetables: the next due time, by interval, at a fixed time and by cron in a time zone."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from helix_agents.errors import InvalidArgument
from helix_agents.executor.later.timetable import moment_of, timetable


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


@pytest.mark.parametrize(("moment", "due"), [(0, 2000), (1000, 2000), (1999, 2000), (2000, 3000), (9500, 10_000)])
def test_an_interval_counts_from_its_start(moment: int, due: int) -> None:
    assert timetable(1000, every_seconds=1).after(moment) == due


def test_a_moment_is_due_once() -> None:
    once = timetable(0, at=500)
    assert (once.after(499), once.after(500)) == (500, None)


@pytest.mark.parametrize(
    ("now", "due"),
    [
        ("2026-01-05T12:00:00+00:00", "2026-01-06T02:30:00+01:00"),
        ("2026-03-28T12:00:00+00:00", "2026-03-29T03:00:00+02:00"),  # 02:30 is skipped
        ("2026-10-24T12:00:00+00:00", "2026-10-25T02:30:00+02:00"),  # 02:30 occurs twice
        ("2026-10-25T00:30:00+00:00", "2026-10-26T02:30:00+01:00"),
        ("2026-10-25T01:10:00+00:00", "2026-10-26T02:30:00+01:00"),  # the second 02:10
    ],
)
def test_cron_follows_the_clocks_of_its_zone(now: str, due: str) -> None:
    assert timetable(0, cron="30 2 * * *", timezone="Europe/Berlin").after(ms(now)) == ms(due)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "exactly one"),
        ({"at": 1, "cron": "* * * * *"}, "exactly one"),
        ({"every_seconds": 0}, "every_seconds"),
        ({"every_seconds": True}, "every_seconds"),
        ({"at": "noon"}, "epoch milliseconds"),
        ({"cron": 5}, "must be a string"),
        ({"cron": "* * * *"}, "five fields"),
        ({"cron": "61 * * * *"}, "Invalid cron"),
        ({"cron": "0 0 31 2 *"}, "never fires|Invalid cron"),
        ({"at": 1, "timezone": "Mars/Base"}, "Unknown time zone"),
        ({"at": datetime(2026, 3, 29, 2, 30), "timezone": "Europe/Berlin"}, "does not occur"),
    ],
)
def test_a_rule_that_makes_no_sense_is_rejected(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidArgument, match=reason):
        timetable(0, **options)


def test_a_datetime_needs_a_zone() -> None:
    assert moment_of(datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), "x") == 1000
    with pytest.raises(InvalidArgument, match="time zone"):
        moment_of(datetime(2026, 1, 1), "x")
