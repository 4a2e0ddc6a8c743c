"""S16: sessions that wait for a worker, and those whose worker died, are found in the order in which they wait."""

from __future__ import annotations

from typing import Any

from ...errors import InvalidArgument
from ...stores.state.contract import StateStore
from ...types import RunStatus, SessionStatus
from ..expect import expect, expect_same, raises
from ..harness import STATE_STORE, Harness
from ..tools.dump import dump

check = STATE_STORE.check

NOW = 1_000_000


async def _claimable(store: StateStore, now: int = NOW, **options: Any) -> list[str]:
    return [it.session_id for it in await store.list_claimable(now, **options)]


async def _begin(store: StateStore, session_id: str, lease_until: int | None, **options: Any) -> None:
    """A session with a run that has this lease."""
    await store.create_session(session_id, **{"agent_type": "agent", **options})
    await store.create_run(session_id, f"run-{session_id}", lease_until=lease_until)


@check("S16", "runs without a living owner are found, those that wait longest first, and nothing else")
async def waiting_and_lapsed(harness: Harness) -> None:
    store = await harness.open()
    for session_id, lease_until in (
        ("lapsed", NOW - 1),
        ("now", NOW),
        ("alive", NOW + 1),
        ("long-ago", 7),
        ("waits", 0),
        ("waits-too", None),
    ):
        await _begin(store, session_id, lease_until)
    await store.create_session("untouched", agent_type="agent")
    await _begin(store, "child", 5, parent_session_id="alive")
    ends: tuple[RunStatus, ...] = ("completed", "failed", "interrupted", "suspended_client_tool")
    for end in ends:
        await _begin(store, f"run-{end}", 5)
        await store.update_run_status(f"run-run-{end}", end)
    rests: tuple[SessionStatus, ...] = ("completed", "failed", "interrupted", "paused", "suspended_awaiting_children")
    for rest in rests:
        await _begin(store, f"is-{rest}", 5)
        await store.update_status(f"is-{rest}", rest)
    expected = ["waits", "waits-too", "long-ago", "lapsed", "now"]
    found = await _claimable(store)
    # Those that have no lease wait since their runs began, which may have been in the same millisecond.
    expect_same(sorted(found[:2]), expected[:2], "the sessions that wait")
    expect_same(found[2:], expected[2:], "the sessions whose lease is over")
    expect_same(sorted(await _claimable(store, 6)), ["waits", "waits-too"], "the sessions that waited earlier")
    again = await harness.reopen()
    expect_same(await _claimable(again), found, "the sessions as another process finds them")


@check("S16", "what is found follows leases, ends and new runs")
async def claimable_follows_the_run(harness: Harness) -> None:
    store = await harness.open()
    await _begin(store, "a", 0)
    steps: list[tuple[dict[str, Any], list[str]]] = [
        ({"lease_until": NOW + 5}, []),
        ({"lease_until": NOW + 9, "step_count": 3}, []),
        ({"lease_until": NOW}, ["a"]),
        ({"lease_until": NOW + 5}, []),
        ({"lease_until": 0}, ["a"]),
    ]
    for changes, expected in steps:
        await store.update_run_status("run-a", "running", **changes)
        expect_same(await _claimable(store), expected, f"what is found after {changes}")
    await store.update_run_status("run-a", "suspended_step_partial")
    expect_same(await _claimable(store), [], "what is found while the run is suspended")
    await store.update_run_status("run-a", "running")
    expect_same(await _claimable(store), ["a"], "what is found when it goes on")
    await store.create_run("a", "run-b", lease_until=NOW + 5)
    expect_same(await _claimable(store), [], "what is found while a later run lives")
    await store.update_run_status("run-b", "completed")
    expect_same(await _claimable(store), [], "what is found when the later run has ended")
    await store.create_run("a", "run-c", lease_until=3)
    expect_same(await _claimable(store), ["a"], "what is found when the last run has lapsed")
    await store.delete_session("a")
    expect_same(await _claimable(store), [], "what is found of a deleted session")


@check("S16", "claimable sessions can be asked for by agent, by status and in portions, and are whole")
async def claimable_by_agent_and_status(harness: Harness) -> None:
    store = await harness.open()
    for number in range(9):
        options = {"agent_type": f"agent-{number % 3}", "user_id": f"user-{number}", "metadata": {"n": str(number)}}
        await _begin(store, f"s{number}", 10 + number, custom_state={"n": number}, **options)
    expect_same(await _claimable(store, agent_types=["agent-1"]), ["s1", "s4", "s7"], "those of one agent")
    both = await _claimable(store, agent_types=("agent-0", "agent-2", "agent-9"), limit=3)
    expect_same(both, ["s0", "s2", "s3"], "the first three of two agents")
    rest = await _claimable(store, agent_types=("agent-0", "agent-2"), limit=3, offset=3)
    expect_same(rest, ["s5", "s6", "s8"], "those behind them")
    portions = [it for offset in (0, 4, 8, 12) for it in await _claimable(store, limit=4, offset=offset)]
    expect_same(portions, [f"s{number}" for number in range(9)], "all, in portions")
    expect_same(await _claimable(store, agent_types=[]), [], "those of no agent")
    await store.update_status("s0", "completed")
    await store.update_status("s1", "failed")
    expect_same(await _claimable(store, status="completed"), ["s0"], "those that are completed")
    expect_same(await _claimable(store, status=["failed", "completed"]), ["s0", "s1"], "those that have ended")
    await store.set_interrupt_flag("s2", "stop")
    loaded = await store.load_state("s2")
    (first,) = await store.list_claimable(NOW, limit=1)
    assert loaded is not None
    fields = {name for name in loaded.__struct_fields__ if name != "custom_state"}
    got, expected = ({name: getattr(it, name) for name in fields} for it in (first, loaded))
    expect_same(got, expected, "a session that was found")
    expect(first.custom_state is None, "a session that was found carries custom state")


@check("input", "odd questions for claimable sessions are refused, and asking changes nothing")
async def odd_questions_for_claimable(harness: Harness) -> None:
    store = await harness.open()
    await _begin(store, "a", 1)
    before = await dump(store)
    odd: tuple[dict[str, Any], ...] = (
        {"limit": 0},
        {"limit": 201},
        {"limit": True},
        {"offset": -1},
        {"offset": "1"},
        {"agent_types": "agent"},
        {"agent_types": [7]},
        {"agent_types": 7},
        {"status": "asleep"},
    )
    for options in odd:
        with raises(InvalidArgument, f"list_claimable with {options}"):
            await store.list_claimable(NOW, **options)
    for now in (-1, 1.5, None, "0"):
        with raises(InvalidArgument, f"list_claimable at {now!r}"):
            await store.list_claimable(now)  # type: ignore[arg-type]  # on purpose
    await _claimable(store)
    expect_same(await dump(store), before, "all data")
