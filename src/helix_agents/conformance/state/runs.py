"""Runs: turns, status, lease, and claims that start one run and end another."""

from __future__ import annotations

from typing import Any

import msgspec

from ...errors import HelixError, IllegalTransition, InvalidArgument, LeaseConflict, RunNotFound, VersionConflict
from ...stores.state.commit import RunChange
from ...stores.state.contract import StateStore
from ...types import ParentCall, RunRecord, RunStatus
from ..expect import expect, expect_same, raises
from ..harness import STATE_STORE, Harness
from ..tools.dump import dump
from ..tools.sample import meta, plain_state, user

check = STATE_STORE.check

SUSPENDED: tuple[RunStatus, ...] = (
    "suspended_client_tool",
    "suspended_awaiting_children",
    "suspended_step_partial",
)
ENDED: tuple[RunStatus, ...] = ("completed", "failed", "interrupted")


@check("contract", "runs get turns in order, per session, and the current one is the last")
async def runs_get_turns(harness: Harness) -> None:
    store = await harness.open()
    for session_id in ("a", "b"):
        await store.create_session(session_id, agent_type="agent")
    first = await store.create_run("a", "run-1", start_sequence=7, metadata={"m": [1.0]}, lease_until=99)
    expected = RunRecord(
        "run-1", "a", 1, start_sequence=7, metadata={"m": [1.0]}, lease_until=99, started_at=first.started_at
    )
    expect_same(first, expected, "the returned run")
    expect(first.started_at > 0, "a run has no start time")
    second = await store.create_run("a", "run-2")
    other = await store.create_run("b", "run-3")
    expect_same((second.turn, other.turn), (2, 1), "the turns")
    again = await harness.reopen()
    expect_same(await again.list_runs("a"), [first, second], "the runs")
    expect_same(await again.get_current_run("a"), second, "the current run")
    expect_same(await again.get_current_run("b"), other, "the current run of the other session")


DETAILS: dict[str, Any] = {
    "attempt": 3,
    "first_step": 7,
    "first_message": 11,
    "claimed_step": 8,
    "resumes": "run-0 \ud800",
    "crashes": 2,
    "engine": "an engine",
    "worker": "host:1 😀",
    "queued": True,
    "limits": {"steps": 3, "cost": 1.0, "nested": {"a": [None]}},
    "follow_up": [{"role": "user", "content": "\x00\ud800"}, {"role": "user", "content": [1.0]}],
    "open_step": 9,
    "not_before": 1_900_000_000_123,
    "idempotency_key": "key 😀",
    "request_digest": "digest",
    "parent_call": ParentCall("call-1", {"question": ["?", 1.0]}, "run-9"),
}
"""Every field of a run that only the executor reads, set to a value other than its default."""


@check("contract", "every field of a run round-trips, however the run was started, and a claim can change it")
async def run_details_round_trip(harness: Harness) -> None:
    store = await harness.open()
    started = RunRecord(
        "run-1", "a", 0, lease_until=5, start_sequence=4, metadata={"engine": "the user's own"}, **DETAILS
    )
    await store.create_session("a", agent_type="agent", run=started)
    await store.create_session("b", agent_type="agent")
    second = await store.create_run("b", "run-2", **DETAILS)
    third = RunRecord("run-3", "b", 0, **DETAILS)
    await store.save_state_and_promote_staging("b", plain_state("b"), [], meta(), run=third)
    blank = RunRecord("run-4", "b", 0, lease_until=5)
    await store.save_state("b", plain_state("b"), run=blank)
    store = await harness.reopen()
    runs = [*await store.list_runs("a"), *await store.list_runs("b")]
    fixed = {"turn": 0, "started_at": 0, "session_id": ""}
    got = [msgspec.structs.replace(run, **fixed) for run in runs]
    expected = [msgspec.structs.replace(run, **fixed) for run in (started, second, third, blank)]
    expect_same(got, expected, "the runs")
    wanted = msgspec.structs.replace(runs[3], **DETAILS)
    await store.save_state("b", plain_state("b"), change_run=RunChange(runs[3], wanted))
    expect_same(await store.get_current_run("b"), wanted, "a run whose details have changed")
    await store.update_run_status("run-4", "running", lease_until=9, metadata={"m": 1})
    wanted = msgspec.structs.replace(wanted, lease_until=9, metadata={"m": 1})
    expect_same(await store.get_current_run("b"), wanted, "a run with a new lease")
    await store.save_state("b", plain_state("b"), change_run=RunChange(wanted, blank_of(wanted)))
    expect_same(await (await harness.reopen()).get_current_run("b"), blank_of(wanted), "a run without details")


def blank_of(run: RunRecord) -> RunRecord:
    """Return the same run with the defaults of all details."""
    bare = RunRecord("", "", 0)
    return msgspec.structs.replace(run, **{name: getattr(bare, name) for name in DETAILS})


@check("contract", "a run that continues another one stays in its turn")
async def a_turn_may_have_several_runs(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="agent", run=RunRecord("run-1", "a", 0))
    given = (("run-2", 0), ("run-3", 2), ("run-4", 2), ("run-5", 0), ("run-6", 1), ("run-7", 0))
    for run_id, turn in given:
        await store.save_state("a", plain_state("a"), run=RunRecord(run_id, "a", turn))
    await store.create_run("a", "run-8", turn=2)
    store = await harness.reopen()
    turns = [(run.run_id, run.turn) for run in await store.list_runs("a")]
    numbers = (1, 2, 2, 2, 3, 1, 2, 2)
    expect_same(turns, [(f"run-{place}", turn) for place, turn in enumerate(numbers, start=1)], "the runs and turns")
    last = await store.get_current_run("a")
    expect_same(last.run_id if last else None, "run-8", "the current run")


@check("input", "invalid fields of runs are rejected")
async def odd_details_of_runs(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="agent", run=RunRecord("run-1", "a", 0, lease_until=5))
    (seen,) = await store.list_runs("a")
    before = await dump(store)
    odd: tuple[dict[str, Any], ...] = (
        {"attempt": -1},
        {"attempt": "1"},
        {"first_step": 1.5},
        {"resumes": 7},
        {"queued": "yes"},
        {"limits": {"x": object()}},
        {"follow_up": "text"},
        {"follow_up": [{"role": {1}}]},
        {"idempotency_key": b"key"},
        {"parent_call": "call"},
        {"parent_call": ParentCall("", None)},
        {"parent_call": ParentCall("call", object())},
    )
    for fields in odd:
        with raises(InvalidArgument, f"create_run with {fields}"):
            await store.create_run("a", "run-2", **fields)
        with raises(InvalidArgument, f"a commit that starts a run with {fields}"):
            await store.save_state("a", plain_state("a"), run=RunRecord("run-2", "a", 0, **fields))
        with raises(InvalidArgument, f"a claim that changes {fields}"):
            wanted = msgspec.structs.replace(seen, **fields)
            await store.save_state("a", plain_state("a"), change_run=RunChange(seen, wanted))
    with raises(InvalidArgument, "an unknown field"):
        await store.create_run("a", "run-2", colour="red")
    with raises(InvalidArgument, "a negative turn"):
        await store.save_state("a", plain_state("a"), run=RunRecord("run-2", "a", -1))
    expect_same(await dump(store), before, "all data")


@check("contract", "a run id is taken once, across all sessions")
async def run_id_is_taken_once(harness: Harness) -> None:
    store = await harness.open()
    for session_id in ("a", "b"):
        await store.create_session(session_id, agent_type="agent")
    await store.create_run("a", "run-1")
    before = await dump(store)
    for session_id in ("a", "b"):
        with raises(HelixError, "a taken run id"):
            await store.create_run(session_id, "run-1")
    expect_same(await dump(store), before, "all data")


@check("contract", "updating a run changes the given fields and leaves the rest")
async def run_is_changed_by_what_is_given(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="agent")
    await store.create_run("a", "run-1", metadata={"m": 1}, lease_until=5)
    await store.update_run_status("run-1", "running", step_count=3, lease_until=50)
    run = await store.get_current_run("a")
    assert run is not None
    expect_same((run.status, run.step_count, run.lease_until, run.metadata), ("running", 3, 50, {"m": 1}), "the run")
    await store.update_run_status("run-1", "failed", error="e", output={"o": 1}, completed_at=77)
    run = await store.get_current_run("a")
    assert run is not None
    got = (run.status, run.step_count, run.error, run.output, run.completed_at)
    expect_same(got, ("failed", 3, "e", {"o": 1}, 77), "the run at its end")


@check("contract", "a run that has ended stays ended; a suspended one may continue or end")
async def ended_runs_stay_ended(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="agent")
    for end in ENDED:
        name = f"run-{end}"
        await store.create_run("a", name)
        for middle in SUSPENDED:
            await store.update_run_status(name, middle)
            await store.update_run_status(name, "running")
        await store.update_run_status(name, end)
        await store.update_run_status(name, end)
        before = await dump(store)
        for other in {"running", *SUSPENDED, *ENDED} - {end}:
            with raises(IllegalTransition, f"a run from {end} to {other}"):
                await store.update_run_status(name, other)
        expect_same(await dump(store), before, "all data")


@check("contract", "an unknown run cannot be changed")
async def unknown_run_is_refused(harness: Harness) -> None:
    store = await harness.open()
    with raises(RunNotFound, "a change of an unknown run"):
        await store.update_run_status("nothing", "completed")


@check("contract", "an update with an expected status leaves a run with any other status alone")
async def run_is_changed_from_the_expected_status(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="agent")
    await store.create_run("a", "run-1")
    await store.update_run_status("run-1", "interrupted", error="first", expected_status="running")
    before = await dump(store)
    with raises(IllegalTransition, "a second change from the same status"):
        await store.update_run_status("run-1", "interrupted", error="second", expected_status="running")
    expect_same(await dump(store), before, "all data")
    with raises(HelixError, "an unknown status"):
        await store.update_run_status("run-1", "interrupted", expected_status="gone")  # type: ignore[arg-type]


async def _claim(store: StateStore, old: RunRecord, run_id: str, *, by_commit: bool, **options: Any) -> None:
    """End a run and start another in one write."""
    ended = msgspec.structs.replace(old, status="interrupted", error="replaced", output={"o": 1.0})
    options |= {"run": RunRecord(run_id, "a", 0, lease_until=90), "change_run": RunChange(old, ended)}
    if by_commit:
        await store.save_state_and_promote_staging("a", plain_state("a"), [user("next")], meta(), **options)
    else:
        await store.save_state("a", plain_state("a"), **options)


@check("S2", "a commit starts a run and ends another one together, or does neither")
async def a_run_replaces_another(harness: Harness) -> None:
    store = await harness.open()
    state = await store.create_session("a", agent_type="agent", run=RunRecord("run-1", "a", 0, lease_until=5))
    for number, by_commit in enumerate((False, True), start=1):
        old = (await store.list_runs("a"))[-1]
        before = await dump(store)
        with raises(VersionConflict, "a claim at an old version"):
            await _claim(store, old, "late", by_commit=by_commit, expected_version=state.version + number)
        expect_same(await dump(store), before, "all data after a conflict")
        await _claim(store, old, f"run-{number + 1}", by_commit=by_commit, expected_version=number)
        ended, new = (await store.list_runs("a"))[-2:]
        expect(ended.completed_at, "a run that ended has no end time")
        wanted = {"status": "interrupted", "error": "replaced", "output": {"o": 1.0}}
        expect_same(
            ended, msgspec.structs.replace(old, completed_at=ended.completed_at, **wanted), "the run that ended"
        )
        expect_same((new.run_id, new.turn, new.status), (f"run-{number + 1}", number + 1, "running"), "the new run")
        expect_same(await store.get_current_run("a"), new, "the current run")


@check("S2", "a commit is rejected if the run has renewed its lease or ended since it was read")
async def a_live_run_is_not_replaced(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="agent", run=RunRecord("run-1", "a", 0, lease_until=5))
    (seen,) = await store.list_runs("a")
    changes: tuple[dict[str, Any], ...] = ({"status": "running", "lease_until": 6}, {"status": "completed"})
    for change in changes:
        await store.update_run_status("run-1", **change)
        before = await dump(store)
        for by_commit in (False, True):
            with raises(LeaseConflict, f"a claim after {change}") as caught:
                await _claim(store, seen, "late", by_commit=by_commit)
            expect_same(getattr(caught.error, "run_id", None), "run-1", "the run that the error names")
        with raises(LeaseConflict, "a claim from an unknown run"):
            await _claim(store, msgspec.structs.replace(seen, run_id="nothing"), "late", by_commit=False)
        expect_same(await dump(store), before, "all data")


@check("S2", "a commit can give a run a new lease and leaves its other fields unchanged")
async def a_lease_changes_with_a_commit(harness: Harness) -> None:
    store = await harness.open()
    run = RunRecord("run-1", "a", 0, lease_until=5, metadata={"m": [1.0]})
    await store.create_session("a", agent_type="agent", run=run)
    (seen,) = await store.list_runs("a")
    await store.update_run_status("run-1", "running", step_count=7)
    change = RunChange(seen, msgspec.structs.replace(seen, lease_until=70))
    await store.save_state("a", plain_state("a"), change_run=change)
    expected = msgspec.structs.replace(seen, step_count=7, lease_until=70)
    store = await harness.reopen()
    expect_same(await store.list_runs("a"), [expected], "the runs")
    expect_same([it.session_id for it in await store.list_claimable(69)], [], "what a worker finds before the end")
    expect_same([it.session_id for it in await store.list_claimable(70)], ["a"], "what a worker finds afterwards")


@check("input", "a run of another session, or one that changes fixed fields, is rejected")
async def odd_changes_of_runs(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="agent", run=RunRecord("run-1", "a", 0, lease_until=5))
    (seen,) = await store.list_runs("a")
    before = await dump(store)
    odd: tuple[dict[str, Any], ...] = (
        {"run_id": "other"},
        {"turn": 9},
        {"started_at": 1},
        {"lease_until": None},
        {"lease_until": -1},
        {"status": "asleep"},
        {"step_count": 1.5},
        {"error": 7},
    )
    for change in odd:
        with raises(InvalidArgument, f"a change to {change}"):
            wanted = msgspec.structs.replace(seen, **change)
            await store.save_state("a", plain_state("a"), change_run=RunChange(seen, wanted))
    elsewhere = msgspec.structs.replace(seen, session_id="b")
    with raises(InvalidArgument, "a run of another session"):
        await store.save_state("a", plain_state("a"), change_run=RunChange(elsewhere, elsewhere))
    ended = msgspec.structs.replace(seen, status="failed")
    with raises(IllegalTransition, "a run that starts again"):
        await store.save_state("a", plain_state("a"), change_run=RunChange(ended, seen))
    expect_same(await dump(store), before, "all data")
