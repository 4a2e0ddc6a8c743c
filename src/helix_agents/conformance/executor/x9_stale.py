"""X9: a process that stalls while it cleans up changes neither the flag nor the sub-agents of its successor."""

from __future__ import annotations

import asyncio

from ...agent import Agent
from ...llm.scripted import Call, Script, ScriptedLLM
from ...tools.tool import tool
from ..expect import expect, expect_same
from ..harness import Harness
from .frozen import Freezer
from .harness import Clockwork, check, executing, simple_agent


@tool(execute="client")
def ask() -> str:
    """Ask a client."""
    raise NotImplementedError


@check("X9", "a run that stalls before it clears its flag leaves the flag of its successor alone", kind="faults")
async def stale_flag(harness: Harness) -> None:
    stores, later = await harness.open_stores(), Clockwork()
    later.pass_seconds(3600)
    freezer, agent = Freezer(on="clear_interrupt_flag"), simple_agent()
    llm = ScriptedLLM(["One. " * 50], delay_seconds=0.005)
    async with (
        executing(freezer.wrap(stores), llm, poll_seconds=0.005) as frozen,
        executing(stores, ScriptedLLM(["Two."]), clock=later) as other,
    ):
        handle = await frozen.execute(agent, "Go", session_id="s")
        await stores.state.set_interrupt_flag("s", "stop", run_id=handle.run_id)
        await freezer.frozen.wait()
        await (await other.execute(agent, "Again", session_id="s")).result()
        await stores.state.set_interrupt_flag("s", "later")
        freezer.wake()
        await asyncio.gather(handle.result(), return_exceptions=True)
    expect(await stores.state.check_interrupt_flag("s") is not None, "the flag of the successor was cleared")


@check(
    "X9", "an abort that stalls before it ends a sub-agent leaves the sub-agent of the next turn alone", kind="faults"
)
async def stale_end_of_a_child(harness: Harness) -> None:
    stores, later = await harness.open_stores(), Clockwork()
    later.pass_seconds(3600)
    agent = simple_agent(Agent("child", tools=[ask]).as_tool(mode="persistent"))
    script: dict[str, Script] = {"main": [[Call("child", {"input": "x"})]] * 2, "child": [[Call("ask")]] * 2}
    freezer = Freezer(on="load_conversation", session_id="s/@child")
    async with (
        executing(freezer.wrap(stores), ScriptedLLM(script)) as frozen,
        executing(stores, ScriptedLLM(script), clock=later) as other,
    ):
        await (await other.execute(agent, "Go", session_id="s")).result()
        aborting = asyncio.create_task(frozen.abort("s"))
        await freezer.frozen.wait()
        result = await (await other.execute(agent, "Again", session_id="s")).result()
        expect_same(result.status, "suspended_awaiting_children", "the next turn")
        freezer.wake()
        await asyncio.gather(aborting, return_exceptions=True)
        child = await stores.state.load_state("s/@child")
        expect_same(child and child.status, "suspended_client_tool", "the sub-agent after the stalled abort")
