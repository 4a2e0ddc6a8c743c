"""What the sessions of a soak do, and what must be left of them. Deterministic: every run of a turn is the same."""

from __future__ import annotations

import asyncio
from typing import Any

from helix_agents import Agent, AgentExecutor, ScriptedLLM, Stores, ToolContext, tool
from helix_agents.llm import Call, ModelRequest

STEPS = 3
LEASE_SECONDS = 1.0
TOOL_SECONDS = 0.02


@tool
async def work(n: int, ctx: ToolContext) -> str:
    """Work for a moment, and leave a mark."""
    await asyncio.sleep(TOOL_SECONDS)
    ctx.update_state(lambda draft: draft["done"].append(n))
    return f"did {n}"


@tool
async def count(ctx: ToolContext) -> str:
    """Count, beside `work`."""
    ctx.increment("count")
    return "counted"


@tool(requires_approval=True)
async def publish(ctx: ToolContext) -> str:
    """Do what a person must approve."""
    ctx.increment("published")
    return "published"


agent = Agent("soaker", tools=[work, count, publish], state={"done": [], "count": 0, "published": 0})


def script(request: ModelRequest) -> Any:
    """Call two tools in each of some steps, ask a person in the last one, reply."""
    turn = list(request.messages)
    last = max(place for place, message in enumerate(turn) if message["role"] == "user")
    answers = sum(message["role"] == "assistant" for message in turn[last:])
    if answers < STEPS:
        return [Call("work", {"n": answers}), Call("count")]
    if answers == STEPS and turn[last]["content"].startswith("ask"):
        return [Call("publish")]
    return "Done."


def make_executor(stores: Stores) -> AgentExecutor:
    """Return an executor for the workload."""
    return AgentExecutor(stores, ScriptedLLM(script), agents=[agent], lease_seconds=LEASE_SECONDS)


def expected_roles(asks: list[bool]) -> list[str]:
    """Return the roles of a finished session's messages, for turns that ask a person or do not."""
    roles: list[str] = []
    for asking in asks:
        roles += [
            "user",
            *["assistant", "tool", "tool"] * STEPS,
            *(["assistant", "tool"] if asking else []),
            "assistant",
        ]
    return roles


def expected_state(asks: list[bool]) -> dict[str, Any]:
    """Return the custom state of a finished session."""
    return {"done": [*range(STEPS)] * len(asks), "count": STEPS * len(asks), "published": sum(asks)}
