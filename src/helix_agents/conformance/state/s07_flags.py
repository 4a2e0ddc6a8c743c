"""S7: an interrupt flag stays until it is cleared."""

from __future__ import annotations

from ...types import InterruptFlag
from ..expect import expect, expect_same
from ..harness import STATE_STORE, Harness
from ..tools.crew import crew
from ..tools.sample import full_state, meta, plain_state

check = STATE_STORE.check


def _reason_and_run(flag: InterruptFlag | None) -> tuple[str | None, str | None] | None:
    return (flag.reason, flag.run_id) if flag else None


@check("S7", "reading a flag does not clear it; clearing does, and may be repeated")
async def looking_does_not_clear(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="agent")
    expect(await store.check_interrupt_flag("a") is None, "a new session has a flag")
    await store.set_interrupt_flag("a", "why \x00\ud800")
    for _ in range(3):
        flag = await store.check_interrupt_flag("a")
        expect_same(_reason_and_run(flag), ("why \x00\ud800", None), "the flag")
    expect(flag is not None and flag.set_at > 0, "the flag does not say when it was set")
    await store.clear_interrupt_flag("a")
    await store.clear_interrupt_flag("a")
    expect(await store.check_interrupt_flag("a") is None, "a cleared flag still exists")


@check("S7", "a flag says whether it asks for an abort, independently of its reason")
async def flag_tells_an_abort(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="agent")
    for reason in (None, "", "why", "\x1eabort\x1ewhy", "\x1e", "\x1e\x1ewhy", "\x1eabort"):
        for abort in (False, True):
            await store.set_interrupt_flag("a", reason, abort=abort)
            state = await store.load_state("a")
            for flag in (await store.check_interrupt_flag("a"), state.interrupt_flag if state else None):
                expect_same((flag.reason, flag.abort) if flag else None, (reason, abort), f"a flag set with {reason!r}")


@check("S7", "a flag may be set without a reason")
async def flag_needs_no_reason(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="agent")
    await store.set_interrupt_flag("a")
    expect_same(_reason_and_run(await store.check_interrupt_flag("a")), (None, None), "the flag")


@check("S7", "a flag names the run it is for; the next one replaces it")
async def flag_tells_its_run(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="agent")
    await store.set_interrupt_flag("a", "stop", run_id="run-1")
    expect_same(_reason_and_run(await store.check_interrupt_flag("a")), ("stop", "run-1"), "the flag")
    state = await store.load_state("a")
    expect_same(_reason_and_run(state.interrupt_flag) if state else None, ("stop", "run-1"), "the flag in the session")
    await store.set_interrupt_flag("a", "all")
    expect_same(_reason_and_run(await store.check_interrupt_flag("a")), ("all", None), "the flag after it was replaced")


@check("S7", "saving and committing neither set nor clear a flag")
async def saving_leaves_the_flag(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="agent")
    before = await store.load_state("a")
    assert before is not None
    await store.set_interrupt_flag("a", "stop", run_id="run-1")
    await store.save_state("a", before)
    await store.save_state_and_promote_staging("a", full_state("a"), [], meta())
    await store.update_status("a", "active")
    await store.compare_and_set_status("a", "active", "paused")
    expect_same(_reason_and_run(await store.check_interrupt_flag("a")), ("stop", "run-1"), "the flag after writes")
    await store.clear_interrupt_flag("a")
    stale = plain_state("a", interrupt_flag=InterruptFlag("old", None, 1))
    await store.save_state("a", stale)
    await store.save_state_and_promote_staging("a", stale, [], meta(2))
    expect(await store.check_interrupt_flag("a") is None, "saving a stale value set a cleared flag again")


@check("S7", "a flag survives a restart and is seen by every store object")
async def flag_survives(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="agent")
    await store.set_interrupt_flag("a", "stop", run_id="run-1")
    other = await harness.open()
    expect_same(
        _reason_and_run(await other.check_interrupt_flag("a")), ("stop", "run-1"), "the flag in another store object"
    )
    again = await harness.reopen()
    expect_same(_reason_and_run(await again.check_interrupt_flag("a")), ("stop", "run-1"), "the flag after reopening")


@check("S7", "other processes see a flag being set and cleared", kind="processes")
async def flag_crosses_processes(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="agent")
    await store.set_interrupt_flag("a", "from here", run_id="run-0")
    async with crew(harness, 1) as workers:
        answers = await workers.run("flag", [{"session_id": "a", "worker": "from there"}])
    expect_same(answers, [["from here", "run-0"]], "the flag as the child saw it")
    expect_same(
        _reason_and_run(await store.check_interrupt_flag("a")), ("from there", "run-1"), "the flag that the child set"
    )
