"""X2: a run that dies anywhere is continued and ends as if nothing had happened; a frozen run writes nothing later."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from ...agent import Agent
from ...errors import AlreadyRunning, HelixError, NotResumable, RunLost
from ...executor import AgentExecutor
from ...llm.scripted import Call, ScriptedLLM
from ...tools import ToolContext, tool
from ..expect import expect, expect_same, raises
from ..harness import Harness, StoreSet
from .cast import make_author, make_llm
from .harness import Clockwork, Parts, check, chunks_of, executing, make_executor, simple_agent, transcript
from .mortal import Died, Life
from .play import (
    Remains,
    StagedLedger,
    answer_all,
    begin_or_go_on,
    expect_same_remains,
    is_over,
    remains_of,
    staged_calls,
)
from .view import View, follow

LEASE_SECONDS = 30.0
MAX_ATTEMPTS = 60


Act = Callable[[AgentExecutor, str], Awaitable[Any]]


async def perform(
    stores: StoreSet, session_id: str, lives: list[Life], *, act: Act = begin_or_go_on, **more: Any
) -> tuple[Remains, list[str]]:
    """Run the scenario in processes with these lifetimes, one after another; the last attempts do not die. `act`
    does the next thing."""
    journal: list[str] = []
    ledger = StagedLedger()
    clock = Clockwork()
    view = View()
    reading = asyncio.create_task(follow(stores.streams, session_id, view))
    try:
        for _ in range(MAX_ATTEMPTS):
            if await is_over(stores, session_id):
                break
            life = lives.pop(0) if lives else Life()
            await attempt(stores, session_id, life, clock, journal, act=act, **more)
            await life.bury()
            ledger.note(await staged_calls(stores, session_id), journal)
            clock.pass_seconds(LEASE_SECONDS + 1)
        await asyncio.wait_for(reading, 30)
    finally:
        reading.cancel()
    ledger.settle(journal)
    return await remains_of(stores, session_id, view), journal


async def attempt(
    stores: StoreSet,
    session_id: str,
    life: Life,
    clock: Clockwork,
    journal: list[str],
    *,
    act: Act = begin_or_go_on,
    **more: Any,
) -> None:
    """Do what one process can do before it dies."""
    options: dict[str, Any] = {"lease_seconds": LEASE_SECONDS, "clock": clock, "agents": [make_author(journal.append)]}
    options |= more
    executor = make_executor(life.wrap(stores), make_llm(), **options)
    try:
        await answer_all(make_executor(stores, make_llm(), **options), session_id)
        await act(executor, session_id)
    except Died:
        pass
    finally:
        await executor.close()


@check("X2", "a run that dies at any store call ends with the same conversation, state and stream", kind="faults")
async def dead_at_any_call(harness: Harness) -> None:
    stores = await harness.open_stores()
    rng = random.Random(harness.options.seed)
    expected, _ = await perform(stores, "undisturbed", [])
    life = Life()
    await attempt(stores, "measured", life, Clockwork(), [])
    for number in range(harness.options.steps // 25):
        lives = [
            Life(rng.randrange(1, life.calls), reply_lost=rng.random() < 0.5) for _ in range(rng.choice((1, 1, 2, 4)))
        ]
        plan = ", ".join(f"{one.last}{' (reply lost)' if one.reply_lost else ''}" for one in lives)
        actual, _ = await perform(stores, f"case {number}", lives)
        expect_same_remains(actual, expected, f"dead at {plan} (seed {harness.options.seed})")


@check("X2", "a run with durable steps but without durable calls that dies at any call ends the same", kind="faults")
async def dead_where_only_steps_last(harness: Harness) -> None:
    stores = await harness.open_stores()
    rng = random.Random(harness.options.seed)
    expected, _ = await perform(stores, "undisturbed", [])
    life = Life()
    await attempt(stores, "measured", life, Clockwork(), [], durability="step")
    for number in range(harness.options.steps // 50):
        lives = [Life(rng.randrange(1, life.calls), reply_lost=rng.random() < 0.5) for _ in range(rng.choice((1, 2)))]
        plan = ", ".join(f"{one.last}{' (reply lost)' if one.reply_lost else ''}" for one in lives)
        actual, _ = await perform(stores, f"case {number}", lives, durability="step")
        expect_same_remains(actual, expected, f"dead at {plan} (seed {harness.options.seed})")


@check("X2", "a run that dies right after a commit, before it is announced, ends the same", kind="faults")
async def dead_after_each_commit(harness: Harness) -> None:
    stores = await harness.open_stores()
    expected, _ = await perform(stores, "undisturbed", [])
    for number in range(1, 6):
        lives = [Life(commits=number), Life(commits=2), Life(commits=1)]
        actual, _ = await perform(stores, f"commit {number}", lives)
        expect_same_remains(actual, expected, f"dead after commit {number}")


async def _restored(stores: StoreSet, session_id: str, life: Life) -> Any:
    """Restore the first step of a turn and resume it, in a process that dies; return what its readers see."""
    clock = Clockwork()

    @tool
    async def work() -> str:
        """Work."""
        return "ok"

    agent, llm = simple_agent(work), ScriptedLLM([[Call("work")], [Call("work")], "Done."])
    async with executing(stores, llm, clock=clock, lease_seconds=LEASE_SECONDS) as executor:
        await executor.run(agent, "Go", session_id=session_id)
        (first,) = [each for each in (await stores.state.list_checkpoints(session_id)).items if each.step_count == 1]
        await executor.restore(session_id, first.checkpoint_id)
    dying = make_executor(life.wrap(stores), llm, clock=clock, lease_seconds=LEASE_SECONDS)
    with suppress(Died):
        await (await dying.resume(agent, session_id)).result()
    await life.bury()
    await dying.close()
    clock.pass_seconds(LEASE_SECONDS + 1)
    async with executing(stores, llm, clock=clock, agents=[agent]) as executor:
        if (await executor.can_resume(session_id)).can_resume:
            await (await executor.resume(agent, session_id)).result()
        await executor.recover()
    view = View()
    for chunk in await chunks_of(stores, session_id):
        view.take(chunk)
    return view.summary()


@check("X2", "after a restore, a run that dies at any call ends the same for its readers", kind="faults")
async def dead_after_a_restore(harness: Harness) -> None:
    stores, life = await harness.open_stores(), Life()
    expected = await _restored(stores, "undisturbed", life)
    rng = random.Random(harness.options.seed)
    calls = range(1, life.calls + 1)
    for last in rng.sample(calls, min(len(calls), max(3, harness.options.steps // 25))):
        reply_lost = rng.random() < 0.5
        actual = await _restored(stores, f"dead at {last}", Life(last, reply_lost=reply_lost))
        expect_same(actual, expected, f"dead at {last}, {reply_lost=} (seed {harness.options.seed})")


async def _die(stores: StoreSet, agent: Agent, llm: ScriptedLLM, clock: Clockwork, *, unclosed: bool = False) -> None:
    """Run session s in a process that dies right after the commit of its first step.

    `unclosed`: if that is the last step, the process dies before it has closed stream and run.
    """
    life = Life(commits=1, apart=unclosed)  # creating the session claims the first turn
    dying = make_executor(life.wrap(stores), llm, clock=clock, lease_seconds=LEASE_SECONDS)
    try:
        await (await dying.execute(agent, "Go", session_id="s")).result()
    except Died:
        await life.bury()
    await dying.close()


@check("X2", "when many processes resume a crashed run, exactly one gets it", kind="tasks")
async def one_of_many_resumes(harness: Harness) -> None:
    stores = await harness.open_stores()
    clock = Clockwork()
    ran: list[str] = []

    @tool
    async def work(ctx: ToolContext) -> str:
        """Work."""
        ran.append(ctx.run_id)
        await asyncio.sleep(0.01)
        return "ok"

    agent = simple_agent(work)
    llm = ScriptedLLM([[Call("work")], "Done."])
    await _die(stores, agent, llm, clock)
    verdict = await make_executor(stores, llm, clock=clock).can_resume("s")
    expect(not verdict.can_resume, "a run with a live lease is reported as resumable")
    clock.pass_seconds(LEASE_SECONDS + 1)
    others = [make_executor(await harness.open_stores(), llm, clock=clock, lease_seconds=3600) for _ in range(6)]
    expect((await others[0].can_resume("s")).can_resume, "a run with an expired lease is not reported as resumable")
    tries = await asyncio.gather(*(other.resume(agent, "s") for other in others), return_exceptions=True)
    won = [found for found in tries if not isinstance(found, BaseException)]
    expect_same(len(won), 1, "how many got the session")
    expect(all(isinstance(found, AlreadyRunning) for found in tries if found not in won), f"the others got {tries}")
    expect_same((await won[0].result()).output, "Done.", "the output")
    for other in others:
        await other.close()


class _Slow:
    """A state store on which calls of one method block after they happened, until the check releases them."""

    def __init__(self, inner: Any, *, behind: str) -> None:
        self.claimed, self.go_on = asyncio.Event(), asyncio.Event()
        self._inner = inner
        self._behind = behind

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)

        async def slow(*args: Any, **kwargs: Any) -> Any:
            answer = await method(*args, **kwargs)
            self.claimed.set()
            await self.go_on.wait()
            return answer

        return slow if name == self._behind else method


@check("X2", "a claim between the claim of a crashed session and its new run is rejected", kind="tasks")
async def nobody_gets_in_between(harness: Harness) -> None:
    stores = await harness.open_stores()
    clock = Clockwork()

    @tool
    async def work() -> str:
        """Work."""
        return "ok"

    agent, llm = simple_agent(work), ScriptedLLM([[Call("work")], "Done."])
    await _die(stores, agent, llm, clock)
    clock.pass_seconds(LEASE_SECONDS + 1)
    slow: Any = _Slow(stores.state, behind="save_state")
    options: dict[str, Any] = {"clock": clock, "lease_seconds": 3600}
    first = make_executor(Parts(slow, stores.streams, stores.usage), llm, **options)
    second = make_executor(await harness.open_stores(), llm, **options)
    taking = asyncio.create_task(first.resume(agent, "s"))
    await asyncio.wait_for(slow.claimed.wait(), 20)
    with raises(AlreadyRunning, "resuming a session that another process is claiming"):
        await second.resume(agent, "s")
    slow.go_on.set()
    expect_same((await (await taking).result()).output, "Done.", "the output")
    await first.close()
    await second.close()


@check("X2", "a claim while another process closes a finished session is rejected", kind="tasks")
async def nobody_closes_twice(harness: Harness) -> None:
    stores = await harness.open_stores()
    clock = Clockwork()
    agent, llm = simple_agent(), ScriptedLLM(["Done."])
    await _die(stores, agent, llm, clock, unclosed=True)
    clock.pass_seconds(LEASE_SECONDS + 1)
    slow: Any = _Slow(stores.state, behind="save_state")
    first = make_executor(Parts(slow, stores.streams, stores.usage), llm, clock=clock, lease_seconds=3600)
    second = make_executor(await harness.open_stores(), llm, clock=clock, lease_seconds=0.2)
    closing = asyncio.create_task(first.resume(agent, "s"))
    await asyncio.wait_for(slow.claimed.wait(), 20)
    with raises(AlreadyRunning, "resuming a session that another process is closing"):
        await second.resume(agent, "s")
    slow.go_on.set()
    expect_same((await (await closing).result()).output, "Done.", "the output")
    await first.close()
    await second.close()


@check("X2", "many processes that find a finished but unclosed session close it once", kind="tasks")
async def many_tidy_up(harness: Harness) -> None:
    stores = await harness.open_stores()
    clock = Clockwork()
    agent, llm = simple_agent(), ScriptedLLM(["Done."])
    await _die(stores, agent, llm, clock, unclosed=True)
    clock.pass_seconds(LEASE_SECONDS + 1)
    others = [make_executor(await harness.open_stores(), llm, clock=clock) for _ in range(4)]
    tries = await asyncio.gather(*(other.resume(agent, "s") for other in others), return_exceptions=True)
    lost = [found for found in tries if isinstance(found, BaseException)]
    odd = [repr(found) for found in lost if not isinstance(found, AlreadyRunning | NotResumable)]
    expect_same(odd, [], "what the losers got")
    session, run = await stores.state.load_state("s"), await stores.state.get_current_run("s")
    found = [session and session.status, session and session.output, run and run.status]
    expect_same(found, ["completed", "Done.", "completed"], "the session, its output and its run")
    outputs = [chunk["output"] for chunk in await chunks_of(stores, "s") if chunk["type"] == "output"]
    expect_same(outputs, ["Done."], "the outputs on the stream")
    for other in others:
        await other.close()


@check("X2", "a run that was frozen while another finished its session writes nothing when it wakes up")
async def a_frozen_run_writes_nothing(harness: Harness) -> None:
    stores, other = await harness.open_stores(), await harness.open_stores()
    clock, gate, frozen = Clockwork(), asyncio.Event(), asyncio.Event()
    first: list[str] = []

    @tool
    async def work(ctx: ToolContext) -> str:
        """Work; the first call blocks."""
        if not first:
            first.append(ctx.run_id)
            frozen.set()
            await gate.wait()
            ctx.update_state(lambda draft: draft.update(late=True))
        return "ok"

    agent = simple_agent(work, state={"n": 0})
    llm = ScriptedLLM([[Call("work")], "Done."])
    asleep = make_executor(stores, llm, clock=clock, lease_seconds=LEASE_SECONDS, poll_seconds=3600)
    handle = await asleep.execute(agent, "Go", session_id="s")
    await frozen.wait()
    async for chunk in handle.stream():
        if chunk["type"] == "tool_start":
            break  # none of its writes is still in flight
    clock.pass_seconds(LEASE_SECONDS + 1)
    async with executing(other, llm, clock=clock) as awake:
        result = await (await awake.resume(agent, "s")).result()
    expect_same(result.status, "completed", "the status after the other run continued")
    before = await _dump(other)
    gate.set()
    try:
        await handle.result()
    except (RunLost, HelixError):
        pass
    else:
        raise AssertionError("the frozen run believes that it has finished")
    await asleep.close()
    expect_same(await _dump(other), before, "what is stored after the frozen run woke up")


@check("X2", "a run that wrongly trusts its lease cannot commit beside the run that took over its session")
async def fenced_by_the_version(harness: Harness) -> None:
    stores, other = await harness.open_stores(), await harness.open_stores()
    slow_clock, clock = Clockwork(), Clockwork()
    gates = [asyncio.Event(), asyncio.Event()]
    arrived = [asyncio.Event(), asyncio.Event()]
    runs: list[str] = []

    @tool
    async def work(ctx: ToolContext) -> str:
        """Work; each call blocks in turn."""
        number = len(runs)
        runs.append(ctx.run_id)
        arrived[number].set()
        await gates[number].wait()
        ctx.update_state(lambda draft: draft["by"].append(number))
        return f"worked {number}"

    agent = simple_agent(work, state={"by": []})
    llm = ScriptedLLM([[Call("work")], "Done."])
    asleep = make_executor(stores, llm, clock=slow_clock, lease_seconds=LEASE_SECONDS, poll_seconds=3600)
    handle = await asleep.execute(agent, "Go", session_id="s")
    await arrived[0].wait()
    async for chunk in handle.stream():
        if chunk["type"] == "tool_start":
            break
    clock.pass_seconds(LEASE_SECONDS + 1)
    async with executing(other, llm, clock=clock) as awake:
        second = await awake.resume(agent, "s")
        await arrived[1].wait()
        gates[0].set()
        try:
            await handle.result()
        except RunLost:
            pass
        else:
            raise AssertionError("the first run believes that the session is its own")
        gates[1].set()
        result = await second.result()
    await asleep.close()
    expect_same(result.status, "completed", "the status")
    session = await other.state.load_state("s")
    expect_same(session and session.custom_state, {"by": [1]}, "custom state")
    expect_same([m["content"] for m in await transcript(other, "s")][2], "worked 1", "the outcome in the conversation")


async def _dump(stores: StoreSet) -> dict[str, Any]:
    session = await stores.state.load_state("s")
    runs = await stores.state.list_runs("s")
    staged = [await stores.state.list_staged("s", f"{run.run_id}-1") for run in runs]
    checkpoints = (await stores.state.list_checkpoints("s")).items
    return {
        "session": session,
        "messages": await transcript(stores, "s"),
        "runs": runs,
        "staged": [[row.tool_call_id for row in rows] for rows in staged],
        "checkpoints": [found.checkpoint_id for found in checkpoints],
        "chunks": await chunks_of(stores, "s"),
    }
