"""Fields of a checkpoint: everything round-trips except what is stored elsewhere."""

from __future__ import annotations

from msgspec.structs import replace

from helix_agents.stores.state.fields import fields_from_text, fields_to_text, recorded_in
from helix_agents.types import SessionState

FULL = SessionState(
    "s",
    "a",
    status="paused",
    step_count=3,
    wake_at=9,
    tags=("t",),
    custom_state={"k": 1},
    version=7,
    updated_at=8,
    incarnation="i",
    owner_epoch=4,
)


def test_fields_come_back_without_what_is_stored_elsewhere() -> None:
    expected = replace(FULL, custom_state=None, version=0, updated_at=0, incarnation="", owner_epoch=0)
    assert fields_from_text(fields_to_text(FULL)) == expected


def test_the_request_is_recorded_beside_the_fields() -> None:
    state, request = recorded_in(fields_to_text(FULL, {"model": "m"}))
    assert (state.status, request) == ("paused", {"model": "m"})
    assert recorded_in(fields_to_text(FULL))[1] is None


def test_defaults_are_not_written() -> None:
    assert "tags" not in fields_to_text(SessionState("s", "a"))
