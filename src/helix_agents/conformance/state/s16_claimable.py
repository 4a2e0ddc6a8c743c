"""S16: sessions that a worker can continue or close now are found, in the order in which they wait."""

from __future__ import annotations

import time
from typing import Any

from ...errors import InvalidArgument
from ...stores.state.contract import StateStore
from ...types import PendingClientToolCall, RunStatus, SessionStatus, SuspendedChildWait
from ..expect import expect, expect_same, raises
from ..harness import STATE_STORE, Harness
from ..tools.dump import dump
from ..tools.sample import meta, plain_state, user

check = STATE_STORE.check

NOW = 1_000_000
FAR = 4_000_000_000_000
"""Later than the time of any machine that runs the kit."""


async def _claimable(store: StateStore, now: int = NOW, **options: Any) -> list[str]:
    return [it.session_id for it in await store.list_claimable(now, **options)]


async def _begin(store: StateStore, session_id: str, lease_until: int | None, **options: Any) -> None:
    """Create a session with a run that has this lease."""
    await store.create_session(session_id, **{"agent_type": "agent", **options})
    await store.create_run(session_id, f"run-{session_id}", lease_until=lease_until)


def _call(call_id: str, deadline_at: int | None = None, submitted_at: int | None = None) -> PendingClientToolCall:
    return PendingClientToolCall(call_id, "ask", deadline_at=deadline_at, submitted_at=submitted_at)


async def _suspend(store: StateStore, session_id: str, *calls: PendingClientToolCall, **fields: Any) -> None:
    """Suspend a session that waits for these calls; its run has ended."""
    if not await store.session_exists(session_id):
        await _begin(store, session_id, FAR, parent_session_id=fields.get("parent_session_id"))
        await store.update_run_status(f"run-{session_id}", "suspended_client_tool")
    waiting = {call.tool_call_id: call for call in calls}
    options = {"status": "suspended_client_tool", "pending_client_tool_calls": waiting, **fields}
    await store.save_state(session_id, plain_state(session_id, **options))


@check("S16", "sessions are found once all their questions have responses or have expired, and not before")
async def answered_and_expired(harness: Harness) -> None:
    store = await harness.open()
    await _suspend(store, "asks", _call("c1"))
    await _suspend(store, "asks-one-of-two", _call("c1", submitted_at=5), _call("c2"))
    await _suspend(store, "answered", _call("c1", submitted_at=5), _call("c2", FAR, submitted_at=6))
    await _suspend(store, "nothing-asked")
    await _suspend(store, "deadline", _call("c1", FAR), _call("c2", FAR - 9), _call("c3", submitted_at=1))
    await _suspend(store, "half-a-deadline", _call("c1", FAR), _call("c2"))
    await _suspend(store, "timer", _call("c1"), wake_at=FAR + 5)
    await _suspend(store, "timer-first", _call("c1", FAR + 7), wake_at=FAR + 6)
    await _suspend(store, "paused", status="paused", wake_at=FAR + 8)
    await _suspend(store, "paused-for-good", status="paused")
    await _suspend(store, "not-paused", status="interrupted", wake_at=FAR + 8)
    await _suspend(store, "child", parent_session_id="asks")
    waits = {"t1": SuspendedChildWait("t1", "below", tool_call_ids=["q1", "q2"], deadline_at=FAR + 1)}
    parent: dict[str, Any] = {"status": "suspended_awaiting_children", "suspended_awaiting_children": waits}
    await _suspend(store, "parent", **parent)
    await _suspend(store, "parent-answered", completed_client_tool_calls={"q1": 3, "q2": 4}, **parent)
    await _suspend(store, "parent-half", completed_client_tool_calls={"q1": 3}, **parent)
    store = await harness.reopen()
    now = await _now(store)
    due_now = ["answered", "nothing-asked", "parent-answered"]
    expect_same(sorted(await _claimable(store, now)), due_now, "what is due now")
    moments = {"deadline": 0, "parent": 1, "parent-half": 1, "timer": 5, "timer-first": 6, "paused": 8}
    expected = [(name, FAR + after) for name, after in moments.items()]
    for place, (_, moment) in enumerate(expected):
        names = [name for name, at in expected if at <= moment]
        found = sorted(await _claimable(store, moment))
        expect_same(found, sorted(due_now + names), f"what is due {moment - FAR} ms later")
        earlier = [name for name, at in expected[: place + 1] if at < moment]
        expect_same(sorted(await _claimable(store, moment - 1)), sorted(due_now + earlier), "what is due just before")
    page = (await store.list_due(FAR + 9)).items[3:]
    expect_same([it.due_at for it in page], [at for _, at in expected], "since when sessions are due")
    expect_same([it.session.session_id for it in page], [name for name, _ in expected], "the order")
    expect_same(page[0].run, await store.get_current_run("deadline"), "the run that comes with a session")


@check("S16", "the time at which a session is due follows responses, statuses, restores and forks")
async def due_follows_the_session(harness: Harness) -> None:
    store = await harness.open()
    await _suspend(store, "a", _call("c1"))
    now = await _now(store)
    expect_same(await _claimable(store, FAR), [], "what is found while a question is pending")
    await _suspend(store, "a", _call("c1", submitted_at=now))
    expect_same(await _claimable(store, await _now(store)), ["a"], "what is found once it has a response")
    state = plain_state("a", status="suspended_client_tool")
    done = await store.save_state_and_promote_staging("a", state, [user("x")], meta())
    expect_same(await _claimable(store, await _now(store)), ["a"], "what is found after a commit")
    for status in ("active", "completed", "failed"):
        await store.update_status("a", status)
        expect_same(await _claimable(store, FAR), [], f"what is found for a session that is {status}")
    await store.restore_checkpoint("a", done.checkpoint_id)
    expect_same(await _claimable(store, await _now(store)), ["a"], "what is found after a restore")
    await store.compare_and_set_status("a", "suspended_client_tool", "interrupted")
    expect_same(await _claimable(store, FAR), [], "what is found for an interrupted session")
    await store.fork_session("a", "b", checkpoint_id=done.checkpoint_id)
    expect_same(await _claimable(store, await _now(store)), ["b"], "what is found for a fork")
    await store.delete_session("b")
    await store.update_status("a", "active")
    await store.update_status("a", "suspended_step_partial")
    expect_same(await _claimable(store, await _now(store)), ["a"], "what is found after update_status")
    await store.update_status("a", "active")
    swapped = await store.compare_and_set_status("a", "active", "suspended_client_tool", error="e")
    expect(swapped.ok, "a swap was rejected")
    expect_same(await _claimable(store, await _now(store)), ["a"], "what is found after a swap")
    await store.create_run("a", "run-later", lease_until=FAR)
    expect_same(await _claimable(store, FAR - 1), [], "what is found while a run closes the session")
    expect_same(await _claimable(store, FAR), ["a"], "what is found if the run never closes it")
    await store.update_run_status("run-later", "suspended_client_tool")
    expect_same(await _claimable(store, FAR), ["a"], "what is found once the run has closed it")
    await store.delete_session("a")
    expect_same(await _claimable(store, FAR), [], "what is found for a deleted session")


@check("S16", "a page that starts at a cursor continues the previous page, whatever was claimed in between")
async def due_in_pages(harness: Harness) -> None:
    store = await harness.open()
    for number in range(12):
        await _begin(store, f"run-{number:02}", 0 if number < 6 else number)
    for number in range(6):
        await _suspend(store, f"waits-{number}", _call("c", submitted_at=1))
    now = max(await _now(store), NOW)
    everything = await _claimable(store, now)
    expect_same(len(everything), 18, "how many are due")
    pages: list[str] = []
    cursor: str | None = None
    while True:
        page = await store.list_due(now, limit=4, cursor=cursor)
        expect_same((page.total, page.limit), (None, 4), "has_more and cursor of a page")
        pages += [it.session.session_id for it in page.items]
        if len(pages) == 8:
            # Another worker claims the entry right before the cursor.
            await store.update_run_status(f"run-{pages[-1]}", "running", lease_until=FAR)
            await store.update_run_status(f"run-{pages[0]}", "completed")
        cursor = page.next_cursor
        expect_same(page.has_more, cursor is not None, "whether there is a cursor")
        if cursor is None:
            break
    expect_same(pages, everything, "all pages")
    cursor = (await store.list_due(now, limit=3)).next_cursor
    rest = [it.session_id for it in await store.list_claimable(now, limit=200, cursor=cursor)]
    expect_same(rest, [it for it in everything if it not in (pages[0], pages[7])][3:], "a page by cursor")


@check("S16", "the store returns the next time at which a session becomes due")
async def next_moment(harness: Harness) -> None:
    store = await harness.open()
    expect_same(await store.next_due(0), None, "the next due time of an empty store")
    await _begin(store, "alive", FAR)
    await _begin(store, "later", FAR + 50)
    await _begin(store, "released", 0)
    await _suspend(store, "waits", _call("c1", FAR + 20))
    await _suspend(store, "asks", _call("c1"))
    now = await _now(store)
    for moment, expected in ((now, FAR), (FAR - 1, FAR), (FAR, FAR + 20), (FAR + 20, FAR + 50), (FAR + 50, None)):
        expect_same(await store.next_due(moment), expected, f"the next due time after {moment - FAR}")


async def _now(store: StateStore) -> int:
    """Return a time that is not before the store's clock."""
    session_id = f"clock-{time.time_ns()}"
    made = await store.create_session(session_id, agent_type="clock")
    await store.delete_session(session_id)
    return made.created_at


@check("S16", "runs without a live owner are found, the longest waiting first, and nothing else")
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
    rests: tuple[SessionStatus, ...] = ("completed", "failed", "interrupted", "paused")
    for place, rest in enumerate(rests):
        await _begin(store, f"is-{rest}", 100 + place)
        await store.update_status(f"is-{rest}", rest)
    unclosed = [f"is-{rest}" for rest in rests]
    expected = ["waits", "waits-too", "long-ago", *unclosed, "lapsed", "now"]
    found = await _claimable(store)
    # Sessions without a lease wait since their runs started, which may be the same millisecond.
    expect_same(sorted(found[:2]), expected[:2], "the sessions that wait")
    expect_same(found[2:], expected[2:], "the sessions whose lease has expired")
    expect_same(sorted(await _claimable(store, 6)), ["waits", "waits-too"], "the sessions that waited earlier")
    again = await harness.reopen()
    expect_same(await _claimable(again), found, "the sessions as another process finds them")


@check("S16", "claimable sessions follow leases, ends and new runs")
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
    expect_same(await _claimable(store), ["a"], "what is found when it continues")
    await store.create_run("a", "run-b", lease_until=NOW + 5)
    expect_same(await _claimable(store), [], "what is found while a later run lives")
    await store.update_run_status("run-b", "completed")
    expect_same(await _claimable(store), [], "what is found when the later run has ended")
    await store.create_run("a", "run-c", lease_until=3)
    expect_same(await _claimable(store), ["a"], "what is found when the lease of the last run has expired")
    await store.delete_session("a")
    expect_same(await _claimable(store), [], "what is found for a deleted session")


@check("S16", "claimable sessions can be filtered by agent and status, come in pages, and are complete")
async def claimable_by_agent_and_status(harness: Harness) -> None:
    store = await harness.open()
    for number in range(9):
        options = {"agent_type": f"agent-{number % 3}", "user_id": f"user-{number}", "metadata": {"n": str(number)}}
        await _begin(store, f"s{number}", 10 + number, custom_state={"n": number}, **options)
    expect_same(await _claimable(store, agent_types=["agent-1"]), ["s1", "s4", "s7"], "those of one agent")
    both = await _claimable(store, agent_types=("agent-0", "agent-2", "agent-9"), limit=3)
    expect_same(both, ["s0", "s2", "s3"], "the first three of two agents")
    rest = await _claimable(store, agent_types=("agent-0", "agent-2"), limit=3, offset=3)
    expect_same(rest, ["s5", "s6", "s8"], "those after them")
    portions = [it for offset in (0, 4, 8, 12) for it in await _claimable(store, limit=4, offset=offset)]
    expect_same(portions, [f"s{number}" for number in range(9)], "all, in pages")
    expect_same(await _claimable(store, agent_types=[]), [], "those of no agent")
    await store.update_status("s0", "completed")
    await store.update_status("s1", "failed")
    expect_same(await _claimable(store, status="completed"), ["s0"], "those that are completed")
    expect_same(await _claimable(store, status=["failed", "completed"]), ["s0", "s1"], "those that have ended")
    await store.set_interrupt_flag("s2", "stop")
    loaded = await store.load_state("s2")
    (first,) = await store.list_claimable(NOW, limit=1, status="active")
    assert loaded is not None
    fields = {name for name in loaded.__struct_fields__ if name != "custom_state"}
    got, expected = ({name: getattr(it, name) for name in fields} for it in (first, loaded))
    expect_same(got, expected, "a session that was found")
    expect(first.custom_state is None, "a session that was found carries custom state")


@check("input", "invalid queries for claimable sessions are rejected, and a query changes nothing")
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
        {"cursor": "x"},
        {"cursor": 7},
        {"cursor": "WzEsInMiXQ"},
    )
    for options in odd:
        with raises(InvalidArgument, f"list_claimable with {options}"):
            await store.list_claimable(NOW, **options)
    for now in (-1, 1.5, None, "0"):
        with raises(InvalidArgument, f"list_claimable at {now!r}"):
            await store.list_claimable(now)  # type: ignore[arg-type]  # on purpose
        with raises(InvalidArgument, f"next_due at {now!r}"):
            await store.next_due(now)  # type: ignore[arg-type]  # on purpose
    await _claimable(store)
    expect_same(await dump(store), before, "all data")
