"""X3: questions of a tool in the middle of a call. Any process may respond; the call reruns and gets the responses."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

from ...errors import HelixError, InvalidArgument
from ...executor import AgentExecutor
from ...llm.scripted import Call, ScriptedLLM
from ...tools import EffectKind, ToolContext, tool
from ..expect import expect, expect_same, raises
from ..harness import Harness, StoreSet
from .harness import check, chunks_of, make_executor, of_type, simple_agent, transcript
from .mortal import Life
from .x11_due import FrozenClock

LEASE_SECONDS = 10.0
SIZE = {"message": "Which size?", "schema": {"type": "object", "properties": {"size": {"type": "integer"}}}}
COLOR = "Which color?"


class Tailor:
    """A tool that asks two questions before it does something."""

    def __init__(self, effect: EffectKind | None = None) -> None:
        self.runs = 0
        self.made: list[Any] = []

        @tool(effect=effect)
        async def sew(cloth: str, ctx: ToolContext) -> str:
            """Sew a shirt."""
            self.runs += 1
            size: Any = await ctx.ask(SIZE)
            color = await ctx.ask(COLOR, deadline_seconds=3600)
            self.made.append([cloth, size, color])
            return f"{color} {cloth}, size {size['size']}"

        self.agent = simple_agent(sew)

    def executor(self, stores: StoreSet, clock: Any) -> AgentExecutor:
        """Return an executor of an agent that orders one shirt."""
        llm = ScriptedLLM([[Call("sew", {"cloth": "linen"})], "Done."])
        return make_executor(stores, llm, clock=clock, lease_seconds=LEASE_SECONDS, agents=[self.agent])


async def _answer(executor: AgentExecutor, session_id: str) -> list[Any]:
    """Respond to questions until none is left; return what was asked."""
    asked = []
    for _ in range(6):
        for handle in await executor.recover():
            await handle.result()
        waits = [wait for wait in (await executor.list_waiting()).items if wait.session_id == session_id]
        if not waits:
            break
        for wait in waits:
            asked.append(wait.question if wait.kind == "client" else wait.kind)
            answer: dict[str, Any] = {"result": {"size": 3} if wait.question == SIZE else "blue"}
            given = {"happened": False} if wait.kind == "outcome" else answer
            await executor.submit_tool_result(session_id, wait.approval_id or wait.tool_call_id, **given)
    return asked


async def _results(stores: StoreSet, session_id: str) -> list[Any]:
    return [message["content"] for message in await transcript(stores, session_id) if message["role"] == "tool"]


@check("X3", "a tool's question suspends the run; any process may respond, and the call reruns with the responses")
async def tools_ask(harness: Harness) -> None:
    stores, tailor, clock = await harness.open_stores(), Tailor(), FrozenClock()
    async with tailor.executor(stores, clock) as executor:
        result = await executor.run("main", "Go", session_id="s")
    expect_same(
        [(wait.kind, wait.input) for wait in result.suspended], [("client", {"cloth": "linen"})], "the question"
    )
    first = result.suspended[0].approval_id
    assert first is not None
    async with tailor.executor(stores, clock) as other:
        expect_same([wait.question for wait in (await other.list_waiting()).items], [SIZE], "what is listed")
        with raises(InvalidArgument, "approving a question"):
            await other.submit_tool_result("s", first, approved=True)
        await other.submit_tool_result("s", first, result={"size": 3})
        expect_same([(await handle.result()).status for handle in await other.recover()], ["suspended_client_tool"], "")
        with raises(InvalidArgument, "a second response to a question"):
            await other.submit_tool_result("s", first, result={"size": 4})
        expect_same([wait.question for wait in (await other.list_waiting()).items], [COLOR], "what is listed next")
    async with tailor.executor(stores, clock) as third:
        await _answer(third, "s")
    expect_same(await _results(stores, "s"), ["blue linen, size 3"], "what the model reads")
    expect_same((tailor.runs, tailor.made), (3, [["linen", {"size": 3}, "blue"]]), "what the tool did")
    shown = of_type(await chunks_of(stores, "s"), "client_tool_request")
    expect_same([chunk["question"] for chunk in shown], [SIZE, COLOR], "what readers see")


@check("X3", "an error or a deadline ends a call that asks; a changed question is asked again")
async def questions_end(harness: Harness) -> None:
    stores, clock = await harness.open_stores(), FrozenClock()
    tailor = Tailor()
    async with tailor.executor(stores, clock) as executor:
        for session_id in ("a", "b"):
            result = await executor.run("main", "Go", session_id=session_id)
            call_id = result.suspended[0].tool_call_id
            if session_id == "a":
                await executor.submit_tool_result("a", call_id, error="Nobody knows the size.")
            else:
                await executor.submit_tool_result("b", call_id, result={"size": 3})
                await (await executor.resume("main", "b")).result()
                clock.pass_seconds(3601)
            expect_same((await (await executor.resume("main", session_id)).result()).status, "completed", "the status")
    expect("Nobody knows" in (await _results(stores, "a"))[0], "the error did not reach the model")
    expect("deadline" in (await _results(stores, "b"))[0], "the deadline did not reach the model")
    expect_same(tailor.made, [], "what was made without a response")
    wanted = ["Which size?"]

    @tool
    async def measure(ctx: ToolContext) -> Any:
        """Measure."""
        return await ctx.ask(wanted[0])

    agent = simple_agent(measure)
    async with make_executor(stores, ScriptedLLM([[Call("measure")], "Done."]), clock=clock, agents=[agent]) as other:
        result = await other.run("main", "Go", session_id="c")
        await other.submit_tool_result("c", result.suspended[0].tool_call_id, result="3")
        wanted[0] = "Which length?"
        result = await (await other.resume("main", "c")).result()
        expect_same(
            [wait.asked.question for wait in result.suspended if wait.asked], ["Which length?"], "what is asked"
        )


@check(
    "X3",
    "if the process dies at any call, a tool still asks, and its effect is not repeated without asking",
    kind="faults",
)
async def dead_while_asking(harness: Harness) -> None:
    stores, measured = await harness.open_stores(), Life()
    async with Tailor().executor(measured.wrap(stores), FrozenClock()) as executor:
        await executor.run("main", "Go", session_id="measured")
        await _answer(executor, "measured")
    rng, most = random.Random(harness.options.seed), max(3, harness.options.steps // 5)
    for effect in (None, "once"):
        for last in sorted(rng.sample(range(1, measured.calls + 1), min(measured.calls, most))):
            what, name = f"{effect}: dead at call {last}", f"s-{effect}-{last}"
            life, tailor, clock = Life(last, reply_lost=not effect and last % 2 == 0), Tailor(effect), FrozenClock()
            dying = tailor.executor(life.wrap(stores), clock)
            with suppress(HelixError):
                await dying.run("main", "Go", session_id=name)
                await _answer(dying, name)
            await life.bury()
            await dying.close()
            if not await stores.state.session_exists(name):
                continue
            made = len(tailor.made)
            clock.pass_seconds(LEASE_SECONDS + 1)
            async with tailor.executor(stores, clock) as executor:
                asked = await _answer(executor, name)
            session = await stores.state.load_state(name)
            expect_same(session.status if session else None, "completed", f"{what}: the status")
            expect_same(await _results(stores, name), ["blue linen, size 3"], f"{what}: what the model reads")
            if effect == "once" and len(tailor.made) > made == 1:
                expect("outcome" in asked, f"{what}: made again without a question")
