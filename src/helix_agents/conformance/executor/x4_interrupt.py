"""X4: interrupts. Durable, from any process, at a safe point, with the partial reply stored; and aborts."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from ...agent import Agent
from ...executor import Hooks
from ...executor.run.hooks import RunInfo
from ...llm.contract import ModelRequest
from ...llm.scripted import Call, Script, ScriptedLLM
from ...stores.state.contract import StateStore
from ...tools import ToolContext, tool
from ...types import StagedChanges
from ..expect import expect, expect_same
from ..harness import Harness, StoreSet
from .harness import Parts, check, chunks_of, custom_state, executing, family, of_type, simple_agent, transcript
from .view import View

LONG = "word " * 400


@check("X4", "an interrupt from another process stops a streaming run, which retains its text and can be resumed")
async def interrupted_while_streaming(harness: Harness) -> None:
    stores, other = await harness.open_stores(), await harness.open_stores()
    agent = simple_agent()
    llm = ScriptedLLM([LONG], delay_seconds=0.01, piece=5)
    async with executing(stores, llm) as executor, executing(other, llm) as elsewhere:
        handle = await executor.execute(agent, "Go", session_id="s")
        async for chunk in handle.stream():
            if chunk["type"] == "text_delta":
                await elsewhere.interrupt("s", "enough")
                break
        result = await asyncio.wait_for(handle.result(), 20)
    expect_same(result.status, "interrupted", "the status")
    messages = await transcript(stores, "s")
    partial = messages[-1]
    expect(partial.get("interrupted") is True and LONG.startswith(partial["content"]), f"the partial reply: {partial}")
    shown = "".join(chunk["delta"] for chunk in of_type(await chunks_of(stores, "s"), "text_delta"))
    expect_same(shown, partial["content"], "what was shown and what is stored")
    session = await stores.state.load_state("s")
    expect(session is not None and session.interrupt_context["reason"] == "enough", "the reason is not stored")
    expect(await stores.state.check_interrupt_flag("s") is None, "the flag is still set")
    async with executing(other, ScriptedLLM(["The end."])) as elsewhere:
        expect((await elsewhere.can_resume("s")).can_resume, "the session cannot be resumed")
        result = await (await elsewhere.resume(agent, "s", message="Go on.")).result()
    expect_same([result.status, result.output], ["completed", "The end."], "the result after resuming")
    roles = [message["role"] for message in await transcript(stores, "s")]
    expect_same(roles, ["user", "assistant", "user", "assistant"], "the conversation")


@check("X4", "an interrupt while tools work lets them finish; their step is committed")
async def interrupted_while_tools_work(harness: Harness) -> None:
    stores = await harness.open_stores()
    started = asyncio.Event()

    @tool
    async def work(ctx: ToolContext) -> str:
        """Work until asked to stop."""
        started.set()
        while not ctx.interrupted:  # noqa: ASYNC110  # what tools do: they look
            await asyncio.sleep(0.005)
        ctx.update_state(lambda draft: draft.update(stopped=True))
        return "stopped early"

    agent = simple_agent(work, state={})
    async with executing(stores, ScriptedLLM([[Call("work")], "Done."])) as executor:
        handle = await executor.execute(agent, "Go", session_id="s")
        await started.wait()
        await handle.interrupt("lunch")
        result = await handle.result()
        expect_same(result.status, "interrupted", "the status")
        expect_same(await custom_state(stores, "s"), {"stopped": True}, "custom state")
        result = await (await handle.resume()).result()
    expect_same([result.status, result.output], ["completed", "Done."], "the result after resuming")
    expect_same(len(await transcript(stores, "s")), 4, "the number of messages")


@check("X4", "an interrupt flag for a run that has ended does not stop the next run")
async def old_flags_do_nothing(harness: Harness) -> None:
    stores = await harness.open_stores()
    agent = simple_agent()
    llm = ScriptedLLM(["One.", "Two. " * 10, "Three. " * 10], delay_seconds=0.01)
    async with executing(stores, llm, poll_seconds=0.005) as executor:
        first = await executor.execute(agent, "1", session_id="s")
        await first.result()
        await stores.state.set_interrupt_flag("s", "too late", run_id=first.run_id)
        result = await (await executor.execute(agent, "2", session_id="s")).result()
        expect_same(result.status, "completed", "the next run")
        await stores.state.set_interrupt_flag("s", "for nobody")
        await asyncio.sleep(0.005)
        result = await (await executor.execute(agent, "3", session_id="s")).result()
    expect_same(result.status, "completed", "the run after a flag that names no run")


@check("X4", "an interrupt reaches the sub-agents; both continue where they were")
async def interrupt_cascades(harness: Harness) -> None:
    stores = await harness.open_stores()
    child = Agent("child")
    agent = simple_agent(child.as_tool())
    slow: dict[str, Script] = {"main": [[Call("child", {"input": "go"})], "Done."], "child": [LONG]}
    async with executing(stores, ScriptedLLM(slow, delay_seconds=0.01, piece=5)) as executor:
        handle = await executor.execute(agent, "Go", session_id="s")
        async for chunk in handle.stream():
            if chunk["type"] == "text_delta":
                await handle.interrupt("stop")
                break
        result = await handle.result()
    expect_same(result.status, "interrupted", "the parent")
    below = await stores.state.load_state("s/call_1_1")
    expect(below is not None and below.status == "interrupted", f"the child is {below and below.status}")
    fast: dict[str, Script] = {"main": slow["main"], "child": ["Short."]}
    async with executing(stores, ScriptedLLM(fast)) as executor:
        result = await (await executor.resume(agent, "s")).result()
    expect_same([result.status, result.output], ["completed", "Done."], "the result after resuming")
    told = [message["content"] for message in await transcript(stores, "s") if message["role"] == "tool"]
    expect_same(told, ["Short."], "the output of the child")


@check("X4", "an abort immediately ends a run and its tools, and the conversation can be continued")
async def aborted(harness: Harness) -> None:
    stores, other = await harness.open_stores(), await harness.open_stores()
    started = asyncio.Event()
    fate: list[str] = []

    @tool
    async def stubborn(ctx: ToolContext) -> str:
        """Never end."""
        ctx.update_state(lambda draft: draft.update(begun=True))
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            fate.append("cancelled")
            raise
        return "never"

    @tool
    async def quick(ctx: ToolContext) -> str:
        """End immediately."""
        ctx.update_state(lambda draft: draft.update(quick=True))
        return "ok"

    agent = simple_agent(stubborn, quick, state={})
    llm = ScriptedLLM([[Call("quick"), Call("stubborn")], "Again."])
    async with executing(stores, llm) as executor, executing(other, llm) as elsewhere:
        handle = await executor.execute(agent, "Go", session_id="s")
        await started.wait()
        await elsewhere.abort("s", "wrong session")
        result = await asyncio.wait_for(handle.result(), 20)
        expect_same([result.status, result.error], ["failed", "wrong session"], "the result")
        expect_same(fate, ["cancelled"], "what became of the tool")
        expect_same(await custom_state(stores, "s"), {"quick": True}, "custom state")
        view = View()
        for chunk in await chunks_of(stores, "s"):
            view.take(chunk)
        expect_same(view.state({}), {"quick": True}, "the state of a reader")
        result = await (await executor.execute(agent, "Once more", session_id="s")).result()
    expect_same(result.output, "Again.", "the next turn")


@check("X4", "an abort reaches the sub-agents: working and waiting ones end with their parent")
async def abort_cascades(harness: Harness) -> None:
    stores, other = await harness.open_stores(), await harness.open_stores()
    started = asyncio.Event()

    @tool
    async def forever() -> str:
        """Never end."""
        started.set()
        await asyncio.Event().wait()
        return "never"

    @tool(execute="client")
    def ask() -> str:
        """Ask a person."""
        raise NotImplementedError

    inner = Agent("inner", tools=[forever])
    works, asks = Agent("works", tools=[inner.as_tool(mode="persistent")]), Agent("asks", tools=[ask])
    agent = simple_agent(works.as_tool(), asks.as_tool())
    script: dict[str, Script] = {
        "main": [[Call("asks", {"input": "x"}), Call("works", {"input": "x"})], "Again."],
        "works": [[Call("inner", {"input": "x"})]],
        "inner": [[Call("forever")]],
        "asks": [[Call("ask")]],
    }
    async with executing(stores, ScriptedLLM(script)) as executor, executing(other, ScriptedLLM(script)) as elsewhere:
        handle = await executor.execute(agent, "Go", session_id="s")
        await started.wait()
        await _until_asked(stores, "s/call_1_1")
        await elsewhere.abort("s", "no more")
        result = await asyncio.wait_for(handle.result(), 20)
        expect_same([result.status, result.error], ["failed", "no more"], "the result")
        members = await family(stores, "s")
        expect_same(len(members), 4, "the session and its descendants")
        for member in members:
            session, run = await stores.state.load_state(member), await stores.state.get_current_run(member)
            found = [session and session.status, session and session.failure_reason, run and run.status]
            expect_same(found, ["failed", "aborted", "failed"], f"session {member}, why, and its run")
            refs = await stores.state.list_sub_session_refs(member)
            expect_same([ref.status for ref in refs if ref.status != "failed"], [], f"the refs of {member}")
        result = await (await executor.execute(agent, "Once more", session_id="s")).result()
    expect_same(result.output, "Again.", "the next turn")


async def _until_asked(stores: StoreSet, session_id: str) -> None:
    """Wait until a session is suspended."""
    while True:
        session = await stores.state.load_state(session_id)
        if session is not None and session.status == "suspended_client_tool":
            return
        await asyncio.sleep(0.005)


@check("X4", "no reason that a person gives turns an interrupt into an abort")
async def reasons_are_only_reasons(harness: Harness) -> None:
    stores = await harness.open_stores()
    llm = ScriptedLLM([LONG], delay_seconds=0.01, piece=5)
    async with executing(stores, llm) as executor:
        handle = await executor.execute(simple_agent(), "Go", session_id="s")
        await handle.interrupt("\x1eabort\x1ehm")
        result = await asyncio.wait_for(handle.result(), 20)
    expect_same(result.status, "interrupted", "the status")


@check("X4", "a suspended session can be interrupted and aborted")
async def suspended_sessions_stop(harness: Harness) -> None:
    stores = await harness.open_stores()

    @tool(execute="client")
    def ask(question: str) -> str:
        """Ask a person."""
        raise NotImplementedError

    agent = simple_agent(ask)
    llm = ScriptedLLM([[Call("ask", {"question": "?"})], "Done."])
    async with executing(stores, llm) as executor:
        for session_id in ("a", "b"):
            await (await executor.execute(agent, "Go", session_id=session_id)).result()
        await executor.interrupt("a", "pause")
        await executor.abort("b", "no longer needed")
        statuses: list[Any] = []
        for session_id in ("a", "b"):
            session = await stores.state.load_state(session_id)
            statuses.append(session and session.status)
        expect_same(statuses, ["interrupted", "failed"], "the statuses")
        await executor.submit_tool_result("a", "call_1_1", result="blue")
        result = await (await executor.resume(agent, "a")).result()
    expect_same(result.output, "Done.", "the interrupted session continues with its response")


@check("X4", "readers see an interrupt and its reason, also while a question is pending")
async def interrupts_are_told(harness: Harness) -> None:
    stores = await harness.open_stores()
    started = asyncio.Event()

    @tool
    async def work(ctx: ToolContext) -> str:
        """Work until asked to stop."""
        started.set()
        while not ctx.interrupted:  # noqa: ASYNC110  # what tools do: they look
            await asyncio.sleep(0.005)
        return "stopped early"

    @tool(execute="client")
    def ask() -> str:
        """Ask a person."""
        raise NotImplementedError

    agent = simple_agent(work, ask)
    for session_id, calls in (("a", [Call("work")]), ("b", [Call("work"), Call("ask")])):
        started.clear()
        async with executing(stores, ScriptedLLM([calls, "Done."])) as executor:
            handle = await executor.execute(agent, "Go", session_id=session_id)
            await started.wait()
            await handle.interrupt("lunch")
            result = await asyncio.wait_for(handle.result(), 20)
        expect_same(result.status, "interrupted", "the status")
        told = of_type(await chunks_of(stores, session_id), "run_interrupted", "run_suspended", "output", "error")
        expect_same(
            [[chunk["type"], chunk.get("reason")] for chunk in told],
            [["run_interrupted", "lunch"]],
            f"what readers of {session_id} see of the end",
        )


@check("X4", "a run that is interrupted before it calls the model does not call it")
async def interrupted_before_the_model(harness: Harness) -> None:
    stores = await harness.open_stores()
    asked: list[int] = []

    class Stopper(Hooks):
        async def model_started(self, run: RunInfo, step: int, attempt: int) -> None:
            await executor.interrupt("s", "wait")

    def answer(request: ModelRequest) -> str:
        asked.append(request.step)
        return "Too late."

    async with executing(stores, ScriptedLLM(answer), hooks=[Stopper()], poll_seconds=60) as executor:
        result = await asyncio.wait_for((await executor.execute(simple_agent(), "Go", session_id="s")).result(), 20)
    expect_same([result.status, asked], ["interrupted", []], "the status, and the steps for which the model was called")
    expect_same(len(await transcript(stores, "s")), 1, "the number of messages")


class _SlowStaging:
    """A state store whose replies to staged outcomes wait until they are released."""

    def __init__(self, inner: StateStore) -> None:
        self._inner = inner
        self.staged, self.released = asyncio.Event(), asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def stage_calls(self, session_id: str, step_id: str, calls: list[StagedChanges], **options: Any) -> None:
        await self._inner.stage_calls(session_id, step_id, calls, **options)
        if any(row.kind == "call" for row in calls):
            self.staged.set()
            await self.released.wait()


@check("X4", "after an abort while a finished call is being staged, conversation and committed writes agree")
async def aborted_while_staging(harness: Harness) -> None:
    stores = await harness.open_stores()
    slow = _SlowStaging(stores.state)

    @tool
    async def stubborn() -> str:
        """Never end."""
        try:
            await asyncio.Event().wait()
        finally:
            slow.released.set()  # the abort has arrived
        return "never"

    @tool
    async def pay(ctx: ToolContext) -> str:
        """End immediately."""
        ctx.update_state(lambda draft: draft.update(paid=True))
        return "paid"

    agent = simple_agent(pay, stubborn, state={})
    parts = Parts(cast(StateStore, slow), stores.streams, stores.usage)
    async with executing(parts, ScriptedLLM([[Call("pay"), Call("stubborn")]])) as executor:
        handle = await executor.execute(agent, "Go", session_id="s")
        await slow.staged.wait()
        await executor.abort("s", "stop")
        result = await asyncio.wait_for(handle.result(), 20)
    expect_same([result.status, result.failure_reason], ["failed", "aborted"], "the result")
    told = [message["content"] for message in await transcript(stores, "s") if message["role"] == "tool"]
    expect_same(told[0], "paid", "what the conversation says about the finished call")
    expect(told[1].startswith("Error: "), f"what the conversation says about the call that was cut off: {told[1]}")
    expect_same(await custom_state(stores, "s"), {"paid": True}, "custom state")
    ends = {chunk["tool_call_id"]: chunk["success"] for chunk in of_type(await chunks_of(stores, "s"), "tool_end")}
    expect_same(ends.get("call_1_1"), True, "the last tool_end of the finished call")
