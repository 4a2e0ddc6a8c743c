"""Ids: which strings are valid, and what checkpoint and step ids contain."""

from __future__ import annotations

from typing import Any

import pytest

from helix_agents.errors import InvalidArgument
from helix_agents.ids import (
    MAX_ID_LENGTH,
    checkpoint_id,
    checkpoint_time,
    ensure_id,
    ensure_own_id,
    step_id,
)


@pytest.mark.parametrize("value", ["a", "a b/c:d", "ünïcödé", "x" * MAX_ID_LENGTH])
def test_a_valid_id_is_returned_unchanged(value: str) -> None:
    assert ensure_id(value, "session_id") == value


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("", "non-empty"),
        (None, "non-empty"),
        (7, "non-empty"),
        ("x" * (MAX_ID_LENGTH + 1), "at most 256"),
        ("a\nb", "must not contain"),
        ("a\x7fb", "must not contain"),
        ("{a", "must not contain"),
        ("a}", "must not contain"),
        ("\ud800", "must not contain"),
    ],
)
def test_an_invalid_id_is_rejected_by_name(value: Any, reason: str) -> None:
    with pytest.raises(InvalidArgument, match=f"^session_id .*{reason}"):
        ensure_id(value, "session_id")


def test_ids_of_the_library_are_reserved() -> None:
    assert ensure_id("helix/x", "id") == "helix/x"
    with pytest.raises(InvalidArgument, match="reserved"):
        ensure_own_id("helix/x", "id")


@pytest.mark.parametrize("session_id", ["s", "a-s1-t2-x", "cpv1-s"])
def test_the_time_of_a_checkpoint_is_read_from_its_id(session_id: str) -> None:
    made = checkpoint_id(session_id, 3, 1_700_000_000_123, "abcdefgh")
    assert made == f"cpv1-{session_id}-s3-t1700000000123-abcdef"
    assert checkpoint_time(session_id, made) == 1_700_000_000_123
    assert checkpoint_time("other", made) is None
    assert checkpoint_time(session_id, "cpv1-imported") is None


def test_a_step_is_named_after_its_run() -> None:
    assert step_id("run-1", 2) == "run-1-2"
