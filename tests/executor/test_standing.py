"""The table of standings: complete, consistent, and the same for all callers."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path
from typing import Any, get_args

import pytest

from helix_agents.errors import AlreadyRunning, NotResumable, RunLost, SessionNotFound, StaleTicket
from helix_agents.executor.session.standing import (
    CLAIMS,
    TABLE,
    UNOWNED,
    Action,
    Intent,
    Seen,
    Standing,
    decide,
    described,
    refusal,
    rows,
    standing,
)
from helix_agents.types import InterruptFlag, RunRecord, RunStatus, SessionState, SessionStatus
from tests.executor.standing_table import table

NOW = 1_000_000
LEASE = 10_000
S, A, I = Standing, Action, Intent  # noqa: E741  # short, as in the table


def session(status: SessionStatus = "active", **fields: Any) -> SessionState:
    return SessionState("s", "main", status=status, version=7, step_count=3, **fields)


def run(lease_until: int | None, status: RunStatus = "running") -> RunRecord:
    return RunRecord("run-1", "s", 1, status=status, lease_until=lease_until)


LIVE, PAST, FREE, CLOSED = run(NOW + 1), run(NOW), run(UNOWNED), run(NOW + 1, "completed")


# -- how a session stands


@pytest.mark.parametrize(
    ("seen", "latest", "facts", "expected"),
    [
        (None, None, {}, S.MISSING),
        (session(), None, {"has_messages": False}, S.FRESH),
        (session("interrupted"), None, {"has_messages": False}, S.FRESH),
        (session("paused"), CLOSED, {"has_messages": False}, S.FRESH),
        (session(), None, {}, S.ORPHANED),
        (session(), CLOSED, {}, S.ORPHANED),
        (session(), LIVE, {}, S.RUNNING),
        (session(), FREE, {}, S.RELEASED),
        (session(), PAST, {}, S.LEASE_EXPIRED),
        (session(), run(None), {}, S.LEASE_EXPIRED),
        (session("completed"), LIVE, {}, S.CLOSING),
        (session("suspended_client_tool"), LIVE, {"open_questions": 1}, S.CLOSING),
        (session("interrupted"), LIVE, {}, S.CLOSING),
        (session("suspended_client_tool"), PAST, {}, S.STOPPED_UNCLOSED),
        (session("interrupted"), FREE, {}, S.STOPPED_UNCLOSED),
        (session("completed"), PAST, {}, S.ENDED_UNCLOSED),
        (session("failed"), FREE, {}, S.ENDED_UNCLOSED),
        (session("suspended_client_tool"), CLOSED, {"open_questions": 1}, S.WAITING),
        (session("suspended_awaiting_children"), CLOSED, {"open_questions": 2}, S.WAITING),
        (session("suspended_step_partial"), CLOSED, {}, S.READY),
        (session("interrupted"), CLOSED, {}, S.STOPPED),
        (session("paused"), None, {}, S.STOPPED),
        (session("completed"), CLOSED, {}, S.COMPLETED),
        (session("completed"), None, {"has_messages": False}, S.COMPLETED),
        (session("failed"), CLOSED, {}, S.FAILED),
    ],
)
def test_standing(
    seen: SessionState | None, latest: RunRecord | None, facts: dict[str, Any], expected: Standing
) -> None:
    assert standing(seen, latest, NOW, **facts) is expected


def every_standing() -> list[tuple[SessionState, RunRecord | None, dict[str, Any], Standing]]:
    """Return every combination of status, marker, run, lease and facts."""
    runs = [None, *(run(lease, status) for lease in (None, 0, NOW, NOW + 1) for status in get_args(RunStatus))]
    flags = itertools.product((0, 2), (True, False))
    facts: list[dict[str, Any]] = [{"open_questions": asked, "has_messages": said} for asked, said in flags]
    return [
        (state, latest, known, standing(state, latest, NOW, **known))
        for status in get_args(SessionStatus)
        for state in (session(status),)
        for latest in runs
        for known in facts
    ]


def test_every_standing_occurs_and_no_other() -> None:
    assert {found for *_, found in every_standing()} == set(S) - {S.MISSING}


def test_an_owner_is_alive_exactly_if_a_lease_is() -> None:
    for _, latest, _, found in every_standing():
        alive = latest is not None and latest.status == "running" and (latest.lease_until or 0) > NOW
        assert alive == (found in (S.RUNNING, S.CLOSING))


def test_a_session_that_ended_is_never_taken_for_another() -> None:
    ended = {S.COMPLETED, S.FAILED, S.ENDED_UNCLOSED, S.CLOSING}
    for state, _, _, found in every_standing():
        assert (found in ended) or state.status not in ("completed", "failed")


# -- the table


def test_every_pair_has_exactly_one_row() -> None:
    count = Counter(pair for pair, _ in rows())
    assert set(count) == set(itertools.product(S, I))
    assert set(count.values()) == {1}


@pytest.mark.parametrize(("pair", "decision"), TABLE.items(), ids=lambda value: getattr(value, "name", None))
def test_a_refusal_has_an_error_and_nothing_else_has(pair: tuple[Standing, Intent], decision: Any) -> None:
    assert (decision.action is A.REFUSE) == (decision.error is not None)
    if decision.error is not None:
        error = refusal(Seen(pair[0], "s", "run-1", "active", questions=("ask (c1)",)), decision)
        assert type(error) is decision.error
        assert "{" not in str(error)


OWNED = (S.RUNNING, S.CLOSING)


def test_a_session_with_an_owner_cannot_be_claimed() -> None:
    """Except the owner of the parent session, and a process that fails a session that must end."""
    claims = {(at, intent) for (at, intent), each in TABLE.items() if at in OWNED and each.action in CLAIMS}
    assert claims == {(at, intent) for at in OWNED for intent in (I.CALL_CHILD, I.CALL_CHILD_ANEW, I.FAIL)}


def test_only_what_is_missing_is_created() -> None:
    assert {at for (at, _), each in TABLE.items() if each.action is A.CREATE} == {S.MISSING}


def test_only_what_is_released_is_continued_in_the_same_run() -> None:
    assert {at for (at, _), each in TABLE.items() if each.action is A.CONTINUE} == {S.RELEASED}


def test_a_turn_begins_only_where_none_is_unfinished() -> None:
    begun = {at for (at, _), each in TABLE.items() if each.action is A.START}
    assert begun == {S.FRESH, S.COMPLETED, S.FAILED}


def test_execute_and_submit_decide_alike() -> None:
    for at in S:
        assert TABLE[at, I.START] == TABLE[at, I.SUBMIT]


def test_enqueue_differs_from_execute_only_for_a_session_with_an_owner() -> None:
    differ = {at for at in S if TABLE[at, I.START] != TABLE[at, I.ENQUEUE]}
    assert differ == {S.RUNNING, S.RELEASED}
    assert {TABLE[at, I.ENQUEUE].action for at in differ} == {A.ENQUEUE}


def test_a_scheduler_never_raises_and_never_disturbs_a_person() -> None:
    for at in S:
        assert TABLE[at, I.RECOVER].error is None
    for at in (S.WAITING, S.STOPPED, S.ORPHANED, S.FRESH):
        assert TABLE[at, I.RECOVER].action is A.LEAVE


def test_whatever_a_dead_process_left_open_is_found_by_recovery() -> None:
    left = {S.RELEASED, S.LEASE_EXPIRED, S.READY, S.STOPPED_UNCLOSED, S.ENDED_UNCLOSED}
    assert {at for at in S if TABLE[at, I.RECOVER].action is not A.LEAVE} == left


def test_unclosed_sessions_are_closed_before_anything_else() -> None:
    spared = {I.ANSWER, I.DELETE, I.AWAIT_RESULT, I.FAIL}
    for intent in set(I) - spared:
        assert TABLE[S.STOPPED_UNCLOSED, intent].action in (A.CLOSE, A.CLOSE_FIRST)
        assert TABLE[S.ENDED_UNCLOSED, intent].action in (A.CLOSE, A.CLOSE_FIRST, A.RETURN)


def test_a_caller_that_waits_for_a_result_waits_for_an_owner() -> None:
    for at in S:
        decision = TABLE[at, I.AWAIT_RESULT]
        if decision.action is A.WAIT:
            assert at in OWNED or TABLE[at, I.RECOVER].action is not A.LEAVE


def test_stopping_never_leaves_a_flag_unread() -> None:
    flagged = {at for (at, intent), each in TABLE.items() if each.action is A.FLAG}
    assert flagged == {S.RUNNING}


@pytest.mark.parametrize(
    ("at", "intent", "error"),
    [
        (S.MISSING, I.RESUME, SessionNotFound),
        (S.RUNNING, I.START, AlreadyRunning),
        (S.RELEASED, I.RESUME_WITH_MESSAGE, AlreadyRunning),
        (S.RUNNING, I.RESTORE, AlreadyRunning),
        (S.FRESH, I.RESUME, NotResumable),
        (S.WAITING, I.RESUME, NotResumable),
        (S.COMPLETED, I.RESUME_WITH_MESSAGE, NotResumable),
        (S.COMPLETED, I.RETRY, NotResumable),
        (S.FRESH, I.STEP, StaleTicket),
        (S.LEASE_EXPIRED, I.AWAIT_RESULT, RunLost),
    ],
)
def test_refusals(at: Standing, intent: Intent, error: type[Exception]) -> None:
    assert TABLE[at, intent].error is error


def test_the_design_page_shows_the_table() -> None:
    page = (Path(__file__).parents[2] / "docs" / "design.md").read_text()
    shown = page.partition("<!-- standing -->\n")[2].partition("\n<!-- /standing -->")[0]
    assert shown == table(), "print it anew: python -m tests.executor.standing_table"


# -- the rules before the table


def test_a_run_of_an_engine_is_continued_by_that_engine_only() -> None:
    expired = Seen(S.LEASE_EXPIRED, engine="temporal")
    assert decide(expired, I.RECOVER).action is A.LEAVE
    assert decide(expired, I.RECOVER, engine="dbos").action is A.LEAVE
    assert decide(expired, I.RECOVER, engine="temporal").action is A.TAKE_OVER
    assert decide(Seen(S.LEASE_EXPIRED), I.RECOVER, engine="temporal").action is A.LEAVE
    assert decide(Seen(S.ENDED_UNCLOSED, engine="temporal"), I.RECOVER).action is A.CLOSE


def test_until_it_stops_a_run_belongs_to_its_engine() -> None:
    for at in (S.RELEASED, S.LEASE_EXPIRED, S.READY):
        seen = Seen(at, "s", engine="temporal")
        decision = decide(seen, I.RESUME)
        assert decision.error is NotResumable
        assert "temporal" in str(refusal(seen, decision))
        assert decide(seen, I.RESUME, engine="temporal").action in CLAIMS
    for at in (S.RELEASED, S.LEASE_EXPIRED):
        assert decide(Seen(at, engine="temporal"), I.START).error is AlreadyRunning
    assert decide(Seen(S.STOPPED, engine="temporal"), I.RESUME).action is A.TAKE_OVER
    assert decide(Seen(S.READY, engine="temporal"), I.START).action is A.TAKE_OVER


def test_a_run_that_was_asked_to_stop_and_died_is_stopped_first() -> None:
    flag = InterruptFlag("enough", "run-1", NOW)
    for at, intent in itertools.product((S.RELEASED, S.LEASE_EXPIRED), (I.RESUME, I.RECOVER, I.STEP)):
        assert decide(Seen(at, stop=flag), intent).action is A.CLOSE_FIRST
    assert decide(Seen(S.RUNNING, stop=flag), I.START).error is AlreadyRunning


def test_whoever_waits_for_a_queued_run_is_not_told_of_a_crash() -> None:
    assert decide(Seen(S.LEASE_EXPIRED, queued=True), I.AWAIT_RESULT).action is A.WAIT
    assert decide(Seen(S.LEASE_EXPIRED), I.AWAIT_RESULT).error is RunLost


def test_words() -> None:
    seen = Seen(S.WAITING, "s", "run-1", "suspended_client_tool", questions=("ask (c1)", "ask (c2)"))
    assert described(seen, decide(seen, I.RESUME)) == "it waits for an answer to ask (c1), ask (c2)"
    assert described(seen, decide(seen, I.RESUME_WITH_MESSAGE)) == "a message frees it"
