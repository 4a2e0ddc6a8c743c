"""The tables of legal transitions are complete and consistent."""

from __future__ import annotations

import pytest

from helix_agents import InvalidArgument
from helix_agents.lifecycle import (
    RUN_STATUSES,
    RUN_TERMINAL,
    RUN_TRANSITIONS,
    SESSION_STATUSES,
    SESSION_TRANSITIONS,
    STREAM_STATUSES,
    STREAM_TRANSITIONS,
    ensure_status,
    guarded_sources,
    illegal_transition,
    may_become,
)


@pytest.mark.parametrize(
    ("statuses", "table"),
    [
        (SESSION_STATUSES, SESSION_TRANSITIONS),
        (RUN_STATUSES, RUN_TRANSITIONS),
        (STREAM_STATUSES, STREAM_TRANSITIONS),
    ],
)
def test_every_status_has_a_row_and_leads_to_known_ones(
    statuses: frozenset[str], table: dict[str, frozenset[str]]
) -> None:
    assert table.keys() == statuses
    assert all(targets <= statuses for targets in table.values())
    assert all(status in targets for status, targets in table.items()), "staying is always legal"


@pytest.mark.parametrize("ended", sorted(RUN_TERMINAL))
def test_a_run_never_leaves_its_end(ended: str) -> None:
    assert ended not in may_become("run", "running")
    assert str(illegal_transition("run", "r1", ended, "running")) == (
        f"Run 'r1' cannot go from '{ended}' to 'running': a run that is {ended} stays so."
    )


def test_a_finished_session_may_go_on_with_the_next_turn() -> None:
    assert may_become("session", "active") == tuple(sorted(SESSION_STATUSES))
    assert guarded_sources("active") == (), "nothing to check"


def test_the_error_says_what_the_session_can_become() -> None:
    error = illegal_transition("session", "a1", "failed", "paused")
    assert str(error) == "Session 'a1' cannot go from 'failed' to 'paused': it can become active."


def test_an_unknown_status_is_named_with_the_known_ones() -> None:
    with pytest.raises(InvalidArgument, match=r"Unknown session status 'asleep'\. Known statuses: active"):
        ensure_status("session", "asleep")


def test_may_become_is_the_table_read_backwards() -> None:
    assert may_become("run", "running") == (
        "running",
        "suspended_awaiting_children",
        "suspended_client_tool",
        "suspended_step_partial",
    )
