"""X11: each due time of a schedule starts one run: N workers, crashes, freezes, kill -9, clocks that jump."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from contextlib import AsyncExitStack, suppress
from typing import Any

from ...clock import system_clock
from ...errors import AlreadyRunning, HelixError, IdempotencyConflict, InvalidArgument
from ...executor import AgentExecutor, Schedule
from ...llm.scripted import Call, ScriptedLLM
from ...tools.tool import tool
from ..expect import expect, expect_same, raises
from ..harness import Harness, StoreSet
from ..tools.crew import hear, tell
from .frozen import Freezer
from .harness import Clockwork, check, executing, make_executor, simple_agent, transcript
from .mortal import Life
from .play import FAILED
from .x2_kill import worker

LEASE_SECONDS = 10.0
MINUTE = 60_000
AGENT = simple_agent()


class FrozenClock(Clockwork):
    """A clock that moves only when a check moves it."""

    def __init__(self) -> None:
        super().__init__()
        self.start = (
            system_clock() // 1000 * 1000 + 600_000
        )  # stores have their own clocks: their timestamps are in the past

    def __call__(self) -> int:
        return self.start + self.ahead_ms


def due_executor(stores: StoreSet, clock: Any, **options: Any) -> AgentExecutor:
    """Return an executor whose agent replies the same each time."""
    llm = ScriptedLLM(lambda request: "Done.")
    return make_executor(stores, llm, clock=clock, lease_seconds=LEASE_SECONDS, agents=[AGENT], **options)


async def start_due(executor: AgentExecutor) -> None:
    """Start and run what is due until nothing is left."""
    for _ in range(9):
        handles = await executor.recover()
        for handle in handles:
            await handle.result()


async def _expect_started(stores: StoreSet, schedule: Schedule, due_times: list[int], what: str) -> None:
    """Fail unless each of these due times, and no other, started one run that ran once."""
    page = await stores.state.list_sessions(metadata={"schedule_id": schedule.schedule_id}, limit=200)
    started = sorted(int(session.session_id.rpartition("-")[2]) for session in page.items)
    expect_same([each - schedule.created_at for each in started], [d - schedule.created_at for d in due_times], what)
    for session in page.items:
        runs = await stores.state.list_runs(session.session_id)
        expect_same([run.status for run in runs], ["completed"], f"{what}: the runs of {session.session_id}")
        said = [message["content"] for message in await transcript(stores, session.session_id)]
        expect_same(said, ["Go", "Done."], f"{what}: the conversation of {session.session_id}")


@check("X11", "many concurrent workers start one run for each due time", kind="tasks")
async def due_once_by_many(harness: Harness) -> None:
    clock = FrozenClock()
    workers = [due_executor(await harness.open_stores(), clock) for _ in range(4)]
    schedule = await workers[0].schedule("main", "Go", every_seconds=60)
    await start_due(workers[0])
    stores = await harness.open_stores()
    await _expect_started(stores, schedule, [], "before the first due time")
    due_times = [schedule.created_at + MINUTE * (number + 1) for number in range(3)]
    for number in range(3):
        clock.pass_seconds(60)
        await asyncio.gather(*(start_due(each) for each in workers))
        await _expect_started(stores, schedule, due_times[: number + 1], f"after {number + 1} minutes")
    (listed,) = await workers[1].list_schedules()
    expect_same(
        (listed.next_at, listed.last_at),
        (due_times[-1] + MINUTE, due_times[-1]),
        "the schedule after the last due time",
    )
    expect_same(await workers[2].cancel_schedule(schedule.schedule_id), True, "canceling it")
    expect_same(await workers[2].cancel_schedule(schedule.schedule_id), False, "canceling it again")
    clock.pass_seconds(60)
    await start_due(workers[3])
    await _expect_started(stores, schedule, due_times, "after it was canceled")
    for each in workers:
        await each.close()


@check("X11", "a worker that dies at any call is replaced, and no due time is lost or doubled", kind="faults")
async def dead_while_due(harness: Harness) -> None:
    stores, measured, clock = await harness.open_stores(), Life(), FrozenClock()
    async with due_executor(stores, clock) as executor:
        await executor.schedule("main", "Go", every_seconds=60, key="measured")
        clock.pass_seconds(60)
    async with due_executor(measured.wrap(stores), clock) as executor:
        await start_due(executor)
    await stores.state.delete_session("helix/schedule/measured")
    for last in range(1, measured.calls + 1):
        for reply_lost in (False, True):
            await _die_while_due(stores, Life(last, reply_lost=reply_lost), f"dead at call {last} ({reply_lost=})")


async def _die_while_due(stores: StoreSet, life: Life, what: str) -> None:
    clock = FrozenClock()
    async with due_executor(stores, clock) as executor:
        schedule = await executor.schedule("main", "Go", every_seconds=60)
    clock.pass_seconds(60)
    dying = due_executor(life.wrap(stores), clock)
    with suppress(HelixError):
        await start_due(dying)
    await life.bury()
    await dying.close()
    clock.pass_seconds(LEASE_SECONDS + 1)
    async with due_executor(stores, clock) as executor:
        await start_due(executor)
        expect_same(await executor.cancel_schedule(schedule.schedule_id), True, f"{what}: the schedule is there")
    page = await stores.state.list_sessions(metadata={"schedule_id": schedule.schedule_id})
    expect_same([it.status for it in page.items], ["completed"], f"{what}: the sessions of one due time")
    said = [message["content"] for message in await transcript(stores, page.items[0].session_id)]
    expect_same(said, ["Go", "Done."], f"{what}: the conversation")


@check(
    "X11", "a worker that freezes at any call and wakes up after others continued starts nothing twice", kind="faults"
)
async def frozen_while_due(harness: Harness) -> None:
    stores = await harness.open_stores()
    every = max(1, 200 // harness.options.steps)
    for after in (False, True):
        for at in range(1 + harness.options.seed % every, 40, every):
            clock, freezer = FrozenClock(), Freezer(at, after=after)
            async with due_executor(stores, clock) as executor:
                schedule = await executor.schedule("main", "Go", every_seconds=60)
            clock.pass_seconds(60)
            frozen = due_executor(freezer.wrap(stores), clock)
            working = asyncio.create_task(start_due(frozen))
            waits = asyncio.create_task(freezer.frozen.wait())
            await asyncio.wait({working, waits}, return_when=asyncio.FIRST_COMPLETED)
            waits.cancel()
            due_times = [schedule.created_at + MINUTE, schedule.created_at + 2 * MINUTE]
            async with due_executor(stores, clock) as executor:
                clock.pass_seconds(LEASE_SECONDS + 1)
                await start_due(executor)
                clock.pass_seconds(60 - LEASE_SECONDS - 1)
                await start_due(executor)
                freezer.wake()
                with suppress(HelixError):
                    await working
                await frozen.close()
                clock.pass_seconds(LEASE_SECONDS + 1)
                await start_due(executor)
                (left,) = await executor.list_schedules()
                expect_same(
                    left.next_at, due_times[-1] + MINUTE, f"frozen at call {at} ({freezer.place}): the next due time"
                )
                await executor.cancel_schedule(schedule.schedule_id)
            sessions = (await stores.state.list_sessions(metadata={"schedule_id": schedule.schedule_id})).items
            started = sorted(int(session.session_id.rpartition("-")[2]) for session in sessions)
            expect_same(started, due_times, f"frozen at call {at} ({freezer.place}): the due times that started")
            for session in sessions:
                said = [message["content"] for message in await transcript(stores, session.session_id)]
                expect_same(said, ["Go", "Done."], f"frozen at call {at} ({freezer.place}): a conversation")
            if not freezer.place:
                break  # the worker finished before it reached that call


@check(
    "X11", "a worker frozen before it decides starts nothing, even if the run of that due time was deleted since then"
)
async def frozen_before_the_decision(harness: Harness) -> None:
    stores, clock = await harness.open_stores(), FrozenClock()
    async with due_executor(stores, clock) as executor:
        schedule = await executor.schedule("main", "Go", every_seconds=60)
        clock.pass_seconds(60)
        freezer = Freezer(on="save_state")
        async with due_executor(freezer.wrap(stores), clock) as frozen:
            working = asyncio.create_task(start_due(frozen))
            await freezer.frozen.wait()
            await start_due(executor)
            await _expect_started(stores, schedule, [schedule.created_at + MINUTE], "by another worker")
            await executor.delete_session(f"{schedule.schedule_id}-{schedule.created_at + MINUTE}")
            freezer.wake()
            await working
        await _expect_started(stores, schedule, [], "after it woke up")


@check("X11", "missed due times are skipped or start one run, and a clock that is set back starts none twice")
async def missed_and_jumps(harness: Harness) -> None:
    stores, clock = await harness.open_stores(), FrozenClock()
    async with due_executor(stores, clock) as executor:
        skips = await executor.schedule("main", "Go", every_seconds=60)
        once = await executor.schedule("main", "Go", every_seconds=60, missed="once")
        alone = await executor.schedule("main", "Go", at=clock() + MINUTE)
        start = skips.created_at
        clock.pass_seconds(10 * 60 + 30)
        await start_due(executor)
        await _expect_started(stores, skips, [start + 10 * MINUTE], "ten minutes late, missed ones skipped")
        await _expect_started(stores, once, [start + MINUTE, start + 10 * MINUTE], "missed ones together")
        await _expect_started(stores, alone, [start + MINUTE], "a single due time that was missed")
        left = sorted(schedule.schedule_id for schedule in await executor.list_schedules())
        expect_same(left, sorted([skips.schedule_id, once.schedule_id]), "what is left")
        clock.pass_seconds(-5 * 60)
        await start_due(executor)
        clock.pass_seconds(5 * 60)
        await start_due(executor)
        await _expect_started(stores, skips, [start + 10 * MINUTE], "after the clock went back and on again")
        clock.pass_seconds(30)
        await start_due(executor)
        await _expect_started(stores, skips, [start + 10 * MINUTE, start + 11 * MINUTE], "a minute later")


@tool(requires_approval=True)
def publish() -> str:
    """Publish."""
    return "published"


@check("X11", "a due run starts as soon as its session is neither running nor waiting for a person")
async def due_in_a_busy_session(harness: Harness) -> None:
    stores, clock, agent = await harness.open_stores(), FrozenClock(), simple_agent(publish)
    llm = ScriptedLLM([[Call("publish")], "Published.", "Done."])
    async with executing(stores, llm, clock=clock, agents=[agent], lease_seconds=LEASE_SECONDS) as executor:
        asks = await executor.run("main", "Publish", session_id="s")
        schedule = await executor.schedule("main", "Go", at=clock() + MINUTE, session_id="s", key="k")
        clock.pass_seconds(60)
        for _ in range(3):
            await start_due(executor)
            clock.pass_seconds(6)
        (waits,) = await executor.list_schedules()
        expect_same(waits.starting_at, schedule.next_at, "the pending due time")
        call_id = asks.suspended[0].tool_call_id
        expect_same((await executor.submit_tool_result("s", call_id, approved=True)).status, "accepted", "the receipt")
        await start_due(executor)
        clock.pass_seconds(6)
        await start_due(executor)
        said = [message["content"] for message in await transcript(stores, "s") if message["role"] != "tool"]
        expect_same(said, ["Publish", "", "Published.", "Go", "Done."], "the conversation")
        again = await executor.schedule("main", "Go", at=schedule.at, session_id="s", key="k")
        expect_same((again.next_at, again.last_at), (None, schedule.at), "the same schedule after its end")
        expect_same(await executor.list_schedules(), [], "what is left")


@check("X11", "one key makes one schedule, however often and from however many processes it is requested", kind="tasks")
async def one_key_one_schedule(harness: Harness) -> None:
    clock = FrozenClock()
    workers = [due_executor(await harness.open_stores(), clock) for _ in range(4)]
    made = await asyncio.gather(*(each.schedule("main", "Go", every_seconds=60, key="daily") for each in workers))
    expect_same([schedule.schedule_id for schedule in made], ["daily"] * 4, "the schedules of one key")
    expect_same(len(await workers[0].list_schedules()), 1, "how many there are")
    for other in ({"every_seconds": 30}, {"every_seconds": 90}, {"every_seconds": 60, "missed": "once"}):
        with raises(IdempotencyConflict, f"another schedule under the same key: {other}"):
            await workers[0].schedule("main", "Go", key="daily", **other)
    with raises(IdempotencyConflict, "another input under the same key"):
        await workers[0].schedule("main", "Stop", every_seconds=60, key="daily")
    await workers[0].schedule("main", "Go", every_seconds=60, key="daily", user_id="u")
    expect_same(len(await workers[0].list_schedules(user_id="u")), 1, "the schedules of a user")
    expect_same(await workers[0].cancel_schedule("daily", user_id="u"), False, "canceling another user's schedule")
    for each in workers:
        await each.close()


@check("X11", "rules that are invalid, past or never due are rejected, and nothing is stored")
async def odd_schedules(harness: Harness) -> None:
    stores, clock = await harness.open_stores(), FrozenClock()
    odd: list[dict[str, Any]] = [
        {},
        {"at": clock() + 1, "every_seconds": 60},
        {"at": clock() - 1},
        {"at": "tomorrow"},
        {"at": True},
        {"every_seconds": 0},
        {"every_seconds": -60},
        {"every_seconds": float("nan")},
        {"every_seconds": 10**12},
        {"every_seconds": "60"},
        {"every_seconds": 60, "timezone": "Mars/Olympus"},
        {"every_seconds": 60, "timezone": "../etc/passwd"},
        {"every_seconds": 60, "missed": "all"},
        {"every_seconds": 60, "session_id": "helix/schedule/x"},
        {"every_seconds": 60, "key": ""},
        {"every_seconds": 60, "key": "x" * 300},
        {"cron": "0 0 30 2 *"},
        {"cron": "61 * * * *"},
        {"cron": "* * * * * *"},
        {"cron": "@daily"},
        {"cron": 7},
    ]
    async with due_executor(stores, clock) as executor:
        for options in odd:
            with raises(InvalidArgument, f"schedule({options})"):
                await executor.schedule("main", "Go", **options)
        with raises(InvalidArgument, "a schedule without a message"):
            await executor.schedule("main", [], every_seconds=60)
        expect_same(await executor.list_schedules(), [], "what is stored")
    expect_same((await stores.state.list_sessions()).items, [], "the sessions")


@check("X11", "workers killed at random moments leave one run for each due time", kind="processes")
async def killed_while_due(harness: Harness) -> None:
    rng = random.Random(harness.options.seed)
    stores, clock = await harness.open_stores(), FrozenClock()
    rounds = max(3, harness.options.steps // 50)
    async with AsyncExitStack() as stack:
        executor = await stack.enter_async_context(due_executor(stores, clock))
        schedule = await executor.schedule("main", "Go", every_seconds=60)
        children = [await stack.enter_async_context(worker(harness)) for _ in range(2)]
        clock.pass_seconds(60)
        for _ in range(rounds):
            for child in children:
                await tell(child, {"due_at": clock()})
            pids = [(await hear(child))["pid"] for child in children]
            for pid in pids:
                await asyncio.sleep(rng.uniform(0, 0.1))
                with suppress(ProcessLookupError):  # it may have ended already
                    os.kill(pid, signal.SIGKILL)
            for child in children:
                ended = (await hear(child))["exit"]
                expect(ended != FAILED, "a worker failed; its standard error says why")
            clock.pass_seconds(LEASE_SECONDS + 1)
            await start_due(executor)
            clock.pass_seconds(LEASE_SECONDS + 1)
            await start_due(executor)  # a run whose worker was killed still holds its lease
            clock.pass_seconds(60 - 2 * (LEASE_SECONDS + 1))
    due_times = [schedule.created_at + MINUTE * (number + 1) for number in range(rounds)]
    page = await stores.state.list_sessions(metadata={"schedule_id": schedule.schedule_id}, limit=200)
    started = sorted(int(session.session_id.rpartition("-")[2]) for session in page.items)
    expect_same(started, due_times, f"the due times that started a run (seed {harness.options.seed})")
    for session in page.items:
        said = [message["content"] for message in await transcript(stores, session.session_id)]
        expect_same((session.status, said), ("completed", ["Go", "Done."]), f"the run of {session.session_id}")


@check("X11", "a run submitted for a later time starts once, at that time or when it is resumed by hand")
async def submitted_for_later(harness: Harness) -> None:
    stores, clock = await harness.open_stores(), FrozenClock()
    workers = [due_executor(await harness.open_stores(), clock) for _ in range(3)]
    handle = await workers[0].submit("main", "Go", session_id="s", not_before=clock() + MINUTE)
    await workers[0].submit("main", "Go", session_id="by-hand", not_before=clock() + MINUTE)
    await workers[0].submit("main", "Go", session_id="stopped", not_before=clock() + MINUTE)
    for _ in range(2):
        expect_same([await each.recover() for each in workers], [[], [], []], "what starts before its time")
        clock.pass_seconds(59)
        with raises(AlreadyRunning, "executing a run that is scheduled for later"):
            await workers[1].execute("main", "Now", session_id="s")
        clock.pass_seconds(-59)
    expect_same((await (await workers[1].resume("main", "by-hand")).result()).output, "Done.", "resumed by hand")
    await workers[1].abort("stopped", "not needed")
    clock.pass_seconds(60)
    taken = [one for each in await asyncio.gather(*(each.recover() for each in workers)) for one in each]
    expect_same([(one.session_id, one.run_id) for one in taken], [("s", handle.run_id)], "what starts at its time")
    expect_same((await handle.result()).output, "Done.", "the result")
    runs = await stores.state.list_runs("s")
    expect_same([(run.status, run.crashes, run.not_before) for run in runs], [("completed", 0, None)], "the run")
    with raises(InvalidArgument, "an invalid time"):
        await workers[0].submit("main", "Go", not_before=-1)
    with raises(InvalidArgument, "executing later"):
        await workers[0].execute("main", "Go", not_before=clock() + 1)  # type: ignore[call-arg]  # on purpose
    for each in workers:
        await each.close()
