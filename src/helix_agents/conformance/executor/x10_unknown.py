"""X10: unknown outcomes. Each is a separate question, decided once, by a person or the tool's check."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from ...agent import Agent
from ...errors import InvalidArgument
from ...executor import AgentResult
from ...llm.scripted import Call, Script, ScriptedLLM
from ...tools import Done, NotDone, Tool, tool
from ..expect import expect, expect_same, raises
from ..harness import Harness, StoreSet
from .harness import Clockwork, check, chunks_of, executing, make_executor, of_type, simple_agent, transcript
from .mortal import Died, Life

LEASE_SECONDS = 30.0
SCRIPT: Script = [[Call("pay", {"order": "7"})], "Done."]


class Till:
    """One tool that pays, in a process that dies right after the first payment."""

    def __init__(self, session_id: str = "s", **options: Any) -> None:
        self.session_id = session_id
        self.paid: list[str] = []
        self.dies = True
        self.life = Life()
        self.clock = Clockwork()

        @tool(effect="once", **options)
        async def pay(order: str) -> str:
            """Pay."""
            self.paid.append(order)
            if self.dies:
                self.life.last = self.life.calls
                self.life.begin()
            return f"paid {order}"

        self.agent = simple_agent(pay)

    async def crash(self, stores: StoreSet) -> None:
        """Run the session until the process dies."""
        dying = make_executor(
            self.life.wrap(stores), ScriptedLLM(SCRIPT), clock=self.clock, lease_seconds=LEASE_SECONDS
        )
        try:
            await dying.run(self.agent, "Go", session_id=self.session_id)
        except Died:
            await self.life.bury()
        await dying.close()
        self.dies = False
        self.clock.pass_seconds(LEASE_SECONDS + 1)

    def executing(self, stores: StoreSet) -> Any:
        """Return an executor of a process that does not die."""
        return executing(stores, ScriptedLLM(SCRIPT), clock=self.clock, agents=[self.agent])

    async def suspended(self, stores: StoreSet) -> AgentResult:
        """Crash, and let another process suspend with the question."""
        await self.crash(stores)
        async with self.executing(stores) as executor:
            result: AgentResult = await (await executor.resume(self.agent, self.session_id)).result()
        return result


async def _tool_messages(stores: StoreSet, session_id: str = "s") -> list[dict[str, Any]]:
    return [message for message in await transcript(stores, session_id) if message["role"] == "tool"]


@check("X10", "an unknown outcome is a separate question with its own chunk, kind and key, and rejects approvals")
async def a_question_of_its_own(harness: Harness) -> None:
    stores, till = await harness.open_stores(), Till(key=lambda arguments: arguments["order"])
    result = await till.suspended(stores)
    expect_same(result.status, "suspended_client_tool", "the status")
    expect_same([wait.kind for wait in result.suspended], ["outcome"], "what is pending")
    requests = of_type(await chunks_of(stores, "s"), "tool_outcome_request", "tool_approval_request")
    fields = ("type", "tool_call_id", "tool_name", "input", "effect_key")
    request = dict(zip(fields, ("tool_outcome_request", "call_1_1", "pay", {"order": "7"}, "pay:7"), strict=True))
    expect_same([{name: chunk.get(name) for name in fields} for chunk in requests], [request], "the request")
    async with till.executing(stores) as executor:
        waiting = (await executor.list_waiting()).items
        expect_same([(wait.kind, wait.effect_key) for wait in waiting], [("outcome", "pay:7")], "the inbox")
        for answer in ({"approved": True}, {"approved": False}, {"result": "paid"}, {"error": "no"}):
            with raises(InvalidArgument, f"the response {answer}"):
                await executor.submit_tool_result("s", "call_1_1", **answer)
        for bad in ({"happened": "yes"}, {"happened": False, "result": 1}, {"happened": None, "approved": True}):
            with raises(InvalidArgument, f"the response {bad}"):
                await executor.submit_tool_result("s", "call_1_1", **bad)
        expect(not (await executor.can_resume("s")).can_resume, "the session can be resumed without a response")
    expect_same(till.paid, ["7"], "what was paid")


@check("X10", "a person may respond that it happened, did not happen or is unknown; of two responses, one counts")
async def what_people_say(harness: Harness) -> None:
    answers: list[tuple[dict[str, Any], str, int, str | None]] = [
        ({"happened": True, "result": "paid by hand"}, "paid by hand", 1, None),
        ({"happened": True}, "A person confirmed", 1, None),
        ({"happened": False}, "paid 7", 2, None),
        ({"happened": None, "reason": "The bank is closed."}, "not known whether this call took effect", 1, "unknown"),
    ]
    stores = await harness.open_stores()
    for number, (answer, told, paid, outcome) in enumerate(answers):
        name = f"s{number}"
        till = Till(name)
        await till.suspended(stores)
        async with till.executing(stores) as executor:
            receipts = await asyncio.gather(
                *(executor.submit_tool_result(name, "call_1_1", **answer) for _ in range(4)),
            )
            accepted = [receipt.status for receipt in receipts].count("accepted")
            expect_same(accepted, 1, "how many responses were accepted")
            other = await executor.submit_tool_result(name, "call_1_1", happened=False)
            expect_same(other.status, "duplicate", "the receipt of another response")
            result = await (await executor.resume(till.agent, name)).result()
        expect_same(result.status, "completed", f"{answer}: the status")
        (message,) = await _tool_messages(stores, name)
        expect(told in message["content"], f"{answer}: the model saw {message['content']!r}")
        expect_same(len(till.paid), paid, f"{answer}: how often it was paid")
        expect_same(message.get("outcome"), outcome, f"{answer}: what the message says about the outcome")


@check("X10", "a call that is allowed to rerun and dies again is asked about again; a stale response is rejected")
async def asked_again(harness: Harness) -> None:
    stores, till = await harness.open_stores(), Till()
    result = await till.suspended(stores)
    first = result.suspended[0].approval_id
    async with till.executing(stores) as executor:
        await executor.submit_tool_result("s", approval_id=first, happened=False)
    till.dies, till.life = True, Life()
    async with make_executor(till.life.wrap(stores), ScriptedLLM(SCRIPT), clock=till.clock) as dying:
        with raises(Died, "the second process"):
            await (await dying.resume(till.agent, "s")).result()
    await till.life.bury()
    till.clock.pass_seconds(LEASE_SECONDS + 1)
    till.dies = False
    async with till.executing(stores) as executor:
        again = await (await executor.resume(till.agent, "s")).result()
        expect_same([wait.kind for wait in again.suspended], ["outcome"], "what is pending after the second death")
        with raises(InvalidArgument, "the response to the first question"):
            await executor.submit_tool_result("s", approval_id=first, happened=False)
        await executor.submit_tool_result("s", again.suspended[0].tool_call_id, happened=True, result="paid")
        result = await (await executor.resume(till.agent, "s")).result()
    expect_same([result.status, till.paid], ["completed", ["7", "7"]], "the result, and what was paid")


async def _raises(arguments: dict[str, Any], key: str) -> Any:
    raise ConnectionError("the bank does not answer")


async def _hangs(arguments: dict[str, Any], key: str) -> Any:
    await asyncio.Event().wait()


def _blocks(arguments: dict[str, Any], key: str) -> Any:
    time.sleep(0.3)


@check("X10", "a lookup decides the outcome; if it raises, hangs, blocks or returns nonsense, a person decides")
async def checks_decide(harness: Harness) -> None:
    cases: list[tuple[Any, str, int]] = [
        (lambda arguments, key: Done(f"found {key}"), "completed", 1),
        (lambda arguments, key: NotDone(), "completed", 2),
        (lambda arguments, key: None, "suspended_client_tool", 1),
        (lambda arguments, key: True, "suspended_client_tool", 1),
        (lambda arguments, key: Done(object()), "suspended_client_tool", 1),
        (_raises, "suspended_client_tool", 1),
        (_hangs, "suspended_client_tool", 1),
        (_blocks, "suspended_client_tool", 1),
    ]
    stores = await harness.open_stores()
    for number, (looks_up, status, paid) in enumerate(cases):
        till = Till(f"s{number}", check=looks_up, timeout_seconds=0.1, key=lambda arguments: arguments["order"])
        result = await till.suspended(stores)
        expect_same([result.status, len(till.paid)], [status, paid], f"case {number}: the status, and what was paid")
        if number == 0:
            expect_same((await _tool_messages(stores, "s0"))[0]["content"], "found pay:7", "what the model saw")


def _slow(*, in_thread: bool, **options: Any) -> Tool:
    async def pay(order: str) -> str:
        """Pay."""
        await asyncio.Event().wait()
        return "paid"

    def blocking(order: str) -> str:
        """Pay."""
        time.sleep(1.0)
        return "paid"

    # The limit is also that of a lookup, which must not time out on a busy machine.
    limit = 0.05 if in_thread else 2.0
    return tool(effect="once", name="pay", timeout_seconds=limit, **options)(blocking if in_thread else pay)


@check("X10", "a timeout leaves an unknown outcome, not an error; a thread that still runs is not considered idle")
async def timeouts(harness: Harness) -> None:
    def not_done(arguments: dict[str, Any], key: str) -> NotDone:
        return NotDone()

    cases: list[tuple[Tool, str]] = [
        (_slow(in_thread=False), "suspended_client_tool"),
        (_slow(in_thread=True), "suspended_client_tool"),
        (_slow(in_thread=False, check=not_done), "completed"),
        (_slow(in_thread=True, check=not_done), "suspended_client_tool"),
        (_slow(in_thread=False, check=lambda arguments, key: Done("paid")), "completed"),
    ]
    stores = await harness.open_stores()
    for number, (pay, status) in enumerate(cases):
        async with executing(stores, ScriptedLLM(SCRIPT)) as executor:
            result = await executor.run(Agent("main", tools=[pay]), "Go", session_id=f"s{number}")
        expect_same(result.status, status, f"case {number}: the status")


def _never_ends(entered: asyncio.Event, looks_up: Any) -> Tool:
    @tool(effect="once", check=looks_up)
    async def pay(order: str) -> str:
        """Pay."""
        entered.set()
        await asyncio.Event().wait()
        return "paid"

    return pay


@check("X10", "an abort reports the outcome of a call that it cut off as unknown, unless a lookup determines it")
async def aborted_in_an_effect(harness: Harness) -> None:
    stores = await harness.open_stores()
    for number, (looks_up, told) in enumerate([(None, "not known"), (lambda arguments, key: Done("paid"), "paid")]):
        entered = asyncio.Event()
        pay = _never_ends(entered, looks_up)
        async with executing(stores, ScriptedLLM(SCRIPT)) as executor:
            handle = await executor.execute(simple_agent(pay), "Go", session_id=f"s{number}")
            await entered.wait()
            await executor.abort(f"s{number}")
            result = await handle.result()
        expect_same(result.failure_reason, "aborted", "why it failed")
        messages = await transcript(stores, f"s{number}")
        content = next(message["content"] for message in messages if message["role"] == "tool")
        expect(told in content, f"case {number}: the model saw {content!r}")


@check("X10", "a result that cannot be stored does not undo the effect: the model sees that it happened")
async def unstorable_results(harness: Harness) -> None:
    stores = await harness.open_stores()

    @tool(effect="once", key=lambda arguments: arguments["order"])
    async def pay(order: str) -> Any:
        """Pay."""
        return object()

    async with executing(stores, ScriptedLLM(SCRIPT)) as executor:
        await executor.run(simple_agent(pay), "Go", session_id="s")
    (message,) = await _tool_messages(stores)
    expect("took effect" in message["content"], f"the model saw {message['content']!r}")
    expect_same(message.get("effect_key"), "pay:7", "the key")
