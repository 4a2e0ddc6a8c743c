"""X2: a process that freezes anywhere, even in the middle of a claim, and wakes up after another one has taken over."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from ...agent import Agent
from ...errors import AlreadyRunning, NotResumable, RunLost
from ...executor import AgentExecutor, AgentResult, RunHandle
from ...llm.scripted import Call, Reply, ScriptedLLM
from ...tools import ToolContext, tool
from ..expect import expect, expect_same
from ..harness import Harness, StoreSet
from .frozen import Freezer, places
from .harness import Clockwork, check, custom_state, family, make_executor, transcript
from .mortal import Died, Life
from .view import View

LEASE_SECONDS = 30.0
PATIENCE_SECONDS = 60
WRITES_ON_THEIR_WAY = 3
INPUT = "Go."
CLAIM = "save_state"
"""The call that claims a crashed session."""
MOST_CALLS_OF_A_CLAIM = 40
CHILD = "/call_2_2"
LOST_TO_ANOTHER = (AlreadyRunning, NotResumable, RunLost)

Begin = Callable[[AgentExecutor, Agent, str], Awaitable[RunHandle]]


def _agent() -> Agent:
    @tool
    async def work(n: int, ctx: ToolContext) -> str:
        """Work."""
        ctx.update_state(lambda draft: draft.increment("done", n))
        await asyncio.sleep(0)
        return f"did {n}"

    below = Agent("below", tools=[work], state={"done": 0})
    return Agent("main", tools=[work, below.as_tool()], state={"done": 0})


def _llm() -> ScriptedLLM:
    return ScriptedLLM(
        {
            "main": [
                Reply("First.", [Call("work", {"n": 1}), Call("work", {"n": 2})]),
                [Call("work", {"n": 4}), Call("below", {"input": "help"})],
                "All done.",
            ],
            "below": [Reply("I help.", [Call("work", {"n": 8})]), "Helped."],
        }
    )


async def _resume(executor: AgentExecutor, agent: Agent, session_id: str) -> RunHandle:
    return await executor.resume(agent, session_id)


async def _execute(executor: AgentExecutor, agent: Agent, session_id: str) -> RunHandle:
    return await executor.execute(agent, INPUT, session_id=session_id)


def _executor(stores: StoreSet, clock: Clockwork) -> AgentExecutor:
    return make_executor(stores, _llm(), clock=clock, lease_seconds=LEASE_SECONDS, agents=[_agent()])


async def _crash(stores: StoreSet, session_id: str, clock: Clockwork) -> None:
    """Leave a run that died in the middle of its second step, with a call staged and chunks shown."""
    life = Life(commits=2)
    dying = make_executor(life.wrap(stores), _llm(), clock=clock, lease_seconds=LEASE_SECONDS)
    try:
        await (await dying.execute(_agent(), INPUT, session_id=session_id)).result()
    except Died:
        await life.bury()
    await dying.close()
    clock.pass_seconds(LEASE_SECONDS + 1)


async def _remains(stores: StoreSet, session_id: str) -> dict[str, Any]:
    """Return all visible data of a session once every process is done, without names."""
    members = await family(stores, session_id)
    found: dict[str, Any] = {}
    for place, member in enumerate(members):
        session = await stores.state.load_state(member)
        assert session is not None
        view = View()
        for stored in await stores.streams.get_all_chunks(session.stream_id):
            view.take(stored.chunk)
        info = await stores.streams.get_stream_info(session.stream_id)
        runs = [run.status for run in await stores.state.list_runs(member)]
        found[str(place)] = {
            "transcript": await transcript(stores, member),
            "state": await custom_state(stores, member),
            "status": [session.status, session.output, session.error, session.step_count],
            "view": {key.replace(session_id, "SESSION"): told for key, told in view.summary().items()},
            "stream": None if info is None else [info.status, info.final_output, info.error],
            "refs": [ref.status for ref in await stores.state.list_sub_session_refs(member)],
            "last run": runs[-1],
            "other runs": sorted(set(runs[:-1]) - {"interrupted"}),
            "left in staging": await stores.state.discard_staging(member),
        }
    return found


async def _race(stores: StoreSet, session_id: str, freezer: Freezer, begin: Begin, clock: Clockwork) -> list[Any]:
    """Return the outcomes of a process that freezes and of one that takes over, if there is anything to take over."""
    slow, quick = _executor(freezer.wrap(stores), clock), _executor(stores, clock)

    async def run_slowly() -> AgentResult:
        return await (await begin(slow, _agent(), session_id)).result()

    running = asyncio.create_task(run_slowly())
    freezing = asyncio.create_task(freezer.frozen.wait())
    outcomes: list[Any] = []
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await asyncio.wait({running, freezing}, return_when=asyncio.FIRST_COMPLETED)
            clock.pass_seconds(LEASE_SECONDS + 1)
            exists = await stores.state.session_exists(session_id)
            if not running.done() and exists and (await quick.can_resume(session_id)).can_resume:
                outcomes.append(await (await _taken_over(quick, session_id)).result())
            freezer.wake()
            outcomes += await asyncio.gather(running, return_exceptions=True)
    finally:
        freezing.cancel()
        freezer.wake()  # also after a failure: a frozen run cannot be closed
        await slow.close()
        await quick.close()
    return outcomes


async def _taken_over(executor: AgentExecutor, session_id: str) -> RunHandle:
    """Resume a session whose process froze. A write that was in flight when it froze may still arrive, and win."""
    for _ in range(WRITES_ON_THEIR_WAY):
        with suppress(AlreadyRunning):
            return await executor.resume("main", session_id)
    return await executor.resume("main", session_id)


async def _stall_everywhere(harness: Harness, begin: Begin, *, crashed: bool) -> None:
    stores = await harness.open_stores()
    clock = Clockwork()

    async def stalled(session_id: str, freezer: Freezer) -> list[Any]:
        if crashed:
            await _crash(stores, session_id, clock)
        return await _race(stores, session_id, freezer, begin, clock)

    counted = Freezer(0)
    await stalled("undisturbed", counted)
    expected = await _remains(stores, "undisturbed")
    for number, after in places(counted.calls, seed=harness.options.seed, most=harness.options.steps // 2):
        freezer, session_id = Freezer(number, after=after), f"{number} {after}"
        outcomes = await stalled(session_id, freezer)
        what = f"frozen at call {number}, {freezer.place}"
        results = [each for each in outcomes if isinstance(each, AgentResult)]
        expect_same([each.status for each in results], ["completed"], f"{what}: the results, of {outcomes}")
        others = [each for each in outcomes if not isinstance(each, AgentResult)]
        expect(all(isinstance(each, RunLost) for each in others), f"{what}: the loser got {others}")
        expect_same(await _remains(stores, session_id), expected, what)
        verdict = await _executor(stores, clock).can_resume(session_id)
        expect(not verdict.can_resume, f"{what}: the finished session can be resumed: {verdict.reason}")


@check("X2", "a resumed run frozen at any call of its claim or step changes nothing after a takeover", kind="faults")
async def frozen_while_resuming(harness: Harness) -> None:
    await _stall_everywhere(harness, _resume, crashed=True)


@check("X2", "a first run frozen at any call changes nothing after a takeover", kind="faults")
async def frozen_in_a_first_turn(harness: Harness) -> None:
    await _stall_everywhere(harness, _execute, crashed=False)


@check("X2", "of two claims that stall within each other, one runs, and every run ends", kind="faults")
async def claims_that_stall_in_each_other(harness: Harness) -> None:
    """Let X stall before it commits its claim, and send the commit at any call of the claim by which Y takes over."""
    stores = await harness.open_stores()
    clock = Clockwork()
    await _crash(stores, "undisturbed", clock)
    await (await _executor(stores, clock).resume("main", "undisturbed")).result()
    expected = await _remains(stores, "undisturbed")
    for number in range(1, MOST_CALLS_OF_A_CLAIM):
        session_id, other = f"stalled {number}", Freezer(number)
        await _crash(stores, session_id, clock)
        outcomes = await _interleaved(stores, session_id, other, clock)
        what = f"the other claim at call {number}, {other.place}"
        results = [each.status for each in outcomes if isinstance(each, AgentResult)]
        expect_same(results, ["completed"], f"{what}: the results, of {outcomes}")
        expect_same(await _remains(stores, session_id), expected, what)
        if other.place in ("", CLAIM):
            break


async def _interleaved(stores: StoreSet, session_id: str, other: Freezer, clock: Clockwork) -> list[Any]:
    before, after = Freezer(on=CLAIM), Freezer(on=CLAIM, after=True)
    slow, quick = _executor(after.wrap(before.wrap(stores)), clock), _executor(other.wrap(stores), clock)

    async def run(executor: AgentExecutor) -> AgentResult:
        return await (await executor.resume("main", session_id)).result()

    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            first = asyncio.create_task(run(slow))
            await before.frozen.wait()
            clock.pass_seconds(LEASE_SECONDS + 1)
            second = asyncio.create_task(run(quick))
            freezing = asyncio.create_task(other.frozen.wait())
            await asyncio.wait({second, freezing}, return_when=asyncio.FIRST_COMPLETED)
            freezing.cancel()
            before.wake()
            await after.frozen.wait()
            other.wake()
            outcomes: list[Any] = [*await asyncio.gather(second, return_exceptions=True)]
            after.wake()
            return [*outcomes, *await asyncio.gather(first, return_exceptions=True)]
    finally:
        for freezer in (before, after, other):
            freezer.wake()
        await slow.close()
        await quick.close()


@check("X2", "a run that wakes up at any call of its successor changes nothing", kind="faults")
async def woken_while_the_successor_works(harness: Harness) -> None:
    await _woken_everywhere(harness, below="")


@check("X2", "a run that wakes up while its successor takes over their sub-agent changes nothing", kind="faults")
async def woken_while_the_successor_takes_a_child(harness: Harness) -> None:
    await _woken_everywhere(harness, below=CHILD)


async def _woken_everywhere(harness: Harness, *, below: str) -> None:
    """Let X freeze, Y take over and freeze also, X wake up and do what it still can, then Y continue.

    `below`: the path from the session to the descendant whose calls count.
    """
    stores = await harness.open_stores()
    clock = Clockwork()

    def freezer(session_id: str, number: int) -> Freezer:
        return Freezer(number, session_id=f"{session_id}{below}" if below else None)

    counted = freezer("undisturbed", 0)
    await _both_frozen(stores, "undisturbed", counted, Freezer(0), clock)
    expected = await _remains(stores, "undisturbed")
    pairs = [(slow, quick) for slow in range(1, counted.calls + 1) for quick in range(1, counted.calls + 1)]
    for slow, quick in random.Random(harness.options.seed).sample(pairs, min(len(pairs), harness.options.steps // 8)):
        session_id = f"woken-{slow}-{quick}"
        frozen, other = freezer(session_id, slow), freezer(session_id, quick)
        outcomes = await _both_frozen(stores, session_id, frozen, other, clock)
        what = f"frozen at call {slow}, {frozen.place}, and woken at call {quick} of the other, {other.place}"
        results = [each for each in outcomes if isinstance(each, AgentResult)]
        expect_same([each.status for each in results], ["completed"], f"{what}: the results, of {outcomes}")
        others = [each for each in outcomes if not isinstance(each, AgentResult)]
        expect(all(isinstance(each, LOST_TO_ANOTHER) for each in others), f"{what}: the loser got {others}")
        expect_same(await _remains(stores, session_id), expected, what)


async def _both_frozen(
    stores: StoreSet, session_id: str, frozen: Freezer, other: Freezer, clock: Clockwork
) -> list[Any]:
    slow, quick = _executor(frozen.wrap(stores), clock), _executor(other.wrap(stores), clock)

    async def run(executor: AgentExecutor, begin: Begin) -> AgentResult:
        return await (await begin(executor, _agent(), session_id)).result()

    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            tasks = [asyncio.create_task(run(slow, _execute))]
            await _first_of(tasks[0], frozen.frozen)
            clock.pass_seconds(LEASE_SECONDS + 1)
            exists = await stores.state.session_exists(session_id)
            if not tasks[0].done() and exists and (await _executor(stores, clock).can_resume(session_id)).can_resume:
                tasks.append(asyncio.create_task(run(quick, _resume)))
                await _first_of(tasks[1], other.frozen)
            frozen.wake()
            await asyncio.wait({tasks[0]})
            other.wake()
            outcomes = [*await asyncio.gather(*tasks, return_exceptions=True)]
    finally:
        frozen.wake()
        other.wake()
        await slow.close()
        await quick.close()
    left = [name for task in asyncio.all_tasks() if (name := task.get_name()).startswith("helix-") and "run-" in name]
    expect_same(left, [], f"session {session_id}: what still runs after all runs have ended")
    return outcomes


async def _first_of(task: asyncio.Task[AgentResult], event: asyncio.Event) -> None:
    waiting = asyncio.create_task(event.wait())
    await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
