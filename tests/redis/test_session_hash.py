"""The main hash of a session: from fields to the session and back."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from helix_agents.backends.redis.sessions.session_hash import (
    as_fields,
    from_hash,
    numbered_run,
    run_from,
    run_text,
    to_hash,
)
from helix_agents.errors import StoreCorrupt
from helix_agents.types import RunRecord, SessionState

SESSION = SessionState("s", "a", stream_id="s", error="no", tags=("t",), expires_at=9)
COUNTERS = {
    "status": "active",
    "version": "3",
    "created_at": "1",
    "updated_at": "2",
    "incarnation": "i",
    "owner_epoch": "4",
}


def test_a_session_comes_back_with_its_counters() -> None:
    kept, gone = to_hash(SESSION)
    assert gone == ["failure_reason", "interrupt_context"]
    found = from_hash("s", {name: str(value) for name, value in kept.items()} | COUNTERS)
    expected = replace(SESSION, version=3, created_at=1, updated_at=2, incarnation="i", owner_epoch=4)
    assert found == replace(expected, status="active")


def test_a_hash_without_a_field_that_must_be_there_is_corrupt() -> None:
    with pytest.raises(StoreCorrupt, match="'s'"):
        from_hash("s", {"state": "{}"})


def test_a_run_is_stored_behind_its_turn_and_equal_runs_have_equal_texts() -> None:
    run = RunRecord(run_id="r", session_id="s", turn=12, crashes=1)
    assert numbered_run(run).startswith("12:{")
    assert run_from(numbered_run(run)) == run
    assert run_text(run) == run_text(replace(run, turn=1))


def test_both_protocols_give_the_same_fields() -> None:
    assert as_fields([b"a", b"1"]) == as_fields({b"a": b"1"}) == {"a": "1"}
