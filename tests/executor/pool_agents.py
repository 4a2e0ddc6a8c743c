"""An executor for worker processes: each session takes a few steps, and a file records which process worked when."""

from __future__ import annotations

import asyncio
import os

from helix_agents import Agent, AgentExecutor, ScriptedLLM, Stores, ToolContext, tool
from helix_agents.llm.scripted import Call

STEPS = 3


@tool
async def work(n: int, ctx: ToolContext) -> str:
    """Work for a moment."""
    await asyncio.sleep(0.03)
    ctx.update_state(lambda draft: draft["done"].append(n))
    return f"did {n} in {os.getpid()}"


agent = Agent("worker", tools=[work], state={"done": []})


def script() -> ScriptedLLM:
    return ScriptedLLM([*([Call("work", {"n": n})] for n in range(STEPS)), "Done."])


def executor(stores: Stores, *, lease_seconds: float = 10) -> AgentExecutor:
    """Return an executor. Its lease outlasts a busy machine; processes that are killed have a shorter one."""
    return AgentExecutor(stores.state, stores.streams, script(), agents=[agent], lease_seconds=lease_seconds)
