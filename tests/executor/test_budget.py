"""Limits of what a run or a session may spend: durable, and a clear end."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from itertools import count, repeat
from typing import Any

import pytest

from helix_agents import Agent, AgentExecutor, InvalidArgument, ScriptedLLM, UsageLimits, open_stores, tool
from helix_agents.backends.registry import Stores
from helix_agents.executor import AgentResult
from helix_agents.limits import Price
from helix_agents.llm import Call, Reply, TokenUsage
from helix_agents.llm.contract import ModelRequest

COST = Reply(calls=[Call("look")], usage=TokenUsage("m", prompt=60, completion=40))


@tool
def look() -> str:
    """Look around."""
    return "nothing"


@tool(execute="client")
def ask() -> str:
    """Ask a person."""
    raise NotImplementedError


AGENT = Agent("main", tools=[look, ask])


@pytest.fixture
async def stores() -> AsyncIterator[Stores]:
    async with open_stores("memory:") as opened:
        yield opened


async def run(stores: Stores, limits: UsageLimits, script: Any, times: int = 1) -> AgentResult:
    llm = ScriptedLLM(script)
    async with AgentExecutor(stores.state, stores.streams, llm, usage_store=stores.usage) as executor:
        for _ in range(times):
            result = await (await executor.execute(AGENT, "Go", session_id="s", limits=limits)).result()
    return result


def always(request: ModelRequest) -> Reply:
    return COST


@pytest.mark.parametrize(
    ("limits", "steps"),
    [
        (UsageLimits(steps=2), 2),
        (UsageLimits(tokens=250), 3),
        (UsageLimits(tool_calls=2), 2),
        (UsageLimits(cost=0.00035, prices={"m": Price(prompt=1.0, completion=2.0)}), 3),
    ],
)
async def test_a_run_over_its_limit_ends_with_the_reason(stores: Stores, limits: UsageLimits, steps: int) -> None:
    result = await run(stores, limits, always)
    session = await stores.state.load_state("s")
    assert session is not None
    assert (result.status, session.failure_reason, session.step_count) == ("failed", "usage_limit", steps)
    assert "limit of" in (result.error or "")


async def test_a_run_begins_anew_and_a_session_does_not(stores: Stores) -> None:
    script = ["One.", "Two."]
    assert (await run(stores, UsageLimits(steps=1), script, times=2)).output == "Two."
    result = await run(stores, UsageLimits(steps=2, per="session"), [*script, "Three."])
    assert (result.status, result.output) == ("failed", None)


async def test_calls_above_the_limit_do_not_run_and_the_conversation_stays_whole(stores: Stores) -> None:
    result = await run(stores, UsageLimits(tool_calls=2), [[Call("look")] * 3])
    messages = (await stores.state.get_messages("s")).items
    assert result.status == "failed"
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "tool", "tool"]
    assert all("Not executed" in message["content"] for message in messages if message["role"] == "tool")


async def test_limits_hold_for_whoever_resumes_the_run(stores: Stores) -> None:
    script: Any = [[Call("ask")], [Call("look")], [Call("look")], "Done."]
    suspended = await run(stores, UsageLimits(steps=2), script)
    async with AgentExecutor(stores.state, stores.streams, ScriptedLLM(script)) as other:
        await other.submit_tool_result("s", suspended.suspended[0].tool_call_id, result="yes")
        result = await (await other.resume(AGENT, "s")).result()
    assert (result.status, "steps=2" in (result.error or "")) == ("failed", True)


async def test_a_model_without_a_price_ends_the_run_by_name(stores: Stores) -> None:
    limits = UsageLimits(cost=1.0, prices={"other": Price(prompt=1, completion=1)})
    assert "'m' has no price" in ((await run(stores, limits, always)).error or "")


async def test_limits_that_nobody_counts_are_refused(stores: Stores) -> None:
    async with AgentExecutor(stores.state, stores.streams, ScriptedLLM([])) as executor:
        with pytest.raises(InvalidArgument, match="usage store"):
            await executor.execute(AGENT, "Go", limits=UsageLimits(tokens=5))


@pytest.mark.parametrize("clock", [repeat(1_000_000), count(1_000_000, -1)], ids=["stands still", "runs backwards"])
@pytest.mark.parametrize("mode", ["ephemeral", "persistent"])
@pytest.mark.parametrize("depth", [1, 2])
async def test_what_sub_agents_spend_counts(stores: Stores, mode: Any, clock: Any, depth: int) -> None:
    child = Agent("child").as_tool(mode=mode if depth == 1 else "ephemeral")
    if depth == 2:
        child = Agent("between", tools=[child]).as_tool(name="child", mode=mode)
    agent = Agent("parent", tools=[child])

    def answer(request: ModelRequest) -> Reply:
        if request.agent_type == "child":
            return Reply("ok", usage=TokenUsage("m", prompt=100))
        if request.agent_type == "between" and request.messages[-1]["role"] == "tool":
            return Reply("ok", usage=TokenUsage("m"))
        prompt = 1 if request.agent_type == "parent" else 0
        return Reply(calls=[Call("child", {"input": "x"})], usage=TokenUsage("m", prompt=prompt))

    llm = ScriptedLLM(answer)
    async with AgentExecutor(stores, llm, clock=clock.__next__) as executor:
        for turn in (1, 2):  # each run counts from zero
            result = await executor.run(agent, "Go", session_id="s", limits=UsageLimits(tokens=150))
            session = await stores.state.load_state("s")
            assert session is not None
            assert ("tokens=150" in (result.error or ""), session.step_count) == (True, 2 * turn)
        result = await executor.run(agent, "Go", session_id="s", limits=UsageLimits(tokens=404, per="session"))
        session = await stores.state.load_state("s")
        assert session is not None
        assert ("tokens=404" in (result.error or ""), session.step_count) == (True, 4)


class Counted:
    """A store that counts its calls by method."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.calls = Counter[str]()

    def __getattr__(self, name: str) -> Any:
        self.calls[name] += 1
        return getattr(self.inner, name)


@pytest.mark.parametrize("mode", ["ephemeral", "persistent"])
@pytest.mark.parametrize("depth", [1, 2])
async def test_a_limit_reads_as_much_in_a_late_turn_as_in_an_early_one(stores: Stores, mode: Any, depth: int) -> None:
    child = Agent("leaf").as_tool(name="child", mode=mode if depth == 1 else "ephemeral")
    if depth == 2:
        child = Agent("middle", tools=[child]).as_tool(name="child", mode=mode)
    reads, early = Counted(stores.state), Counter[str]()
    usage = TokenUsage("m", prompt=1)

    def answer(request: ModelRequest) -> Reply:
        asks = request.agent_type != "leaf" and request.messages[-1]["role"] == "user"
        return Reply(calls=[Call("child", {"input": "x"})], usage=usage) if asks else Reply("ok", usage=usage)

    state: Any = reads
    options: Any = {"usage_store": stores.usage, "clock": count(1_000_000).__next__}
    async with AgentExecutor(state, stores.streams, ScriptedLLM(answer), **options) as executor:
        for turn in range(1, 21):
            reads.calls.clear()
            agent = Agent("parent", tools=[child])
            result = await executor.run(agent, "Go", session_id="s", limits=UsageLimits(tokens=1000))
            assert result.status == "completed"
            early = early if turn > 2 else reads.calls.copy()
    assert reads.calls == early
