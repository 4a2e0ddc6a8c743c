"""Crash tests of agents: the examples pass, and unsafe tools are found and named."""

from __future__ import annotations

from typing import Any

import pytest

from examples import approval_in_another_process, shop
from helix_agents import Agent, AgentExecutor, InvalidArgument, ScriptedLLM, Stores, open_stores, tool
from helix_agents.cli import main
from helix_agents.crashtest import assert_crash_safe, crashtest
from helix_agents.llm import Call
from helix_agents.tools import Done, NotDone, Tool


def factory(pay: Tool) -> Any:
    """Return a function that makes executors of an agent with one tool."""

    def make(stores: Stores) -> AgentExecutor:
        llm = ScriptedLLM([[Call("pay", {"order": "7"})], "Done."])
        return AgentExecutor(stores, llm, agents=[Agent("payer", tools=[pay])])

    return make


async def test_the_shop_is_safe() -> None:
    report = await assert_crash_safe(shop.make_executor, "clerk", "Refund order 7", reset=shop.reset, every=2)
    assert report.tools["refund"].unknown > 0, "nobody was asked about a refund that the bank cannot look up"
    assert report.tools["ship"].unknown == 0, "people were asked although the carrier knows"
    assert report.tools["find_order"].effect == "read"
    assert {"tell_customer.mail", "tell_customer.letter"} <= report.tools.keys()


async def test_the_example_with_approvals_is_safe() -> None:
    def make(stores: Stores) -> AgentExecutor:
        example = approval_in_another_process
        return AgentExecutor(stores, ScriptedLLM(example.answer), agents=[example.agent])

    report = await assert_crash_safe(make, "clerk", "Pay Ann", every=2)
    assert report.kills > 0


async def test_a_tool_that_says_nothing_is_found_doubled_and_named() -> None:
    @tool
    async def pay(order: str) -> str:
        """Pay."""
        return f"paid {order}"

    with pytest.raises(AssertionError, match="pay was doubled: point") as found:
        await assert_crash_safe(factory(pay), "payer", "Go")
    assert "Say what these tools do to the world, with @tool(effect=...): pay" in str(found.value)


async def test_a_check_that_says_that_nothing_happened_is_found() -> None:
    @tool(effect="once", check=lambda arguments, key: NotDone())
    async def pay(order: str) -> str:
        """Pay."""
        return f"paid {order}"

    report = await crashtest(factory(pay), "payer", "Go")
    assert report.tools["pay"].doubled
    assert not report.is_clean


async def test_a_check_that_says_that_all_happened_is_found() -> None:
    @tool(effect="once", check=lambda arguments, key: Done("paid"))
    async def pay(order: str) -> str:
        """Pay."""
        return f"paid {order}"

    report = await crashtest(factory(pay), "payer", "Go")
    assert report.tools["pay"].lost
    assert not report.is_clean


async def test_an_executor_on_other_stores_is_refused() -> None:
    @tool(effect="read")
    async def pay(order: str) -> str:
        """Pay."""
        return order

    async with open_stores("memory:") as other:
        with pytest.raises(InvalidArgument, match="must use the stores"):
            await crashtest(lambda stores: factory(pay)(other), "payer", "Go")


async def test_the_tools_are_given_back() -> None:
    await crashtest(shop.make_executor, "clerk", "Go", reset=shop.reset, every=50)
    assert "run" not in vars(shop.refund)


def test_the_command_reports_and_fails_for_what_is_not_safe(capsys: pytest.CaptureFixture[str]) -> None:
    module = "examples.shop"
    arguments = [f"{module}:make_executor", "--agent", "clerk", "--reset", f"{module}:reset", "--every", "7"]
    assert main(["crashtest", *arguments]) == 0
    assert "refund" in capsys.readouterr().out
    assert main(["crashtest", f"{__name__}:make_unsafe", "--agent", "payer"]) == 1
    assert "pay was doubled" in capsys.readouterr().out
    assert main(["crashtest", *arguments, "--rounds", "3"]) == 1
    assert "require --kill" in capsys.readouterr().err
    assert main(["crashtest", f"{module}:make_executor", "--agent", "nobody"]) == 1
    assert "does not know agent 'nobody'" in capsys.readouterr().err


@tool(name="pay")
async def unsafe(order: str) -> str:
    """Pay, and say nothing about it."""
    return f"paid {order}"


make_unsafe = factory(unsafe)


async def test_what_a_failed_turn_takes_back_is_counted() -> None:
    @tool(effect="once", undo=lambda arguments, result, key: None)
    async def pay(order: str) -> str:
        """Pay."""
        return f"paid {order}"

    def make(stores: Stores) -> AgentExecutor:
        llm = ScriptedLLM([[Call("pay", {"order": "7"})], [Call("pay", {"order": "8"})]])
        return AgentExecutor(stores, llm, agents=[Agent("payer", tools=[pay], max_steps=2)])

    report = await assert_crash_safe(make, "payer", "Go", every=3)
    assert report.tools["undo:pay"].effect == "once"
    assert report.tools["undo:pay"].unknown > 0, "no question was asked about an undo that was cut off"
    assert "as_undo" not in vars(pay)
