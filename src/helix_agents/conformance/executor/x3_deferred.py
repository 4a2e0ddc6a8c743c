"""X3: calls that an external job or a timer finishes later; nothing waits in memory, and nothing runs twice."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

from ...errors import HelixError, InvalidArgument
from ...executor import AgentExecutor
from ...llm.scripted import Call, ScriptedLLM
from ...tools import DeferredCall, ToolContext, tool
from ..expect import expect, expect_same, raises
from ..harness import Harness, StoreSet
from .harness import check, chunks_of, custom_state, make_executor, of_type, simple_agent, transcript
from .mortal import Life
from .view import View
from .x11_due import FrozenClock

SECRET = "a secret of the kit"
LEASE_SECONDS = 10.0
HOUR = 3_600_000


class Jobs:
    """A service on which a tool starts jobs, and which records them."""

    def __init__(self) -> None:
        self.begun = 0
        self.calls: list[DeferredCall] = []
        self.fails = False
        self.answer: Any = None
        """Called as soon as a job has started, if given."""

        @tool(retries=2)
        async def render(ctx: ToolContext) -> str:
            """Render something, elsewhere."""
            self.begun += 1
            call = await ctx.defer(deadline_seconds=3600)
            self.calls.append(call)
            ctx.update_state(lambda draft: draft["jobs"].append(len(self.calls)))
            if self.fails:
                raise ValueError("no job")
            if self.answer is not None:
                await self.answer(call)
            return "does not count"

        self.render = render

    def executor(self, stores: StoreSet, clock: Any, *more: Any) -> AgentExecutor:
        """Return an executor of an agent that renders once."""
        agent = simple_agent(self.render, *more, state={"jobs": []})
        calls = [Call("render"), *(Call(each.name) for each in more)]
        llm = ScriptedLLM([calls, "Done."])
        options: dict[str, Any] = {"secret": SECRET, "public_url": "https://example.test/helix/"}
        return make_executor(stores, llm, clock=clock, lease_seconds=LEASE_SECONDS, agents=[agent], **options)


async def _run(executor: AgentExecutor, session_id: str = "s") -> Any:
    return await executor.run("main", "Go", session_id=session_id)


async def _recover(executor: AgentExecutor) -> list[str]:
    """Continue what a worker would continue, and return the statuses."""
    return [(await handle.result()).status for handle in await executor.recover()]


async def _results(stores: StoreSet, session_id: str = "s") -> list[Any]:
    return [message["content"] for message in await transcript(stores, session_id) if message["role"] == "tool"]


async def _seen_of_job(stores: StoreSet, session_id: str, life: Life) -> list[Any]:
    """Complete a deferred call in a process that dies, continue in another; return what readers see, and the state."""
    clock, jobs = FrozenClock(), Jobs()
    async with jobs.executor(stores, clock) as executor:
        await _run(executor, session_id)
        await executor.complete_deferred(jobs.calls[0].token, result="done")
    dying = jobs.executor(life.wrap(stores), clock)
    with suppress(HelixError):
        await (await dying.resume("main", session_id)).result()
    await life.bury()
    await dying.close()
    clock.pass_seconds(LEASE_SECONDS + 1)
    async with jobs.executor(stores, clock) as executor:
        if (await executor.can_resume(session_id)).can_resume:
            await (await executor.resume("main", session_id)).result()
        await executor.recover()
    view = View()
    for chunk in await chunks_of(stores, session_id):
        view.take(chunk)
    expect_same(view.state({"jobs": []}), await custom_state(stores, session_id), "the state that readers have")
    return [view.summary(), view.state({"jobs": []})]


@check("X3", "a completed job whose run dies at any call is shown again from its start, with its writes", kind="faults")
async def a_completed_job_is_shown_again(harness: Harness) -> None:
    stores, life = await harness.open_stores(), Life()
    expected = await _seen_of_job(stores, "undisturbed", life)
    rng = random.Random(harness.options.seed)
    calls = range(1, life.calls + 1)
    for last in rng.sample(calls, min(len(calls), max(4, harness.options.steps // 20))):
        reply_lost = rng.random() < 0.5
        actual = await _seen_of_job(stores, f"dead at {last}", Life(last, reply_lost=reply_lost))
        expect_same(actual, expected, f"dead at {last}, {reply_lost=} (seed {harness.options.seed})")


@check("X3", "another process completes a deferred call by its id or token, and the function runs once")
async def deferred_completes(harness: Harness) -> None:
    clock = FrozenClock()
    for by_token in (False, True):
        stores, jobs, name = await harness.open_stores(), Jobs(), f"s-{by_token}"
        async with jobs.executor(stores, clock) as executor:
            result = await _run(executor, name)
            expect_same(result.status, "suspended_client_tool", "the status")
            expect_same([wait.kind for wait in result.suspended], ["deferred"], "what it waits for")
            expect_same(await _recover(executor), [], "what is continued before the result arrives")
        (call,) = jobs.calls
        expect_same(call.url, f"https://example.test/helix/hooks/{call.token}", "the URL")
        async with jobs.executor(await harness.open_stores(), clock) as other:
            expect_same([it.kind for it in (await other.list_waiting()).items], ["deferred"], "what is listed")
            if by_token:
                status: str = (await other.complete_deferred(call.token, result={"pages": 3})).status
                again = await other.complete_deferred(call.token, result={"pages": 3})
                expect_same(again.status, "accepted", "the same result, sent again")
                changed = await other.complete_deferred(call.token, result="another")
                expect_same(changed.status, "duplicate", "another result")
            else:
                with raises(InvalidArgument, "approving a deferred call"):
                    await other.submit_tool_result(name, call.tool_call_id, approved=True)
                receipt = await other.submit_tool_result(name, call.tool_call_id, result={"pages": 3})
                status = receipt.status
            expect_same(status, "accepted", "the receipt")
            expect_same(await _recover(other), ["completed"], "what a worker continues")
            late = await other.complete_deferred(call.token, result="later")
            expect_same(late.status, "duplicate", "a result that arrives after the end")
        expect_same(await _results(stores, name), ['{"pages":3}'], "what the model reads")
        expect_same((jobs.begun, len(jobs.calls)), (1, 1), "how often the function ran")
        expect_same(await custom_state(stores, name), {"jobs": [1]}, "what the function wrote")
        told = [chunk["type"] for chunk in of_type(await chunks_of(stores, name), "tool_start", "tool_end")]
        expect_same(told, ["tool_start", "tool_end"], "what the stream reports about the call")


@check("X3", "if the result arrives before the function returns, the run is not suspended")
async def answered_before_it_returns(harness: Harness) -> None:
    stores, jobs, clock = await harness.open_stores(), Jobs(), FrozenClock()
    async with jobs.executor(stores, clock) as executor:

        async def answer(call: DeferredCall) -> None:
            expect_same(
                (await executor.complete_deferred(call.token, result="early")).status, "accepted", "the receipt"
            )

        jobs.answer = answer
        expect_same((await _run(executor)).status, "completed", "the status")
    expect_same(await _results(stores), ["early"], "what the model reads")
    expect_same((jobs.begun, await custom_state(stores, "s")), (1, {"jobs": [1]}), "what the function did")


@check("X3", "a missed deadline and a function that fails after deferring are errors; later results are ignored")
async def deferred_without_result(harness: Harness) -> None:
    stores, jobs, clock = await harness.open_stores(), Jobs(), FrozenClock()
    async with jobs.executor(stores, clock) as executor:
        await _run(executor, "slow")
        clock.pass_seconds(3599)
        expect_same(await _recover(executor), [], "what is continued before the deadline")
        clock.pass_seconds(2)
        late = await executor.complete_deferred(jobs.calls[0].token, result="late")
        expect_same(late.status, "late", "a result after the deadline")
        expect_same(await _recover(executor), ["completed"], "what is continued after the deadline")
        jobs.fails = True
        expect_same((await _run(executor, "fails")).status, "completed", "a call whose function fails")
        refused = await executor.complete_deferred(jobs.calls[1].token, result="late")
        expect_same(refused.status, "duplicate", "a result of a job that failed to start")
    expect(
        str((await _results(stores, "slow"))[0]).startswith("Error: The answer came after"), "the error is not reported"
    )
    expect_same(await _results(stores, "fails"), ["Error: ValueError: no job"], "the error of the function")
    expect_same(jobs.begun, 2, "how often the function ran, although it may be retried")
    expect_same(await custom_state(stores, "fails"), {"jobs": []}, "what the failed function wrote")


@check("X3", "tokens that are forged or belong to a deleted or recreated session complete nothing")
async def odd_tokens(harness: Harness) -> None:
    stores, jobs, clock = await harness.open_stores(), Jobs(), FrozenClock()
    async with jobs.executor(stores, clock) as executor:
        await _run(executor)
        token = jobs.calls[0].token
        payload, _, signature = token.partition(".")
        odd = [
            "",
            ".",
            "x",
            payload,
            f"{payload}.",
            f"{payload}.{signature[:-2]}",
            f"{payload}x.{signature}",
            "é.é",
            "a" * 9999,
        ]
        for each in odd:
            expect_same(
                (await executor.complete_deferred(each, result=1)).status, "unknown", f"the token {each[:40]!r}"
            )
        async with make_executor(stores, ScriptedLLM([]), secret="another secret, long enough") as other:
            expect_same((await other.complete_deferred(token, result=1)).status, "unknown", "another server's token")
        async with make_executor(stores, ScriptedLLM([]), secret=["the new secret, of today", SECRET]) as rotated:
            with raises(InvalidArgument, "neither result nor error"):
                await rotated.complete_deferred(token)
        await executor.delete_session("s")
        expect_same((await executor.complete_deferred(token, result=1)).status, "gone", "a token of a deleted session")
        await _run(executor)
        again = await executor.complete_deferred(token, result=1)
        expect_same(again.status, "gone", "a token of a session that was recreated")
        expect_same((await executor.complete_deferred(jobs.calls[1].token, result=1)).status, "accepted", "its own")


@check(
    "X3",
    "if the process dies at any call, a deferred call waits; one that had not deferred yet runs again",
    kind="faults",
)
async def dead_while_deferring(harness: Harness) -> None:
    stores, measured = await harness.open_stores(), Life()
    async with Jobs().executor(measured.wrap(stores), FrozenClock()) as executor:
        await _run(executor, "measured")
    for last in range(1, measured.calls + 1):
        for reply_lost in (False, True):
            what, name = f"dead at call {last} ({reply_lost=})", f"s-{last}-{reply_lost}"
            life, jobs, clock = Life(last, reply_lost=reply_lost), Jobs(), FrozenClock()
            dying = jobs.executor(life.wrap(stores), clock)
            with suppress(HelixError):
                await _run(dying, name)
            await life.bury()
            await dying.close()
            if not await stores.state.session_exists(name):
                continue
            started = len(jobs.calls)
            clock.pass_seconds(LEASE_SECONDS + 1)
            async with jobs.executor(stores, clock) as executor:
                await _recover(executor)
                expect(len(jobs.calls) <= max(1, started), f"{what}: the function ran again after it had deferred")
                session = await stores.state.load_state(name)
                assert session is not None
                for call_id in session.pending_client_tool_calls:
                    await executor.submit_tool_result(name, call_id, result="rendered")
                await _recover(executor)
            session = await stores.state.load_state(name)
            expect_same(session.status if session else None, "completed", f"{what}: the status")
            expect_same(await _results(stores, name), ["rendered"], f"{what}: what the model reads")


# -- timers


class Sleeper:
    """A tool that waits twice, for times that it computes again whenever it runs."""

    def __init__(self, clock: Any) -> None:
        self.log: list[str] = []

        @tool
        async def remind(ctx: ToolContext) -> str:
            """Remind later."""
            self.log.append("start")
            await ctx.wait_until(clock() - 1)
            await ctx.wait_until(clock() + HOUR)
            self.log.append("one hour")
            ctx.update_state(lambda draft: draft["jobs"].append("hour"))
            await ctx.wait_until(clock() + HOUR)
            self.log.append("two hours")
            return "reminded"

        self.remind = remind


@tool(requires_approval=True)
async def approve() -> str:
    """Wait for a person, without a deadline."""
    return "approved"


@check("X3", "wait_until suspends the call until that time, even if a rerun computes another time")
async def waits_until(harness: Harness) -> None:
    stores, clock = await harness.open_stores(), FrozenClock()
    sleeper = Sleeper(clock)
    agent = simple_agent(sleeper.remind, approve, state={"jobs": []})
    llm = ScriptedLLM([[Call("remind"), Call("approve")], "Done."])
    options: dict[str, Any] = {"clock": clock, "lease_seconds": LEASE_SECONDS, "agents": [agent]}
    async with make_executor(stores, llm, **options) as executor:
        result = await executor.run("main", "Go", session_id="s")
        expect_same(sorted(wait.kind for wait in result.suspended), ["approval", "timer"], "what it waits for")
        expect_same([it.kind for it in (await executor.list_waiting()).items], ["approval"], "what people are asked")
        timer = next(wait for wait in result.suspended if wait.kind == "timer")
        with raises(InvalidArgument, "responding to a timer"):
            await executor.submit_tool_result("s", timer.tool_call_id, result=1)
    for hour in (1, 2):
        async with make_executor(await harness.open_stores(), llm, **options) as worker:
            clock.pass_seconds(3590)
            expect_same(await _recover(worker), [], f"what is continued before hour {hour}")
            clock.pass_seconds(10)
            expect_same(await _recover(worker), ["suspended_client_tool"], f"what is continued at hour {hour}")
    expect_same(sleeper.log, ["start", "start", "one hour", "start", "one hour", "two hours"], "what the function did")
    async with make_executor(stores, llm, **options) as worker:
        expect_same(await _recover(worker), [], "what is continued while a person is asked")
        (asked,) = (await worker.list_waiting()).items
        await worker.submit_tool_result("s", asked.tool_call_id, approved=True)
        expect_same(await _recover(worker), ["completed"], "what is continued after that")
    expect_same(await _results(stores), ["reminded", "approved"], "what the model reads")
    expect_same(await custom_state(stores, "s"), {"jobs": ["hour"]}, "what the function wrote, once")


@check("X3", "deferred and timed calls of sub-agents suspend their parents and continue through them")
async def deferred_below(harness: Harness) -> None:
    stores, jobs, clock = await harness.open_stores(), Jobs(), FrozenClock()

    @tool
    async def nap(ctx: ToolContext) -> str:
        """Wait a minute."""
        await ctx.wait_until(clock.start + 60_000)
        return "rested"

    child = simple_agent(jobs.render, nap, state={"jobs": []})
    child.name = "child"
    parent = simple_agent(child.as_tool())
    lines: dict[str, Any] = {
        "main": [[Call("child", {"input": "work"})], "Done."],
        "child": [[Call("nap"), Call("render")], "Worked."],
    }
    options: dict[str, Any] = {"clock": clock, "lease_seconds": LEASE_SECONDS, "agents": [parent], "secret": SECRET}
    async with make_executor(stores, ScriptedLLM(lines), **options) as executor:
        result = await executor.run("main", "Go", session_id="s")
        expect_same(sorted(wait.kind for wait in result.suspended), ["deferred", "timer"], "what it waits for")
        clock.pass_seconds(60)
        expect_same(await _recover(executor), ["suspended_awaiting_children"], "what is continued at its time")
        done = await executor.complete_deferred(jobs.calls[0].token, result="rendered")
        expect_same(done.status, "accepted", "the receipt")
        expect_same(await _recover(executor), ["completed"], "what is continued after that")
    expect_same(jobs.begun, 1, "how often the function ran")
    expect_same(await _results(stores), ["Worked."], "what the parent's model reads")
