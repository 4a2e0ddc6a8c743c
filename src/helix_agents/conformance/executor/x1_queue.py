"""X1: messages for a session that is running: rejected, enqueued for that run, or interrupting it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from typing import Any

from ...agent import Agent
from ...errors import AlreadyRunning, InvalidArgument, ModelError
from ...executor import AgentExecutor
from ...llm.contract import ModelEvent, ModelRequest
from ...llm.scripted import Call, Line, ScriptedLLM
from ...tools import ToolContext, tool
from ..expect import expect, expect_same, raises
from ..harness import Harness
from .frozen import Freezer
from .harness import Clockwork, check, executing, simple_agent, transcript


def _user_messages(messages: list[dict[str, Any]]) -> list[str]:
    return [message["content"] for message in messages if message["role"] == "user"]


class Gated:
    """An agent whose first step calls a tool that waits, and which then replies how many messages it has read."""

    def __init__(self, *others: Any) -> None:
        self.begun, self.gate = asyncio.Event(), asyncio.Event()
        self.ran = 0

        @tool
        async def wait(ctx: ToolContext) -> str:
            """Wait until the check releases it or the run is asked to stop."""
            self.ran += 1
            self.begun.set()
            while not ctx.interrupted and not self.gate.is_set():  # noqa: ASYNC110  # two things to wait for
                await asyncio.sleep(0.01)
            return "waited"

        self.agent = simple_agent(wait, *others)

    def llm(self, *first: Call, then: Callable[[ModelRequest], Line] | None = None) -> ScriptedLLM:
        """Call the tool once, then reply."""

        def line(request: ModelRequest) -> Line:
            if not any(message["role"] == "assistant" for message in request.messages):
                return [Call("wait"), *first]
            return then(request) if then is not None else f"Read {len(_user_messages(list(request.messages)))}."

        return ScriptedLLM(line)


async def _begin(executor: AgentExecutor, gated: Gated) -> Any:
    handle = await executor.execute(gated.agent, "Go", session_id="s")
    await gated.begun.wait()
    return handle


@check("X1", "messages enqueued from any process are read in order by the running run")
async def enqueued_in_order(harness: Harness) -> None:
    stores, elsewhere = await harness.open_stores(), await harness.open_stores()
    gated = Gated()
    async with executing(stores, gated.llm()) as executor, executing(elsewhere, gated.llm()) as other:
        handle = await _begin(executor, gated)
        with raises(AlreadyRunning, "a message that is not to be enqueued"):
            await other.execute(gated.agent, "No", session_id="s")
        with raises(InvalidArgument, "an unknown value of if_running"):
            await other.execute(gated.agent, "No", session_id="s", if_running="maybe")  # type: ignore[arg-type]
        for text in ("one", "two", "three"):
            same = await other.execute(gated.agent, text, session_id="s", if_running="enqueue")
            expect_same(same.run_id, handle.run_id, "the run that gets the message")
        gated.gate.set()
        results = [await handle.result(), await same.result()]
        expect_same([result.output for result in results], ["Read 4.", "Read 4."], "the results")
    messages = await transcript(stores, "s")
    expect_same(_user_messages(messages), ["Go", "one", "two", "three"], "the user's messages")
    expect_same([message["role"] for message in messages][-5:], ["tool", *["user"] * 3, "assistant"], "their position")
    expect_same(len(await stores.state.list_runs("s")), 1, "the number of runs")


class SlowAnswer(ScriptedLLM):
    """A model that sends its first reply only when the check allows it."""

    def __init__(self) -> None:
        super().__init__(lambda request: f"Read {len(_user_messages(list(request.messages)))}.")
        self.asked, self.gate = asyncio.Event(), asyncio.Event()

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        self.asked.set()
        await self.gate.wait()
        async for event in super().stream(request):
            yield event


@check("X1", "a message that arrives during the last reply is read before the run ends")
async def enqueued_during_the_last_answer(harness: Harness) -> None:
    stores, elsewhere = await harness.open_stores(), await harness.open_stores()
    llm, agent = SlowAnswer(), simple_agent()
    async with executing(stores, llm) as executor, executing(elsewhere, llm) as other:
        handle = await executor.execute(agent, "Go", session_id="s")
        await llm.asked.wait()
        await other.execute(agent, "one", session_id="s", if_running="enqueue")
        llm.gate.set()
        expect_same((await handle.result()).output, "Read 2.", "the output")
    roles = [message["role"] for message in await transcript(stores, "s")]
    expect_same(roles, ["user", "assistant", "user", "assistant"], "the conversation")


@check("X1", "a message is read exactly once whenever it is enqueued, even while a run ends", kind="tasks")
async def enqueued_at_any_moment(harness: Harness) -> None:
    stores, elsewhere = await harness.open_stores(), await harness.open_stores()
    rng = random.Random(harness.options.seed)
    llm = ScriptedLLM(lambda request: f"Read {len(_user_messages(list(request.messages)))}.")
    agent = simple_agent(max_steps=200)

    async def send(executor: AgentExecutor, name: str) -> None:
        for number in range(8):
            handle = await executor.execute(agent, f"{name}{number}", session_id="s", if_running="enqueue")
            if rng.random() < 0.4:
                await handle.result()
            for _ in range(rng.randrange(12)):
                await asyncio.sleep(0)

    async with executing(stores, llm) as one, executing(elsewhere, llm) as other:
        await asyncio.gather(send(one, "a"), send(other, "b"), send(one, "c"))
        handle = await one.get_handle(agent, "s")
        assert handle is not None
        result = await handle.result()
        expect_same(result.output, "Read 24.", "the last reply")
    said = _user_messages(await transcript(stores, "s"))
    for name in "abc":
        expect_same(
            [text for text in said if text[0] == name], [f"{name}{n}" for n in range(8)], f"the messages of {name}"
        )


@check("X1", "a message that a dead run had not read is read once, by its successor")
async def enqueued_before_a_crash(harness: Harness) -> None:
    gated = Gated()
    async with executing(await harness.open_stores(), gated.llm()) as executor:
        await _begin(executor, gated)
        await executor.execute(gated.agent, "one", session_id="s", if_running="enqueue")
    stores = await harness.open_stores()
    gated.gate.set()
    async with executing(stores, gated.llm()) as executor:
        result = await (await executor.resume(gated.agent, "s", message="two")).result()
        expect_same(result.output, "Read 3.", "the result")
    expect_same(_user_messages(await transcript(stores, "s")), ["Go", "one", "two"], "the user's messages")
    session = await stores.state.load_state("s")
    expect(session is not None and session.queued_messages == [], "a message is still in the queue")


@check("X1", "an enqueued message waits while its run is suspended, and leaves pending questions alone")
async def enqueued_before_a_suspension(harness: Harness) -> None:
    @tool(execute="client")
    def ask() -> str:
        """Ask a person."""
        raise NotImplementedError

    gated = Gated(ask)
    async with executing(await harness.open_stores(), gated.llm(Call("ask"))) as executor:
        handle = await _begin(executor, gated)
        await executor.execute(gated.agent, "one", session_id="s", if_running="enqueue")
        gated.gate.set()
        result = await handle.result()
        expect_same([wait.tool_name for wait in result.suspended], ["ask"], "what is pending")
    stores = await harness.open_stores()
    async with executing(stores, gated.llm(Call("ask"))) as executor:
        await executor.submit_tool_result("s", "call_1_2", result="so")
        result = await (await executor.resume(gated.agent, "s")).result()
        expect_same(result.output, "Read 2.", "the result")
    roles = [message["role"] for message in await transcript(stores, "s")]
    expect_same(roles, ["user", "assistant", "tool", "tool", "user", "assistant"], "the conversation")
    expect_same(gated.ran, 1, "how often the finished tool ran")


@check("X1", "a message that a failed run had not read is read by the next turn")
async def enqueued_before_a_failure(harness: Harness) -> None:
    stores = await harness.open_stores()
    gated = Gated()
    failing = True

    def then(request: ModelRequest) -> Line:
        return ModelError("broken") if failing else f"Read {len(_user_messages(list(request.messages)))}."

    async with executing(stores, gated.llm(then=then)) as executor:
        handle = await _begin(executor, gated)
        await executor.execute(gated.agent, "one", session_id="s", if_running="enqueue")
        gated.gate.set()
        expect_same((await handle.result()).status, "failed", "the status")
        failing = False
        result = await executor.run(gated.agent, "two", session_id="s", if_running="enqueue")
        expect_same(result.output, "Read 3.", "the result")
    expect_same(_user_messages(await transcript(stores, "s")), ["Go", "one", "two"], "the user's messages")


@check("X1", "a message may interrupt a run in any process, and the session continues with that message")
async def interrupting(harness: Harness) -> None:
    stores, elsewhere = await harness.open_stores(), await harness.open_stores()
    gated = Gated()
    async with executing(stores, gated.llm()) as executor, executing(elsewhere, gated.llm()) as other:
        handle = await _begin(executor, gated)
        result = await other.run(gated.agent, "Stop that", session_id="s", if_running="interrupt")
        expect_same((await handle.result()).status, "interrupted", "the run that was interrupted")
        expect_same([result.status, result.output], ["completed", "Read 2."], "the run that continued")
        result = await other.run(gated.agent, "And?", session_id="s", if_running="interrupt")
        expect_same(result.output, "Read 3.", "a message for a session that is not running")
    expect_same(_user_messages(await transcript(stores, "s")), ["Go", "Stop that", "And?"], "the user's messages")
    expect_same(gated.ran, 1, "how often the tool ran")


def _guarded_agent(*tools: Any) -> Agent:
    agent = simple_agent(*tools)

    @agent.check_input
    def check_words(messages: list[dict[str, Any]]) -> None:
        if any("bad" in message["content"] for message in messages):
            raise ValueError("bad words")

    return agent


@check("X1", "a guardrail that rejects a message removes that message from the conversation, and no other")
async def only_the_refused_message_goes(harness: Harness) -> None:
    stores = await harness.open_stores()
    at_work, go_on = asyncio.Event(), asyncio.Event()

    @tool
    async def work() -> str:
        """Work until all messages have arrived."""
        at_work.set()
        await go_on.wait()
        return "worked"

    agent = _guarded_agent(work)
    async with executing(stores, ScriptedLLM([[Call("work")], "Next."])) as executor:
        handle = await executor.execute(agent, "Go", session_id="s")
        await at_work.wait()
        for text in ("Ann says", "a bad word", "Eve says"):
            await executor.execute(agent, text, session_id="s", if_running="enqueue")
        go_on.set()
        result = await handle.result()
        expect_same([result.status, result.failure_reason], ["failed", "input_refused"], "the result")
        said = [message["content"] for message in await transcript(stores, "s") if message["role"] == "user"]
        expect_same(said, ["Go", "Ann says", "Eve says"], "the users' messages")


@check(
    "X1",
    "a run whose input is rejected and that stalls before it reports this does not change later turns",
    kind="faults",
)
async def refused_and_stalled(harness: Harness) -> None:
    agent = _guarded_agent()
    for call in ("truncate_messages", "save_state"):
        stores, session_id, later = await harness.open_stores(), f"s-{call}", Clockwork()
        freezer = Freezer(on=call, session_id=session_id)
        script = ScriptedLLM(lambda request: "re: " + request.messages[-1]["content"])
        async with (
            executing(freezer.wrap(stores), script) as frozen,
            executing(stores, script, clock=later) as other,
        ):
            await (await other.execute(agent, "one", session_id=session_id)).result()
            running = asyncio.create_task((await frozen.execute(agent, "bad", session_id=session_id)).result())
            stopping = asyncio.create_task(freezer.frozen.wait())
            await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            later.pass_seconds(3600)
            if not running.done():
                await (await other.resume(agent, session_id)).result()
            for text in ("two", "three"):
                await (await other.execute(agent, text, session_id=session_id)).result()
            before = await transcript(stores, session_id)
            freezer.wake()
            await asyncio.gather(running, return_exceptions=True)
        said = [message["content"] for message in before]
        expect_same(said, ["one", "re: one", "two", "re: two", "three", "re: three"], "the conversation")
        expect_same(await transcript(stores, session_id), before, f"the conversation after waking before {call}")
