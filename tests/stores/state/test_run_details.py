"""Details of a run: as one string and back, without defaults."""

from __future__ import annotations

from helix_agents.stores.state.run_details import DETAILS, details_from_text, details_to_text
from helix_agents.types import RunRecord

PLAIN = RunRecord(run_id="r", session_id="s", turn=1, status="running")


def test_details_come_back_by_name() -> None:
    run = RunRecord(
        run_id="r",
        session_id="s",
        turn=1,
        status="running",
        attempt=2,
        crashes=3,
        follow_up=[{"role": "user", "content": "Hi"}],
    )
    details = details_from_text(details_to_text(run))
    assert details == {name: getattr(run, name) for name in DETAILS}


def test_a_run_without_details_takes_no_room() -> None:
    assert details_to_text(PLAIN) == "{}"
    assert details_from_text("{}") == {}
