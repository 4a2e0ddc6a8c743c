"""Runs: turns, status, lease."""

from __future__ import annotations

from ...errors import HelixError, IllegalTransition, RunNotFound
from ...types import RunRecord, RunStatus
from ..expect import expect, expect_same, raises
from ..harness import STATE_STORE, Harness
from ..tools.dump import dump

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
    expect_same(first, expected, "the answer")
    expect(first.started_at > 0, "a run has no start")
    second = await store.create_run("a", "run-2")
    other = await store.create_run("b", "run-3")
    expect_same((second.turn, other.turn), (2, 1), "the turns")
    again = await harness.reopen()
    expect_same(await again.list_runs("a"), [first, second], "the runs")
    expect_same(await again.get_current_run("a"), second, "the current run")
    expect_same(await again.get_current_run("b"), other, "the current run of the other session")


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


@check("contract", "a run is changed by what is given; the rest stays")
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


@check("contract", "a run that has ended stays so; a suspended one may go on or end")
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


@check("contract", "with an expected status, a run in any other is left alone")
async def run_is_changed_from_the_expected_status(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="agent")
    await store.create_run("a", "run-1")
    await store.update_run_status("run-1", "interrupted", error="first", expected_status="running")
    before = await dump(store)
    with raises(IllegalTransition, "a second change from the same status"):
        await store.update_run_status("run-1", "interrupted", error="second", expected_status="running")
    expect_same(await dump(store), before, "all data")
    with raises(HelixError, "a status that there is not"):
        await store.update_run_status("run-1", "interrupted", expected_status="gone")  # type: ignore[arg-type]
