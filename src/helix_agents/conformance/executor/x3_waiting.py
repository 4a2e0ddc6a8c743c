"""X3: pending questions are listed, and approvals are given by id or with changed arguments."""

from __future__ import annotations

from typing import Any

from ...agent import Agent
from ...errors import InvalidArgument
from ...executor import AgentExecutor, Waiting
from ...llm.scripted import Call, Script, ScriptedLLM
from ...tools.tool import tool
from ..expect import expect, expect_same, raises
from ..harness import Harness
from .harness import Clockwork, check, chunks_of, executing, of_type, simple_agent, transcript

SCRIPT: Script = [[Call("pay", {"amount": 900, "to": "Ann"}), Call("ask", {"question": "Why?"})], "Done."]


class Payments:
    """Tools that record their arguments."""

    def __init__(self) -> None:
        self.paid: list[tuple[int, str]] = []
        paid = self.paid

        @tool(requires_approval=True)
        async def pay(amount: int, to: str) -> str:
            """Pay, if a person agrees."""
            paid.append((amount, to))
            return f"paid {amount}"

        @tool(execute="client")
        def ask(question: str) -> str:
            """Ask a person."""
            raise NotImplementedError

        self.agent = simple_agent(pay, ask)


async def _begin(executor: AgentExecutor, agent: Agent, session_id: str, **options: Any) -> None:
    await (await executor.execute(agent, "Go", session_id=session_id, **options)).result()


async def _everything(executor: AgentExecutor, **filters: Any) -> list[Waiting]:
    found: list[Waiting] = []
    cursor: str | None = None
    while True:
        page = await executor.list_waiting(cursor=cursor, **filters)
        expect(len(page.items) <= page.limit if page.limit else True, "a page is longer than its limit")
        found += page.items
        cursor = page.next_cursor
        expect_same(page.has_more, cursor is not None, "has_more and next_cursor")
        if cursor is None:
            return found


@check("X3", "all pending questions are listed, page by page, for all users or one, until they get a response")
async def waiting_is_listed(harness: Harness) -> None:
    payments = Payments()
    stores, elsewhere = await harness.open_stores(), await harness.open_stores()
    async with executing(stores, ScriptedLLM(SCRIPT)) as executor:
        for number in range(5):
            await _begin(executor, payments.agent, f"s{number}", user_id="ann" if number % 2 else "bob")
    async with executing(elsewhere, ScriptedLLM(SCRIPT)) as executor:
        wanted = sorted((f"s{number}", call) for number in range(5) for call in ("call_1_1", "call_1_2"))
        for limit in (1, 3, 4, 50):
            found = await _everything(executor, limit=limit)
            expect_same(
                sorted((one.session_id, one.tool_call_id) for one in found),
                wanted,
                f"what is pending, in pages of {limit}",
            )
        mine = await _everything(executor, user_id="ann", limit=1)
        expect_same(sorted({one.session_id for one in mine}), ["s1", "s3"], "what is pending for one user")
        expect_same(await _everything(executor, agent_type="nobody"), [], "what is pending for an unknown agent")
        kinds = {one.tool_name: (one.kind, one.approval_id is not None, one.input) for one in mine}
        expect_same(kinds["pay"], ("approval", True, {"amount": 900, "to": "Ann"}), "an approval")
        expect_same(kinds["ask"], ("client", False, {"question": "Why?"}), "a client tool")
        expect(all(one.since > 0 for one in mine), "a question does not say how long it has been pending")
        await executor.submit_tool_result("s1", "call_1_1", approved=True)
        left = await _everything(executor, user_id="ann")
        expect_same(
            ("s1", "call_1_1") in [(one.session_id, one.tool_call_id) for one in left],
            False,
            "the question with a response",
        )
        with raises(InvalidArgument, "an invalid cursor"):
            await executor.list_waiting(cursor="nonsense")


@check("X3", "a page of pending questions continues past a session that got its responses in between")
async def waiting_pages_survive_answers(harness: Harness) -> None:
    payments = Payments()
    async with executing(await harness.open_stores(), ScriptedLLM(SCRIPT)) as executor:
        for number in range(3):
            await _begin(executor, payments.agent, f"s{number}")
        page = await executor.list_waiting(limit=1)
        first = page.items[0]
        await executor.submit_tool_result(first.session_id, "call_1_1", approved=False)
        await executor.submit_tool_result(first.session_id, "call_1_2", result="so")
        await (await executor.resume(payments.agent, first.session_id)).result()
        rest = await _everything_from(executor, page.next_cursor)
    expect_same(len(rest), 4, "what is pending in the other sessions")
    expect(first.session_id not in {one.session_id for one in rest}, "a session that has continued is still listed")


async def _everything_from(executor: AgentExecutor, cursor: str | None) -> list[Waiting]:
    found: list[Waiting] = []
    while cursor is not None:
        page = await executor.list_waiting(limit=1, cursor=cursor)
        found += page.items
        cursor = page.next_cursor
    return found


@check("X3", "a person may approve with other arguments: they are used, recorded and shown to the model")
async def changed_arguments(harness: Harness) -> None:
    payments = Payments()
    async with executing(await harness.open_stores(), ScriptedLLM(SCRIPT)) as executor:
        await _begin(executor, payments.agent, "s")
    stores = await harness.open_stores()
    async with executing(stores, ScriptedLLM(SCRIPT), agents=[payments.agent]) as executor:
        for wrong in ({"amount": "much", "to": "Ann"}, {"amount": 5}, {"amount": 5, "to": "Ann", "tip": 1}):
            with raises(InvalidArgument, f"arguments {wrong}"):
                await executor.submit_tool_result("s", "call_1_1", approved=True, arguments=wrong)
        with raises(InvalidArgument, "arguments for a rejected call"):
            await executor.submit_tool_result("s", "call_1_1", approved=False, arguments={"amount": 5, "to": "Ann"})
        arguments = {"amount": 50, "to": "Ann"}
        receipt = await executor.submit_tool_result("s", "call_1_1", approved=True, arguments=arguments)
        expect_same(receipt.status, "accepted", "the receipt")
        await executor.submit_tool_result("s", "call_1_2", result="so")
        await (await executor.resume(payments.agent, "s")).result()
    expect_same(payments.paid, [(50, "Ann")], "what ran")
    told = next(message for message in await transcript(stores, "s") if message.get("tool_name") == "pay")
    expect_same(told["arguments"], arguments, "the recorded arguments")
    expect("changed" in told["content"] and "50" in told["content"], "the model does not see the change")
    expect(told["content"].endswith("paid 50"), "the model does not see the result")
    starts = of_type(await chunks_of(stores, "s"), "tool_start")
    expect_same([chunk["arguments"] for chunk in starts], [arguments], "the call that readers see")


@check("X3", "changed arguments that could not be checked when they were given do not run if they are invalid")
async def changed_arguments_unchecked(harness: Harness) -> None:
    payments = Payments()
    stores = await harness.open_stores()
    async with executing(stores, ScriptedLLM(SCRIPT)) as executor:
        await _begin(executor, payments.agent, "s")
    async with executing(stores, ScriptedLLM(SCRIPT)) as stranger:
        await stranger.submit_tool_result("s", "call_1_1", approved=True, arguments={"amount": "much", "to": "Ann"})
        await stranger.submit_tool_result("s", "call_1_2", result="so")
        result = await (await stranger.resume(payments.agent, "s")).result()
    expect_same([result.status, payments.paid], ["completed", []], "the status, and what ran")
    told = next(message for message in await transcript(stores, "s") if message.get("tool_name") == "pay")
    expect("Invalid arguments" in told["content"], "the model does not see why the call did not run")


@check(
    "X3", "an approval is given by id, at the session or its root; repeating it is harmless, an unknown id is rejected"
)
async def answered_by_approval_id(harness: Harness) -> None:
    payments = Payments()
    stores = await harness.open_stores()
    boss = Agent("boss", tools=[payments.agent.as_tool(name="clerk")])
    script: dict[str, Script] = {"boss": [[Call("clerk", {"input": "Pay"})], "Good."], "main": SCRIPT}
    async with executing(stores, ScriptedLLM(script), agents=[boss]) as executor:
        await (await executor.execute(boss, "Go", session_id="s")).result()
        found = {one.tool_name: one for one in (await executor.list_waiting()).items}
        expect_same(found["pay"].root_session_id, "s", "the root of the session that asks")
        approval_id = found["pay"].approval_id
        with raises(InvalidArgument, "an approval that was never asked for"):
            await executor.submit_tool_result("s", approval_id="approval-0", approved=True)
        receipt = await executor.submit_tool_result("s", approval_id=approval_id, approved=True)
        expect_same((receipt.status, receipt.session_id), ("accepted", found["pay"].session_id), "the receipt")
        again = await executor.submit_tool_result(found["pay"].session_id, approval_id=approval_id, approved=True)
        expect_same(again.status, "duplicate", "the second receipt")
        await executor.submit_tool_result("s", found["ask"].tool_call_id, result="so")
        await (await executor.resume(boss, "s")).result()
        late = await executor.submit_tool_result("s", approval_id=approval_id, approved=True)
        expect_same(late.status, "duplicate", "the receipt after the end")
    expect_same(payments.paid, [(900, "Ann")], "what ran")


@check("X3", "workers continue a session when the deadline of a sub-agent's question has passed, not before")
async def deadline_of_a_sub_agents_question(harness: Harness) -> None:
    stores, clock = await harness.open_stores(), Clockwork()

    @tool(execute="client", deadline_seconds=60)
    def ask(question: str) -> str:
        """Ask a person."""
        raise NotImplementedError

    boss = Agent("boss", tools=[Agent("clerk", tools=[ask]).as_tool()])
    script: dict[str, Script] = {
        "boss": [[Call("clerk", {"input": "Ask"})], "Good."],
        "clerk": [[Call("ask", {"question": "Why?"})], "Nobody knows."],
    }
    async with executing(stores, ScriptedLLM(script), clock=clock, agents=[boss]) as executor:
        await executor.run(boss, "Go", session_id="s")
        clock.pass_seconds(30)
        expect_same(await executor.recover(), [], "what workers continue before the deadline")
        clock.pass_seconds(60)
        results = [await handle.result() for handle in await executor.recover()]
    expect_same([result.output for result in results], ["Good."], "what workers continue after the deadline")
