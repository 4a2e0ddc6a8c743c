"""Retry: delays double up to a maximum, and stop after the last attempt or the time limit."""

from __future__ import annotations

import pytest

from helix_agents.retry import CONFLICT, OUTAGE, RECONNECT, Retry


@pytest.mark.parametrize(
    ("retry", "delays"),
    [
        (Retry(tries=1), []),
        (Retry(tries=3), [0, 0]),
        (Retry(tries=5, first_seconds=1, longest_seconds=3), [1, 2, 3, 3]),
        (Retry(first_seconds=1, longest_seconds=2, within_seconds=4), [1, 2, 2]),
        (Retry(first_seconds=1, longest_seconds=2, within_seconds=0), []),
    ],
)
def test_delays(retry: Retry, delays: list[float]) -> None:
    assert list(retry.delays()) == delays


def test_tries_are_counted_from_zero() -> None:
    assert list(Retry(tries=3).attempts()) == [0, 1, 2]


def test_a_delay_stays_finite_however_often_it_is_tried() -> None:
    assert RECONNECT.delay_seconds(100_000) == RECONNECT.longest_seconds


def test_an_outage_of_five_seconds_is_outlasted() -> None:
    assert sum(OUTAGE.delays()) >= 5


def test_a_conflict_is_tried_again_without_waiting() -> None:
    assert set(CONFLICT.delays()) == {0}
