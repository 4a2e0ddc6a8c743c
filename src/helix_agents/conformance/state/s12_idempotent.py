"""S12 and S2 under faults: whatever fails at any verb, a write happens as a whole, once, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from ...errors import StoreUnavailable
from ...stores.state.contract import StateStore
from ..expect import canonical, difference, expect, expect_same, plain
from ..harness import STATE_STORE, Harness
from ..tools.crew import hear, spec_of, start_child, stop_child, tell
from ..tools.dump import anonymous, portrait
from ..tools.faults import DEADLY, IN_PROCESS, Fault, Plan, verbs_of
from ..tools.operations import OPERATIONS, prepare

check = STATE_STORE.check

MAX_VERB_CALLS = 12
"""No write may need more calls than this; it also limits the search for the last call."""


async def _prepared(store: StateStore, operation: str, session_id: str) -> None:
    before = OPERATIONS[operation].prepare
    if before is not None:
        await before(store, session_id)


async def _view(store: StateStore, session_id: str) -> Any:
    """Return the session and its fork, without what differs between equal histories."""
    fork = await portrait(store, f"{session_id}.fork")
    return [await portrait(store, session_id), anonymous(fork, session_id)]


class Scene:
    """The data before and after an operation, and how many verb calls it makes."""

    def __init__(self, name: str, before: Any, after: Any, answer: Any, calls: int) -> None:
        self.name = name
        self.before = before
        self.after = after
        self.answer = answer
        self.calls = calls

    def require_whole(self, view: Any, what: str) -> bool:
        """Return whether the write happened; fail if it happened in part."""
        if canonical(view) == canonical(self.after):
            return True
        if canonical(view) == canonical(self.before):
            return False
        from_before, from_after = difference(view, self.before), difference(view, self.after)
        raise AssertionError(f"{what} left something half done: {from_before} before, {from_after} after")


async def _scenes(harness: Harness) -> AsyncIterator[Scene]:
    clean = await harness.open()
    verbs_of(clean)
    for name in OPERATIONS:
        session_id = f"control-{name}"
        await _prepared(clean, name, session_id)
        before = await _view(clean, session_id)
        counted = await harness.open()
        plan = Plan()
        plan.attach(counted)
        answer = anonymous_answer(await OPERATIONS[name].run(counted, session_id), session_id)
        yield Scene(name, before, await _view(clean, session_id), answer, plan.calls)


def anonymous_answer(answer: Any, session_id: str) -> Any:
    """Return a result that is equal for two sessions with the same history."""
    fields = getattr(answer, "__struct_fields__", None)
    value = plain(answer) if fields else answer
    return anonymous(value, session_id)


async def _strike(harness: Harness, scene: Scene, fault: Fault, at: int, *, times: int = 1) -> tuple[Plan, Any, bool]:
    """Run a scene with a fault; return the plan, the result or error, and whether the write happened."""
    what = f"{scene.name} with {fault} at verb call {at}, {times} times"
    session_id = f"{scene.name}-{fault}-{at}-{times}"
    clean = await harness.open()
    await _prepared(clean, scene.name, session_id)
    store = await harness.open()
    plan = Plan(fault, at, times=times)
    plan.attach(store)
    outcome: Any
    try:
        outcome = await asyncio.create_task(_perform(scene.name, store, session_id))
    except (StoreUnavailable, asyncio.CancelledError) as error:
        outcome = error
    except Exception as error:
        raise AssertionError(f"{what} raised {type(error).__name__}: {error}") from error
    # A cancelled write may still be in flight; a closed store has none in flight.
    await store.close()
    happened = scene.require_whole(await _view(clean, session_id), what)
    if not isinstance(outcome, BaseException):
        outcome = anonymous_answer(outcome, session_id)
        expect(happened, f"{what} returned {outcome!r} but did nothing")
        expect_same(outcome, scene.answer, f"the result of {what}")
    return plan, outcome, happened


async def _perform(name: str, store: StateStore, session_id: str) -> Any:
    return await OPERATIONS[name].run(store, session_id)


async def _strike_everywhere(harness: Harness, fault: Fault) -> None:
    async for scene in _scenes(harness):
        for at in range(1, MAX_VERB_CALLS + 1):
            plan, _, _ = await _strike(harness, scene, fault, at)
            if not plan.struck:
                break
        else:
            raise AssertionError(f"{scene.name} needs more than {MAX_VERB_CALLS} verb calls")


@check("S2", "a backend call that fails leaves every write whole or undone", kind="faults")
async def fail_before_leaves_whole(harness: Harness) -> None:
    await _strike_everywhere(harness, "fail_before")


@check("S2", "a backend call whose reply is lost leaves every write whole or undone", kind="faults")
async def fail_after_leaves_whole(harness: Harness) -> None:
    await _strike_everywhere(harness, "fail_after")


@check("S2", "a task cancelled before a backend call leaves every write whole or undone", kind="faults")
async def cancel_before_leaves_whole(harness: Harness) -> None:
    await _strike_everywhere(harness, "cancel_before")


@check("S2", "a task cancelled during a backend call leaves every write whole or undone", kind="faults")
async def cancel_during_leaves_whole(harness: Harness) -> None:
    await _strike_everywhere(harness, "cancel_during")


@check("S12", "a commit whose reply is lost returns normally and has happened exactly once", kind="faults")
async def lost_reply_is_found_out(harness: Harness) -> None:
    async for scene in _scenes(harness):
        if scene.name not in ("save_state_and_promote_staging", "commit_without_expected_version"):
            continue
        for at in range(1, scene.calls + 1):
            _, outcome, happened = await _strike(harness, scene, "fail_after", at)
            writes_at_the_end = at == scene.calls
            expect(
                happened or not writes_at_the_end,
                f"{scene.name}: the reply to verb call {at} was lost, and so was the commit",
            )
            if happened:
                expect_same(outcome, scene.answer, f"the result of {scene.name} with a lost reply at call {at}")


@check("S12", "the outcome of a commit is determined even if the reply to that query is also lost", kind="faults")
async def two_lost_replies_are_found_out(harness: Harness) -> None:
    async for scene in _scenes(harness):
        if scene.name != "save_state_and_promote_staging":
            continue
        _, outcome, happened = await _strike(harness, scene, "fail_after", scene.calls, times=2)
        expect(happened, "the replies to a commit and to the query after it were lost, and so was the commit")
        expect_same(outcome, scene.answer, "the result of a commit with two lost replies")


@check("S12", "a store keeps working after any fault", kind="faults")
async def store_goes_on_after_faults(harness: Harness) -> None:
    clean = await harness.open()
    verbs_of(clean)
    for fault in IN_PROCESS:
        session_id = f"again-{fault}"
        await prepare(clean, session_id)
        store = await harness.open()
        plan = Plan(fault, 1)
        plan.attach(store)
        task = asyncio.create_task(_perform("append_messages", store, session_id))
        with suppress(StoreUnavailable, asyncio.CancelledError):
            await task
        expect(plan.struck, "the fault did not happen")
        count = await store.get_message_count(session_id)
        expect_same(await store.append_messages(session_id, [{"role": "user"}]), count + 1, "the count after a fault")
        before = await store.load_state(session_id)
        assert before is not None
        await _perform("save_state_and_promote_staging", store, session_id)
        after = await store.load_state(session_id)
        assert after is not None
        expect_same(after.version - before.version, 1, "by how much the commit after a fault raised the version")
        await store.close()


@check("S2", "a process that dies before or after any backend call leaves every write whole or undone", kind="faults")
async def death_leaves_whole(harness: Harness) -> None:
    spec = spec_of(harness)
    store = await harness.open()
    scenes = [scene async for scene in _scenes(harness)]
    cases: list[dict[str, Any]] = []
    for scene in scenes:
        for fault in DEADLY:
            for at in range(1, scene.calls + 1):
                session_id = f"{scene.name}-{fault}-{at}"
                cases.append({"operation": scene.name, "fault": fault, "at": at, "session_id": session_id})
                await _prepared(store, scene.name, session_id)
    child = await start_child("crash", spec)
    try:
        await tell(child, cases)
        expect_same(await hear(child), "done", "the child that runs the crashing writes")
    finally:
        await stop_child(child)
    known = {scene.name: scene for scene in scenes}
    for case in cases:
        scene = known[case["operation"]]
        what = f"{scene.name} with {case['fault']} at verb call {case['at']}"
        happened = scene.require_whole(await _view(store, case["session_id"]), what)
        if case["fault"] == "kill_after" and case["at"] == scene.calls:
            expect(happened, f"{what}: the write was acknowledged but is lost")
