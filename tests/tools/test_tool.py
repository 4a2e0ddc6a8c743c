"""Options of tools: retries, ModelRetry, one after the other, by condition, by choice."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator
from typing import Any

import pytest

from helix_agents import (
    Agent,
    AgentExecutor,
    InvalidArgument,
    ModelRetry,
    ScriptedLLM,
    SessionState,
    ToolContext,
    open_stores,
    tool,
)
from helix_agents.backends.registry import Stores
from helix_agents.executor import AgentResult
from helix_agents.llm import Call


@pytest.fixture
async def stores() -> AsyncIterator[Stores]:
    async with open_stores("memory:") as opened:
        yield opened


async def run(stores: Stores, agent: Agent, llm: ScriptedLLM) -> AgentResult:
    async with AgentExecutor(stores.state, stores.streams, llm) as executor:
        return await (await executor.execute(agent, "Go", session_id="s")).result()


async def told(stores: Stores) -> list[str]:
    return [m["content"] for m in (await stores.state.get_messages("s")).items if m["role"] == "tool"]


async def test_a_tool_that_raised_is_run_again_and_only_the_good_run_counts(stores: Stores) -> None:
    tries: list[int] = []

    @tool(retries=2)
    async def flaky(ctx: ToolContext) -> str:
        """Fail twice."""
        tries.append(1)
        ctx.update_state(lambda draft: draft.increment("n"))
        if len(tries) < 3:
            raise OSError("away")
        return "ok"

    await run(stores, Agent("main", tools=[flaky], state={"n": 0}), ScriptedLLM([[Call("flaky")], "Done."]))
    session = await stores.state.load_state("s")
    assert session is not None
    assert (len(tries), await told(stores), session.custom_state) == (3, ["ok"], {"n": 1})


async def test_a_model_retry_goes_to_the_model_at_once_in_its_own_words(stores: Stores) -> None:
    tries: list[int] = []

    @tool(retries=5)
    def search(query: str) -> str:
        """Search."""
        tries.append(1)
        raise ModelRetry("Use fewer words.")

    await run(stores, Agent("main", tools=[search]), ScriptedLLM([[Call("search", {"query": "a b"})], "Done."]))
    assert (len(tries), await told(stores)) == (1, ["Error: Use fewer words."])


async def test_sequential_tools_run_one_after_the_other_in_order(stores: Stores) -> None:
    at_work: list[int] = []
    order: list[int] = []

    @tool(sequential=True)
    async def write(n: int) -> int:
        """Write."""
        at_work.append(n)
        assert len(at_work) == 1
        await asyncio.sleep(0)
        order.append(at_work.pop())
        return n

    calls = [Call("write", {"n": n}) for n in range(4)]
    await run(stores, Agent("main", tools=[write]), ScriptedLLM([calls, "Done."]))
    assert (order, await told(stores)) == ([0, 1, 2, 3], ["0", "1", "2", "3"])


async def test_a_tool_appears_when_its_condition_holds(stores: Stores) -> None:
    @tool
    async def log_in(ctx: ToolContext) -> str:
        """Log in."""
        ctx.update_state(lambda draft: draft.update(user="ann"))
        return "ok"

    @tool(when=lambda state: state["user"] is not None)
    def pay() -> str:
        """Pay."""
        return "paid"

    llm = ScriptedLLM([[Call("pay")], [Call("log_in")], [Call("pay")], "Done."])
    await run(stores, Agent("main", tools=[log_in, pay], state={"user": None}), llm)
    assert [[spec.name for spec in request.tools] for request in llm.requests[1:3]] == [["log_in"], ["log_in", "pay"]]
    first, _, last = await told(stores)
    assert (first, last) == ("Error: There is no tool 'pay'; the tools are: log_in.", "paid")


async def test_a_tool_choice_is_for_the_first_step_of_a_turn(stores: Stores) -> None:
    @tool
    def look() -> str:
        """Look."""
        return "ok"

    llm = ScriptedLLM([[Call("look")], "Done."])
    await run(stores, Agent("main", tools=[look], tool_choice="look"), llm)
    assert [request.tool_choice for request in llm.requests] == ["look", "auto"]


async def test_a_tool_choice_that_the_model_does_not_have_is_left_to_it(stores: Stores) -> None:
    @tool(when=lambda state: False)
    def look() -> str:
        """Look."""
        return "ok"

    llm = ScriptedLLM(["One."])
    await run(stores, Agent("main", tools=[look, tool(name="other")(print_nothing)], tool_choice="look"), llm)
    await run(stores, Agent("main", tools=[look], tool_choice="required"), llm)
    assert [request.tool_choice for request in llm.requests] == ["auto", "auto"]
    finishing = ScriptedLLM([[Call("finish", {"output": 3})]])
    async with AgentExecutor(stores, finishing) as executor:
        assert (await executor.run(Agent("counter", output=int, tool_choice="finish"), "Count")).output == 3
    assert finishing.requests[0].tool_choice == "finish"


def print_nothing() -> None:
    """Do nothing."""


@pytest.mark.parametrize(
    ("agent", "words"),
    [
        (Agent("main", tools=[tool(when=lambda state: state["n"] > 0)(print_nothing)]), "condition of tool"),
        (Agent("main", instructions=lambda state: str(state["n"])), "instructions of agent 'main' failed: KeyError"),
        (Agent("main", instructions=lambda state: None), "not a string"),  # type: ignore[arg-type, return-value]
    ],
)
async def test_functions_of_the_state_that_fail_are_named(stores: Stores, agent: Agent, words: str) -> None:
    result = await run(stores, agent, ScriptedLLM(["One."]))
    assert (result.status, words in (result.error or "")) == ("failed", True)


async def test_a_deps_factory_that_fails_is_named_and_stops_no_worker(stores: Stores) -> None:
    def broken(session: SessionState) -> Any:
        raise OSError("no such key")

    agent = Agent("main")
    async with AgentExecutor(stores, ScriptedLLM(["One."]), agents=[agent], deps_factory=broken) as executor:
        with pytest.raises(InvalidArgument, match=r"deps_factory failed for session 's'.*no such key"):
            await executor.execute(agent, "Go", session_id="s")
        assert not await stores.state.session_exists("s")
        await executor.submit(agent, "Go", session_id="t")
        assert await executor.recover() == []


async def test_an_output_that_is_refused_goes_back_to_the_model(stores: Stores) -> None:
    agent = Agent("main")

    @agent.check_output
    async def short(output: str) -> None:
        if len(output) > 5:
            raise ModelRetry("Shorter, please.")

    result = await run(stores, agent, ScriptedLLM(["Much too long.", "Short"]))
    assert result.output == "Short"
    messages = (await stores.state.get_messages("s")).items
    assert [m["content"] for m in messages] == ["Go", "Much too long.", "Shorter, please.", "Short"]


async def test_a_guard_that_raises_anything_else_ends_the_run(stores: Stores) -> None:
    agent = Agent("main")

    @agent.check_output
    def polite(output: str) -> None:
        raise ValueError("rude")

    result = await run(stores, agent, ScriptedLLM(["Grr."]))
    session = await stores.state.load_state("s")
    assert session is not None
    assert (result.status, session.failure_reason, result.output) == ("failed", "output_refused", None)


async def test_an_input_that_is_refused_reaches_no_model(stores: Stores) -> None:
    agent, llm = Agent("main"), ScriptedLLM(["Hi."])

    @agent.check_input
    def no_orders(messages: list[dict[str, Any]]) -> None:
        if any(message["content"] == "Go" for message in messages):
            raise ValueError("no orders")

    result = await run(stores, agent, llm)
    session = await stores.state.load_state("s")
    assert session is not None
    assert (result.status, session.failure_reason, llm.requests) == ("failed", "input_refused", [])
    async with AgentExecutor(stores.state, stores.streams, llm) as executor:
        assert (await (await executor.execute(agent, "Hello", session_id="s")).result()).output == "Hi."


def guarded() -> tuple[Agent, asyncio.Event, asyncio.Event]:
    """Return an agent that rejects orders, with a tool that waits for an event; return also its events."""
    at_work, go_on = asyncio.Event(), asyncio.Event()

    @tool
    async def work() -> str:
        """Work."""
        at_work.set()
        await go_on.wait()
        return "worked"

    agent = Agent("main", tools=[work])

    @agent.check_input
    def no_orders(messages: list[dict[str, Any]]) -> None:
        if any(message["content"] == "Obey" for message in messages):
            raise ValueError("no orders")

    return agent, at_work, go_on


async def test_what_is_said_while_a_run_is_at_work_is_checked_too(stores: Stores) -> None:
    agent, at_work, go_on = guarded()
    llm = ScriptedLLM([[Call("work")], "Done."])
    async with AgentExecutor(stores, llm) as executor:
        handle = await executor.execute(agent, "Hello", session_id="s")
        await at_work.wait()
        await executor.execute(agent, "Obey", session_id="s", if_running="enqueue")
        go_on.set()
        assert (await handle.result()).failure_reason == "input_refused"
        assert len(llm.requests) == 1
        assert "Obey" not in str((await stores.state.get_messages("s")).items)


@pytest.mark.parametrize("message", ["Obey", "Hello again"])
async def test_what_is_said_to_go_on_is_checked_too(stores: Stores, message: str) -> None:
    agent, at_work, go_on = guarded()
    async with AgentExecutor(stores, ScriptedLLM([[Call("work")], "Done."])) as executor:
        handle = await executor.execute(agent, "Hello", session_id="s")
        await at_work.wait()
        await handle.interrupt()
        go_on.set()
        assert (await handle.result()).status == "interrupted"
        result = await (await handle.resume(message=message)).result()
        assert (result.failure_reason, result.output) == (
            ("input_refused", None) if message == "Obey" else (None, "Done.")
        )


@pytest.mark.parametrize(
    "make",
    [
        lambda: tool(retries=-1)(print),
        lambda: tool(retries=True)(print),
        lambda: Agent("main", instructions=None),  # type: ignore[arg-type]
        lambda: tool(when=3)(print),  # type: ignore[call-overload]
        lambda: Agent("main", tool_choice="nobody"),
        lambda: Agent("main", history=5),  # type: ignore[arg-type]
        lambda: Agent("main", limits={"steps": 3}),  # type: ignore[arg-type]
    ],
)
def test_options_that_make_no_sense_are_refused_at_once(make: Any) -> None:
    with pytest.raises(InvalidArgument):
        make()


@pytest.mark.parametrize("what", ["search", 5, functools.partial(print)])
def test_a_tool_is_made_of_a_function_with_a_name(what: Any) -> None:
    with pytest.raises(InvalidArgument, match="name=") as caught:
        tool(what)
    assert "needs a function" in str(caught.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"effect": "twice"}, "effect must be"),
        ({"effect": "once", "retries": 2}, "needs check="),
        ({"effect": "once", "idempotent": True}, "contradicts idempotent"),
        ({"effect": "once", "execute": "client"}, "not in the client"),
        ({"effect": "once", "key": "order"}, "key must be a function"),
        ({"effect": "once", "after_restore": "never"}, "after_restore must be"),
        ({"effect": "read", "check": lambda arguments, key: None}, "check requires"),
        ({"effect": "read", "undo": lambda arguments, result, key: None}, "undo requires"),
        ({"undo": lambda arguments, result, key: None}, "undo requires"),
        ({"effect": "once", "undo": "refund"}, "undo must be a function"),
    ],
)
def test_options_of_effects_that_make_no_sense_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        tool(name="pay", **options)(lambda order: order)
