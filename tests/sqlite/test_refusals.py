"""Messages of SQLite that name the guard which undid a batch."""

from __future__ import annotations

import pytest

from helix_agents.backends.sql_shared.state.refusals import refused_batch


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("CHECK constraint failed: guard_version", "version"),
        (
            "D1_ERROR: UNIQUE constraint failed: p__agents_states.session_id: SQLITE_CONSTRAINT",
            "unique p__agents_states",
        ),
        ("CHECK constraint failed: other", None),
        ("disk I/O error", None),
    ],
)
def test_the_guard_is_found(text: str, reason: str | None) -> None:
    found = refused_batch(text)
    assert (None if found is None else found.reason) == reason
