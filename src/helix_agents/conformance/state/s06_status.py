"""S6: a status swap returns, even when it loses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import product

from ...errors import IllegalTransition, SessionNotFound
from ...lifecycle import SESSION_TRANSITIONS
from ...stores.state.contract import StateStore
from ...types import SessionStatus, StatusConflict, StatusSwapped
from ..expect import expect_same, raises
from ..harness import STATE_STORE, Harness
from ..tools.crew import crew
from ..tools.dump import dump
from ..tools.faults import Plan, verbs_of
from ..tools.sample import meta, plain_state, user

check = STATE_STORE.check

STATUSES: tuple[SessionStatus, ...] = (
    "active",
    "paused",
    "interrupted",
    "completed",
    "failed",
    "suspended_client_tool",
    "suspended_awaiting_children",
    "suspended_step_partial",
)


@check("S6", "a swap that succeeds stores the status and everything given with it")
async def swap_wins(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="agent")
    answer = await store.compare_and_set_status(
        "a", ["paused", "active"], "failed", interrupt_context={"x": [1]}, error="e", failure_reason="f"
    )
    expect_same((type(answer).__name__, answer), (StatusSwapped.__name__, StatusSwapped(2)), "the returned result")
    state = await store.load_state("a")
    assert state is not None
    got = (state.status, state.interrupt_context, state.error, state.failure_reason, state.version)
    expect_same(got, ("failed", {"x": [1]}, "e", "f", 2), "the session")


@check("S6", "fields that a swap does not name stay unchanged")
async def swap_keeps_the_rest(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="agent", custom_state={"n": 1})
    await store.save_state("a", plain_state("a", error="e", failure_reason="f", interrupt_context=[1], output=2))
    await store.compare_and_set_status("a", "active", "paused")
    state = await store.load_state("a")
    assert state is not None
    got = (state.status, state.interrupt_context, state.error, state.failure_reason, state.output, state.custom_state)
    expect_same(got, ("paused", [1], "e", "f", 2, {"n": 1}), "the session")


@check("S6", "a swap that fails returns the current status and writes nothing")
async def swap_loses(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="agent")
    await store.update_status("a", "completed")
    before = await dump(store)
    for expected in ("active", ["active", "paused"], (), {"failed"}):
        answer = await store.compare_and_set_status("a", expected, "failed", error="no")  # type: ignore[arg-type]  # str literals in a list
        expect_same(
            (type(answer).__name__, answer), ("StatusConflict", StatusConflict("completed", 2)), "the returned result"
        )
    expect_same(await dump(store), before, "all data")


@check("S6", "a swap at the wrong version fails, at the right one it succeeds")
async def swap_minds_the_version(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="agent")
    lost = await store.compare_and_set_status("a", "active", "paused", expected_version=7)
    expect_same((lost.ok, lost), (False, StatusConflict("active", 1)), "the result at the wrong version")
    won = await store.compare_and_set_status("a", "active", "paused", expected_version=1)
    expect_same((won.ok, won), (True, StatusSwapped(2)), "the result at the right version")


@check("S6", "a swap of a session that does not exist raises")
async def swap_needs_a_session(harness: Harness) -> None:
    store = await harness.open()
    with raises(SessionNotFound, "a swap of a missing session"):
        await store.compare_and_set_status("a", "active", "paused")


@check("S6", "a swap takes one call to the backend, whether it succeeds or fails")
async def swap_is_one_round_trip(harness: Harness) -> None:
    store, counted = await harness.open(), await harness.open()
    verbs_of(counted)
    await store.create_session("a", agent_type="agent")
    plan = Plan()
    plan.attach(counted)
    for expected, ok in (("active", True), ("active", False)):
        plan.calls = 0
        answer = await counted.compare_and_set_status("a", expected, "paused")  # type: ignore[arg-type]  # a str literal
        expect_same((answer.ok, plan.calls), (ok, 1), "whether the swap succeeded, and the calls it took")


@check("S6", "every status can be set and is read back")
async def every_status_is_stored(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="agent")
    for status in STATUSES:
        await store.update_status("a", "active")
        await store.update_status("a", status)
        state = await store.load_state("a")
        expect_same(state.status if state else None, status, "the status")


Change = Callable[[StateStore, SessionStatus, SessionStatus], Awaitable[object]]


async def _save(store: StateStore, _: SessionStatus, new: SessionStatus) -> None:
    await store.save_state("a", plain_state("a", status=new))


async def _commit(store: StateStore, _: SessionStatus, new: SessionStatus) -> None:
    await store.save_state_and_promote_staging("a", plain_state("a", status=new), [user("hi")], meta())


CHANGES: dict[str, Change] = {
    "update_status": lambda store, old, new: store.update_status("a", new),
    "compare_and_set_status": lambda store, old, new: store.compare_and_set_status("a", [old, "active"], new),
    "save_state": _save,
    "save_state_and_promote_staging": _commit,
}


@check("S6", "a session changes its status only as the lifecycle allows, whichever method changes it")
async def only_legal_transitions(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="agent")
    for name, change in CHANGES.items():
        for old, new in product(STATUSES, STATUSES):
            what = f"{name} from {old} to {new}"
            await store.update_status("a", "active")
            await store.update_status("a", old)
            before = await store.load_state("a"), await store.get_message_count("a")
            if new in SESSION_TRANSITIONS[old]:
                await change(store, old, new)
                after = await store.load_state("a")
                expect_same(after.status if after else None, new, f"{what}: the status")
                continue
            with raises(IllegalTransition, what) as caught:
                await change(store, old, new)
            error = caught.error
            assert isinstance(error, IllegalTransition)
            expect_same((error.object_id, error.current, error.wanted), ("a", old, new), f"{what}: the error")
            after = await store.load_state("a")
            expect_same((after, await store.get_message_count("a")), before, f"{what}: the session")


@check("S6", "restoring a checkpoint brings back its status, whatever the lifecycle says")
async def restore_ignores_the_lifecycle(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="agent")
    waiting = plain_state("a", status="suspended_client_tool")
    made = await store.save_state_and_promote_staging("a", waiting, [], meta())
    await store.update_status("a", "failed")
    await store.restore_checkpoint("a", made.checkpoint_id)
    state = await store.load_state("a")
    expect_same(state.status if state else None, "suspended_client_tool", "the status")


@check("S6", "when many tasks swap one status, exactly one succeeds", kind="tasks")
async def one_task_swaps(harness: Harness) -> None:
    stores = [await harness.open() for _ in range(4)]
    await stores[0].create_session("a", agent_type="agent")
    answers = await asyncio.gather(
        *(stores[n % 4].compare_and_set_status("a", "active", "paused") for n in range(harness.options.tasks))
    )
    expect_same(sum(answer.ok for answer in answers), 1, "swaps that succeeded")


@check("S6", "when many processes swap one status, exactly one succeeds", kind="processes")
async def one_process_swaps(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="agent")
    async with crew(harness) as workers:
        for _ in range(5):
            await store.update_status("a", "active")
            answers = await workers.run("swap", [{"session_id": "a"}] * len(workers))
            expect_same(sum(answers), 1, "swaps that succeeded")
