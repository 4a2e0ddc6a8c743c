"""X3: people in the loop. A run is suspended; responses come from any process, in any order, twice, or late."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import suppress
from typing import Any

from ...errors import AlreadyRunning, InvalidArgument, NotResumable
from ...executor import AgentResult
from ...llm.scripted import Call, Script, ScriptedLLM
from ...tools import ToolContext, tool
from ...types import SessionState
from ..expect import expect, expect_same, raises
from ..harness import Harness, StoreSet
from .harness import Clockwork, check, chunks_of, executing, make_executor, of_type, simple_agent, transcript
from .mortal import Died, Life
from .play import expect_marked_gaps

LEASE_SECONDS = 30.0
SCRIPT: Script = [
    [Call("ask", {"question": "Colour?"}), Call("work"), Call("delete", {"path": "/tmp"})],
    "Done.",
]


class People:
    """Tools that count their executions."""

    def __init__(self, *, deadline_seconds: float | None = None) -> None:
        self.ran: list[str] = []
        ran = self.ran

        @tool
        async def work(ctx: ToolContext) -> str:
            """Work immediately."""
            ran.append("work")
            ctx.update_state(lambda draft: draft.increment("n"))
            return "worked"

        @tool(requires_approval=True, deadline_seconds=deadline_seconds)
        async def delete(path: str, ctx: ToolContext) -> str:
            """Delete something, if a person agrees."""
            ran.append("delete")
            ctx.update_state(lambda draft: draft.increment("n"))
            return f"deleted {path}"

        @tool(execute="client", deadline_seconds=deadline_seconds)
        def ask(question: str) -> str:
            """Ask a person."""
            raise NotImplementedError

        self.agent = simple_agent(ask, work, delete, state={"n": 0})


async def _suspend(stores: StoreSet, people: People, **options: Any) -> AgentResult:
    """Start a run in an executor that is closed afterwards."""
    async with executing(stores, ScriptedLLM(SCRIPT), **options) as executor:
        return await (await executor.execute(people.agent, "Go", session_id="s")).result()


async def _session(stores: StoreSet) -> SessionState:
    session = await stores.state.load_state("s")
    assert session is not None
    return session


def _tool_results(messages: list[dict[str, Any]]) -> list[str]:
    return [message["content"] for message in messages if message["role"] == "tool"]


@check("X3", "a run that asks is suspended with its questions, and the results of finished siblings are stored")
async def asking_suspends(harness: Harness) -> None:
    stores = await harness.open_stores()
    people = People()
    result = await _suspend(stores, people)
    expect_same(result.status, "suspended_client_tool", "the status")
    expect_same(sorted(wait.tool_name for wait in result.suspended), ["ask", "delete"], "what is pending")
    session = await _session(stores)
    expect_same(session.custom_state, {"n": 0}, "custom state before the step is committed")
    expect_same(people.ran, ["work"], "what ran")
    last = (await transcript(stores, "s"))[-1]
    expect_same(len(last["tool_calls"]), 3, "the calls in the conversation")
    chunks = await chunks_of(stores, "s")
    expect_same(len(of_type(chunks, "client_tool_request", "tool_approval_request")), 2, "the requests on the stream")
    info = await stores.streams.get_stream_info("s")
    run = await stores.state.get_current_run("s")
    expect(info is not None and info.status == "paused", "the stream is not paused")
    expect(run is not None and run.status == "suspended_client_tool", "the run is not suspended")


@check("X3", "responses from another process, in any order, let another run finish; siblings do not run again")
async def answered_elsewhere(harness: Harness) -> None:
    people = People()
    await _suspend(await harness.open_stores(), people)
    stores = await harness.open_stores()
    async with executing(stores, ScriptedLLM(SCRIPT)) as executor:
        for call_id, answer in (("call_1_3", {"approved": True}), ("call_1_1", {"result": "blue"})):
            expect(
                not (await executor.can_resume("s")).can_resume, "the session can be resumed before the last response"
            )
            with raises(NotResumable, "resuming before the last response"):
                await executor.resume(people.agent, "s")
            receipt = await executor.submit_tool_result("s", call_id, **answer)
            expect_same(receipt.status, "accepted", "the receipt")
        expect((await executor.can_resume("s")).can_resume, "the session cannot be resumed after the last response")
        result = await (await executor.resume(people.agent, "s")).result()
    expect_same([result.status, result.output], ["completed", "Done."], "the result")
    expect_same(_tool_results(await transcript(stores, "s")), ["blue", "worked", "deleted /tmp"], "what the model saw")
    session = await _session(stores)
    expect_same(session.custom_state, {"n": 2}, "custom state")
    expect_same(people.ran, ["work", "delete"], "what ran")
    expect_same(session.pending_client_tool_calls, {}, "what is pending at the end")
    expect_same(sorted(session.completed_client_tool_calls), ["call_1_1", "call_1_3"], "the calls with responses")


@check("X3", "a person may reject a call, and a client may report an error; the model sees both")
async def refused_and_failed(harness: Harness) -> None:
    people = People()
    stores = await harness.open_stores()
    await _suspend(stores, people)
    async with executing(stores, ScriptedLLM(SCRIPT)) as executor:
        await executor.submit_tool_result("s", "call_1_1", error="nobody at home")
        await executor.submit_tool_result("s", "call_1_3", approved=False, reason="too risky")
        await (await executor.resume(people.agent, "s")).result()
    told = _tool_results(await transcript(stores, "s"))
    expect_same(told[0], "Error: nobody at home", "the client's error")
    expect_same(told[2], "Error: A person refused this call: too risky", "the rejection")
    expect_same(people.ran, ["work"], "what ran")


@check("X3", "a response sent many times concurrently counts once", kind="tasks")
async def answered_twice(harness: Harness) -> None:
    people = People()
    stores = await harness.open_stores()
    await _suspend(stores, people)
    async with executing(stores, ScriptedLLM(SCRIPT)) as executor:
        receipts = await asyncio.gather(
            *(executor.submit_tool_result("s", "call_1_1", result=f"answer {n}") for n in range(6)),
            *(executor.submit_tool_result("s", "call_1_3", approved=True) for _ in range(3)),
        )
        accepted = [receipt for receipt in receipts if receipt.status == "accepted"]
        expect_same(len(accepted), 2, "how many were accepted")
        stored = (await _session(stores)).pending_client_tool_calls["call_1_1"].response
        again = await executor.submit_tool_result("s", "call_1_1", result="another")
        expect_same(again.status, "duplicate", "the receipt of another response")
        await (await executor.resume(people.agent, "s")).result()
        after = await executor.submit_tool_result("s", "call_1_1", result="after the end")
        expect_same(after.status, "duplicate", "the receipt of a response after the end")
    expect_same(_tool_results(await transcript(stores, "s"))[0], stored["result"], "the response used")


@check("X3", "a response of the wrong kind, or to a question that was never asked, is rejected and changes nothing")
async def wrong_kind(harness: Harness) -> None:
    people = People()
    stores = await harness.open_stores()
    await _suspend(stores, people)
    before = await _session(stores)
    async with executing(stores, ScriptedLLM(SCRIPT)) as executor:
        with raises(InvalidArgument, "an approval for a client tool"):
            await executor.submit_tool_result("s", "call_1_1", approved=True)
        with raises(InvalidArgument, "a result for an approval"):
            await executor.submit_tool_result("s", "call_1_3", result="yes")
        with raises(InvalidArgument, "a call that does not exist"):
            await executor.submit_tool_result("s", "call_9_9", result="yes")
        with raises(InvalidArgument, "two kinds of response together"):
            await executor.submit_tool_result("s", "call_1_1", result="yes", error="no")
    expect_same(await _session(stores), before, "the session")


@check("X3", "after the deadline the run continues without a response; a late one is recorded but not used")
async def deadlines(harness: Harness) -> None:
    people = People(deadline_seconds=60)
    stores = await harness.open_stores()
    clock = Clockwork()
    await _suspend(stores, people, clock=clock)
    async with executing(stores, ScriptedLLM(SCRIPT), clock=clock) as executor:
        expect(not (await executor.can_resume("s")).can_resume, "the session can be resumed before the deadline")
        clock.pass_seconds(61)
        receipt = await executor.submit_tool_result("s", "call_1_3", approved=True)
        expect_same(receipt.status, "late", "the receipt of a late approval")
        result = await (await executor.resume(people.agent, "s")).result()
        expect_same(result.status, "completed", "the status")
        receipt = await executor.submit_tool_result("s", "call_1_1", result="blue")
        expect_same(receipt.status, "late", "the receipt of a response after the run")
    session = await _session(stores)
    expect("call_1_1" in session.completed_client_tool_calls, "the late response is not recorded")
    expect_same(people.ran, ["work"], "what ran")
    expect(
        all("deadline" in text for text in _tool_results(await transcript(stores, "s"))[::2]),
        "the model did not see the deadline",
    )


@check("X3", "a response that arrives while siblings still work avoids the suspension")
async def answered_while_running(harness: Harness) -> None:
    stores, other = await harness.open_stores(), await harness.open_stores()
    gate = asyncio.Event()

    @tool
    async def work() -> str:
        """Work until the check releases it."""
        await gate.wait()
        return "worked"

    @tool(execute="client")
    def ask(question: str) -> str:
        """Ask a person."""
        raise NotImplementedError

    agent = simple_agent(work, ask)
    script: Script = [[Call("work"), Call("ask", {"question": "?"})], "Done."]
    async with executing(stores, ScriptedLLM(script)) as executor, executing(other, ScriptedLLM(script)) as elsewhere:
        handle = await executor.execute(agent, "Go", session_id="s")
        async for chunk in handle.stream():
            if chunk["type"] == "client_tool_request":
                await elsewhere.submit_tool_result("s", chunk["tool_call_id"], result="blue")
                gate.set()
        result = await handle.result()
    expect_same([result.status, result.output], ["completed", "Done."], "the result")
    expect_same(len(await stores.state.list_runs("s")), 1, "the number of runs")


@check("X3", "a message sent instead of responses closes the questions and reaches the model")
async def a_message_instead(harness: Harness) -> None:
    people = People()
    stores = await harness.open_stores()
    await _suspend(stores, people)
    async with executing(stores, ScriptedLLM(SCRIPT)) as executor:
        result = await (await executor.resume(people.agent, "s", message="Never mind.")).result()
    expect_same(result.status, "completed", "the status")
    messages = await transcript(stores, "s")
    roles = [message["role"] for message in messages]
    expect_same(roles, ["user", "assistant", "tool", "tool", "tool", "user", "assistant"], "the conversation")
    expect_same(messages[5]["content"], "Never mind.", "the message")
    expect_same(people.ran, ["work"], "what ran")


@check("X3", "when many callers resume a session whose questions have responses, exactly one succeeds", kind="tasks")
async def one_resumes(harness: Harness) -> None:
    people = People()
    stores = await harness.open_stores()
    await _suspend(stores, people)
    async with executing(stores, ScriptedLLM(SCRIPT)) as executor:
        await executor.submit_tool_result("s", "call_1_1", result="blue")
        await executor.submit_tool_result("s", "call_1_3", approved=True)
        tries = await asyncio.gather(*(executor.resume(people.agent, "s") for _ in range(5)), return_exceptions=True)
        won = [found for found in tries if not isinstance(found, BaseException)]
        expect_same(len(won), 1, "how many resumed")
        expect(all(isinstance(lost, AlreadyRunning | NotResumable) for lost in tries if lost not in won), str(tries))
        await won[0].result()
    expect_same(people.ran, ["work", "delete"], "what ran")


@check("X3", "an approval is True or False; anything else is rejected and leaves the question open")
async def approvals_are_bools(harness: Harness) -> None:
    stores = await harness.open_stores()
    people = People()
    wrong: list[Any] = ["no", "yes", 1, {"approved": True}]
    async with executing(stores, ScriptedLLM(SCRIPT)) as executor:
        handle = await executor.execute(people.agent, "Go", session_id="s")
        await handle.result()
        for value in wrong:
            with raises(InvalidArgument, f"approved={value!r}"):
                await executor.submit_tool_result("s", "call_1_3", approved=value)
        await executor.submit_tool_result("s", "call_1_3", approved=False, reason="not today")
        await executor.submit_tool_result("s", "call_1_1", result="blue")
        await (await handle.resume()).result()
    expect_same(people.ran, ["work"], "what ran")
    expect("not today" in _tool_results(await transcript(stores, "s"))[2], "the model does not see the rejection")


@check("X3", "the function that decides whether a call needs approval may be async")
async def rules_may_be_awaited(harness: Harness) -> None:
    stores = await harness.open_stores()

    async def rule(arguments: dict[str, Any]) -> bool:
        await asyncio.sleep(0)
        return bool(arguments["path"] == "/")

    @tool(requires_approval=rule)
    async def delete(path: str) -> str:
        """Delete something."""
        return f"deleted {path}"

    script: Script = [[Call("delete", {"path": "/tmp"})], [Call("delete", {"path": "/"})], "Done."]
    async with executing(stores, ScriptedLLM(script)) as executor:
        result = await (await executor.execute(simple_agent(delete), "Go", session_id="s")).result()
    expect_same([wait.input for wait in result.suspended], [{"path": "/"}], "what is pending")
    expect_same(_tool_results(await transcript(stores, "s")), ["deleted /tmp"], "what ran without being asked for")


@check(
    "X3",
    "a run that dies at any call after a response continues, and markers explain the gaps in its stream",
    kind="faults",
)
async def dead_after_an_answer(harness: Harness) -> None:
    stores, clock = await harness.open_stores(), Clockwork()
    for message, told in ((None, ["blue", "worked", "deleted /tmp"]), ("Never mind.", None)):
        for last in itertools.count(1):
            session_id, life = f"{message}, dead at {last}", Life(last, reply_lost=True)
            await _answer_and_die(stores, session_id, message, life, clock)
            await expect_marked_gaps(stores, session_id)
            _expect_asked_before_ended(session_id, await chunks_of(stores, session_id))
            messages = await transcript(stores, session_id)
            expect_same(messages[-1]["content"], "Done.", f"{session_id}: the last message")
            if told is not None:
                expect_same(_tool_results(messages), told, f"{session_id}: what the model saw")
            if not life.over:
                break


def _expect_asked_before_ended(session_id: str, chunks: list[dict[str, Any]]) -> None:
    ended: set[str] = set()
    for chunk in of_type(chunks, "tool_end", "client_tool_request", "tool_approval_request"):
        if chunk["type"] == "tool_end":
            ended.add(chunk["tool_call_id"])
        else:
            expect(chunk["tool_call_id"] not in ended, f"{session_id}: a question follows the end of its call")


async def _answer_and_die(stores: StoreSet, session_id: str, message: str | None, life: Life, clock: Clockwork) -> None:
    """Suspend a session, respond, let the process that resumes it die, and finish in another one."""
    llm, options = ScriptedLLM(SCRIPT), {"clock": clock, "agents": [People().agent]}
    async with executing(stores, llm, **options) as executor:
        await (await executor.execute("main", "Go", session_id=session_id)).result()
        if message is None:
            await executor.submit_tool_result(session_id, "call_1_1", result="blue")
            await executor.submit_tool_result(session_id, "call_1_3", approved=True)
    dying = make_executor(life.wrap(stores), llm, lease_seconds=LEASE_SECONDS, **options)
    with suppress(Died):
        await (await dying.resume("main", session_id, message=message)).result()
    await life.bury()
    await dying.close()
    clock.pass_seconds(LEASE_SECONDS + 1)
    async with executing(stores, llm, **options) as executor:
        session = await stores.state.load_state(session_id)
        again = message if session is not None and session.status.startswith("suspended") else None
        if again or (await executor.can_resume(session_id)).can_resume:
            await (await executor.resume("main", session_id, message=again)).result()
