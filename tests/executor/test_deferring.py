"""Deferred calls and timers in one process: the local executor continues by itself, tokens need a secret."""

from __future__ import annotations

import asyncio

import pytest

from helix_agents import Agent, AgentExecutor, InvalidArgument, ScriptedLLM, ToolContext, open_stores, tool
from helix_agents.clock import system_clock
from helix_agents.executor import WorkerPool
from helix_agents.llm.scripted import Call


@tool
async def nap(ctx: ToolContext) -> str:
    """Wait a moment."""
    await ctx.wait_until(system_clock() + 50)
    return "rested"


def script(request: object) -> object:
    messages = request.messages  # type: ignore[attr-defined]  # a ModelRequest
    return "Done." if messages[-1]["role"] == "tool" else [Call("nap")]


@pytest.mark.parametrize("with_pool", [False, True])
async def test_a_timer_continues_in_the_process_that_waits(with_pool: bool) -> None:
    agent, done = Agent("a", tools=[nap]), asyncio.Event()

    @agent.check_output
    def note(output: str) -> None:
        done.set()

    async with open_stores("memory:") as stores:
        executor = AgentExecutor(stores, ScriptedLLM(script), agents=[agent], lease_seconds=600)  # type: ignore[arg-type]
        async with executor:
            if with_pool:
                async with WorkerPool(executor):
                    await executor.submit(agent, "Go", session_id="s")
                    await asyncio.wait_for(done.wait(), 30)
            else:
                assert (await executor.run(agent, "Go", session_id="s")).status == "suspended_client_tool"
                await asyncio.wait_for(done.wait(), 30)
            handle = await executor.get_handle(agent, "s")
            assert handle is not None
            assert (await handle.result()).output == "Done."


async def test_a_closed_executor_leaves_its_timers_to_others() -> None:
    agent, done = Agent("a", tools=[nap]), asyncio.Event()

    @agent.check_output
    def note(output: str) -> None:
        done.set()

    async with open_stores("memory:") as stores:
        async with AgentExecutor(stores, ScriptedLLM(script), agents=[agent]) as executor:  # type: ignore[arg-type]
            assert (await executor.run(agent, "Go", session_id="s")).status == "suspended_client_tool"
        async with AgentExecutor(stores, ScriptedLLM(script), agents=[agent]) as other:  # type: ignore[arg-type]
            async with WorkerPool(other):
                await asyncio.wait_for(done.wait(), 30)


async def test_a_token_needs_a_secret_and_a_url_an_address() -> None:
    errors: list[str] = []

    @tool
    async def hand_over(ctx: ToolContext) -> str:
        """Hand the work over."""
        with pytest.raises(InvalidArgument, match="must be positive"):
            await ctx.defer(deadline_seconds=0)
        call = await ctx.defer()
        for read in ("token", "url"):
            with pytest.raises(InvalidArgument) as raised:
                getattr(call, read)
            errors.append(str(raised.value))
        return ""

    @tool(effect="once")
    async def once(ctx: ToolContext) -> str:
        """Wait in a call that must not run again."""
        await ctx.wait_until(system_clock() + 10_000)
        return ""

    agent = Agent("a", tools=[hand_over, once])
    async with open_stores("memory:") as stores:
        async with AgentExecutor(stores, ScriptedLLM([[Call("hand_over"), Call("once")], "Done."])) as executor:
            result = await executor.run(agent, "Go", session_id="s")
            assert [wait.kind for wait in result.suspended] == ["deferred"]
            await executor.submit_tool_result("s", result.suspended[0].tool_call_id, result=1)
            assert (await (await executor.resume(agent, "s")).result()).status == "completed"
        messages = (await stores.state.get_messages("s")).items
        (refused,) = [message["content"] for message in messages if message.get("tool_name") == "once"]
    assert ("secret" in errors[0], "public_url" in errors[1]) == (True, True)
    assert "effect='once'" in refused


@pytest.mark.parametrize("options", [{"secret": "short"}, {"secret": [1]}, {"public_url": "example.com"}])
async def test_odd_secrets_and_addresses_are_refused(options: dict[str, object]) -> None:
    async with open_stores("memory:") as stores:
        with pytest.raises(InvalidArgument):
            AgentExecutor(stores, ScriptedLLM([]), **options)  # type: ignore[arg-type]
