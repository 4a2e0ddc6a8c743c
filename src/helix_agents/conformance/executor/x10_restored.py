"""X10: effects outlive the conversation that caused them: after a restore, a fork, a failure, or in a later turn.

ACRFence (arXiv 2603.20625) names two attacks on agents that are restored: *Action Replay*, an effect that happens again
because the conversation no longer contains it, and *Authority Resurrection*, a used approval that counts again.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from ...executor import AgentExecutor, AgentResult
from ...llm.contract import ModelRequest
from ...llm.scripted import Call, Line, Script, ScriptedLLM
from ...tools import Done, NotDone, Tool, tool
from ..expect import expect, expect_same
from ..harness import Harness, StoreSet
from .harness import Clockwork, check, executing, make_executor, simple_agent, transcript
from .mortal import Died, Life

BY_ORDER: dict[str, Any] = {"key": lambda arguments: arguments["order"]}


class Bank:
    """A tool that pays, and a model that pays order 7 in every turn, with another note each time."""

    def __init__(self, **options: Any) -> None:
        self.paid: list[str] = []
        self.notes = 0

        @tool(effect="once", **options)
        async def pay(order: str, note: str) -> str:
            """Pay."""
            self.paid.append(order)
            return f"paid {order} ({note})"

        self.agent = simple_agent(pay)

    def reply(self, request: ModelRequest) -> Line:
        """Call the tool once per turn, with a different note each time, as models do."""
        if request.messages[-1]["role"] == "tool":
            return "Done."
        self.notes += 1
        return [Call("pay", {"order": "7", "note": f"note {self.notes}"})]

    def executing(self, stores: StoreSet) -> Any:
        """Return the executor of one process."""
        return executing(stores, ScriptedLLM(self.reply), agents=[self.agent])


async def _tool_results(stores: StoreSet, session_id: str) -> list[str]:
    return [message["content"] for message in await transcript(stores, session_id) if message["role"] == "tool"]


async def _start_of(stores: StoreSet, session_id: str) -> str:
    """Return the checkpoint of the first turn's start, before any effect."""
    return (await stores.state.list_checkpoints(session_id)).items[-1].checkpoint_id


async def _again(executor: AgentExecutor, bank: Bank, session_id: str) -> AgentResult:
    return await executor.run(bank.agent, "Pay order 7", session_id=session_id)


@check("X10", "Action Replay: the policy decides whether a call that repeats an abandoned effect asks, replays or runs")
async def action_replay(harness: Harness) -> None:
    stores = await harness.open_stores()
    for policy, status, paid in (
        ("ask", "suspended_client_tool", 1),
        ("replay", "completed", 1),
        ("run", "completed", 2),
    ):
        for verb in ("restore", "fork", "regenerate", "edit"):
            bank, name = Bank(after_restore=policy, **BY_ORDER), f"{policy} {verb}"
            async with bank.executing(stores) as executor:
                await executor.run(bank.agent, "Pay order 7", session_id=name)
                start = await _start_of(stores, name)
                if verb == "restore":
                    await executor.restore(name, start)
                    result = await (await executor.resume(bank.agent, name)).result()
                elif verb == "regenerate":
                    result = await (await executor.regenerate(name)).result()
                elif verb == "edit":
                    asked = (await stores.state.get_messages(name)).items[0]["id"]
                    result = await (await executor.edit(name, asked, "Please pay order 7")).result()
                else:
                    await executor.fork_session(name, f"{name} 2", checkpoint_id=start)
                    name = f"{name} 2"
                    result = await (await executor.resume(bank.agent, name)).result()
                expect_same([result.status, len(bank.paid)], [status, paid], f"{name}: the status, and what was paid")
                if policy != "ask":
                    expected = "paid 7 (note 1)" if policy == "replay" else "paid 7 (note 2)"
                    expect_same(await _tool_results(stores, name), [expected], f"{name}: what the model saw")
                    continue
                (question,) = result.suspended
                expect_same(question.kind, "outcome", f"{name}: the question")
                effect = question.effect
                expect(effect is not None and effect.recorded == "paid 7 (note 1)", f"{name}: what is shown: {effect}")
                await executor.submit_tool_result(name, question.tool_call_id, happened=verb != "fork")
                await (await executor.resume(bank.agent, name)).result()
            expect_same(len(bank.paid), 1 if verb != "fork" else 2, f"{name}: what was paid after the response")


@check("X10", "Action Replay without a key: a call with the same arguments always asks, under every policy")
async def action_replay_without_a_key(harness: Harness) -> None:
    stores, paid = await harness.open_stores(), []

    @tool(effect="once", after_restore="replay")
    async def pay(order: str) -> str:
        """Pay."""
        paid.append(order)
        return f"paid {order}"

    agent = simple_agent(pay)
    async with executing(stores, ScriptedLLM([[Call("pay", {"order": "7"})], "Done."])) as executor:
        await executor.run(agent, "Go", session_id="s")
        await executor.restore("s", await _start_of(stores, "s"))
        result = await (await executor.resume(agent, "s")).result()
    expect_same([wait.kind for wait in result.suspended], ["outcome"], "what is pending")
    expect_same(paid, ["7"], "what was paid")


@check("X10", "Authority Resurrection: an approval that was used does not count again after a restore or in a fork")
async def authority_resurrection(harness: Harness) -> None:
    stores = await harness.open_stores()
    bank = Bank(requires_approval=True, after_restore="run", **BY_ORDER)
    async with bank.executing(stores) as executor:
        result = await executor.run(bank.agent, "Pay order 7", session_id="s")
        used = result.suspended[0].approval_id
        await executor.submit_tool_result("s", approval_id=used, approved=True)
        await (await executor.resume(bank.agent, "s")).result()
        expect_same(len(bank.paid), 1, "what was paid with the approval")
        checkpoints, asked = (await stores.state.list_checkpoints("s")).items, 0
        for number, checkpoint in enumerate(checkpoints[1:]):
            name = f"fork {number}"
            await executor.fork_session("s", name, checkpoint_id=checkpoint.checkpoint_id)
            await executor.restore("s", checkpoint.checkpoint_id)
            for session_id in ("s", name):
                if (await executor.can_resume(session_id)).can_resume:
                    result = await (await executor.resume(bank.agent, session_id)).result()
                    asked += len(result.suspended)
                expect_same(len(bank.paid), 1, f"what was paid without a new approval in {session_id}, {number}")
    expect(asked >= 2, f"approvals were asked for {asked} times after the restores and forks")


@check("X10", "a call with the key of an effect gets its result, in the same reply, a later step or a later turn")
async def the_same_key(harness: Harness) -> None:
    stores, bank = await harness.open_stores(), Bank(**BY_ORDER)
    twice = [Call("pay", {"order": "7", "note": note}) for note in ("a", "b")]
    async with executing(stores, ScriptedLLM([twice, twice[:1], "Done."]), agents=[bank.agent]) as executor:
        await executor.run(bank.agent, "Go", session_id="s")
    async with bank.executing(stores) as executor:
        await _again(executor, bank, "s")
    expect_same(bank.paid, ["7"], "what was paid")
    expect_same(await _tool_results(stores, "s"), ["paid 7 (a)"] * 4, "what the model saw")


@check("X10", "an unknown effect of an abandoned step is looked up or asked about, and no model sees the record")
async def unknown_and_abandoned(harness: Harness) -> None:
    stores = await harness.open_stores()
    for number, (verdict, status) in enumerate(
        [(None, "suspended_client_tool"), (Done("found"), "completed"), (NotDone(), "completed")]
    ):
        seen: list[str] = []
        bank = Bank(check=lambda arguments, key, verdict=verdict: verdict, **BY_ORDER)

        def reply(request: ModelRequest, bank: Bank = bank, seen: list[str] = seen) -> Line:
            seen.extend(message["role"] for message in request.messages)
            return bank.reply(request)

        name = f"s{number}"
        async with make_executor(stores, ScriptedLLM(reply), agents=[bank.agent]) as executor:
            await executor.run(bank.agent, "Pay order 7", session_id=name)
            start = await _start_of(stores, name)
            record = {"effect_key": "pay:7", "tool_name": "pay", "unknown": True, "abandoned": True}
            await stores.state.restore_checkpoint(
                name, start, append_messages=[{"role": "effects", "effects": [record]}]
            )
            result = await (await executor.resume(bank.agent, name)).result()
        expect_same(result.status, status, f"{verdict}: the status")
        expect_same(len(bank.paid), 2 if isinstance(verdict, NotDone) else 1, f"{verdict}: what was paid")
        expect("effects" not in seen, f"the model was sent {seen}")


@check("X10", "a branch that is switched back to knows the effects of the other branch and its own")
async def switched_branches(harness: Harness) -> None:
    stores = await harness.open_stores()
    bank, orders = Bank(**BY_ORDER), iter(("7", "8", "8", "7", "9"))

    def reply(request: ModelRequest) -> Line:
        if request.messages[-1]["role"] == "tool":
            return "Done."
        return [Call("pay", {"order": next(orders), "note": "n"})]

    async with executing(stores, ScriptedLLM(reply), agents=[bank.agent]) as executor:
        await _again(executor, bank, "s")  # pays 7
        asked = (await stores.state.get_messages("s")).items[0]["id"]
        await (await executor.edit("s", asked, "Pay order 8")).result()
        first, second = await executor.list_branches("s")
        await executor.switch_branch("s", first.branch_id)
        result = await _again(executor, bank, "s")
        expect_same(
            [wait.kind for wait in result.suspended], ["outcome"], "8, paid on the other branch: what is pending"
        )
        await executor.submit_tool_result("s", result.suspended[0].tool_call_id, happened=True)
        await (await executor.resume(bank.agent, "s")).result()
        result = await _again(executor, bank, "s")
        expect_same(result.status, "completed", "7, paid on this branch: the status")
        await executor.switch_branch("s", second.branch_id)
        await executor.switch_branch("s", first.branch_id)
        await _again(executor, bank, "s")
    expect_same(bank.paid, ["7", "8", "9"], "what was paid")


@tool(requires_approval=True)
async def _sign() -> str:
    """Wait for a person."""
    return "signed"


def _deadly(bank: Bank, life: Life) -> Tool:
    @tool(name="pay", effect="once", **BY_ORDER)
    async def pay_and_die(order: str, note: str) -> str:
        """Pay, and end the process."""
        bank.paid.append(order)
        life.last = life.calls
        return note

    return pay_and_die


@check("X10", "aborting a suspended or crashed session retains what its open step did or may have done")
async def aborted_with_an_open_step(harness: Harness) -> None:
    stores = await harness.open_stores()
    for name, recorded in (("suspended", "paid 7 (note 1)"), ("crashed", None)):
        bank, clock, life = Bank(**BY_ORDER), Clockwork(), Life()

        pay = bank.agent.tools["pay"] if name == "suspended" else _deadly(bank, life)
        first, options = simple_agent(pay, _sign), {"clock": clock, "lease_seconds": 30.0}
        script: Script = [[Call("pay", {"order": "7", "note": "note 1"}), *([Call("_sign")] if recorded else [])]]
        bank.notes = 1
        with suppress(Died):
            async with make_executor(life.wrap(stores), ScriptedLLM(script), agents=[first], **options) as executor:
                await executor.run(first, "Go", session_id=name)
        await life.bury()
        clock.pass_seconds(31)
        async with make_executor(stores, ScriptedLLM(bank.reply), agents=[bank.agent], **options) as executor:
            await executor.abort(name, "enough")
            result = await executor.run(bank.agent, "Pay order 7", session_id=name)
        expect_same([wait.kind for wait in result.suspended], ["outcome"], f"{name}: what is pending")
        effect = result.suspended[0].effect
        expect_same(effect and effect.recorded, recorded, f"{name}: what is shown")
        expect_same(bank.paid, ["7"], f"{name}: what was paid")
