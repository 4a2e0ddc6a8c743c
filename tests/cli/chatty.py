"""What the tests name on the command line: `tests.cli.chatty:make_executor`, and agents without an executor."""

from __future__ import annotations

import asyncio
import json

from helix_agents import Agent, AgentExecutor, ScriptedLLM, Stores, tool
from helix_agents.llm import Call, Line, ModelRequest

WORDS = " ".join(f"word{number}" for number in range(200))


@tool(requires_approval=True)
def publish(title: str) -> str:
    """Publish something; a person must agree."""
    return f"published {title}"


@tool(execute="client")
def ask(question: str) -> str:
    """Ask the user."""
    raise NotImplementedError


@tool(effect="once", timeout_seconds=0.05)
async def pay(order: str) -> str:
    """Pay; the bank never answers."""
    await asyncio.Event().wait()
    return f"paid {order}"


def reply(request: ModelRequest) -> Line:
    """Call a tool, reply at length, or echo the message."""
    last = request.messages[-1]
    text = str(last["content"])
    word, _, rest = text.partition(" ")
    if last["role"] == "tool":
        return f"Done: {text}"
    if word in ("publish", "ask", "pay"):
        return [Call(word, json.loads(rest))]
    if word == "break":
        raise RuntimeError("The model broke.\x1b[2J")
    return WORDS if word == "talk" else f"You said: {text}"


writer = Agent("writer", tools=[publish, ask, pay])
other = Agent("other")


def make_executor(stores: Stores) -> AgentExecutor:
    """Return an executor with a short lease."""
    llm = ScriptedLLM(reply, delay_seconds=0.02, piece=8)
    return AgentExecutor(stores, llm, agents=[writer, other], lease_seconds=2)


def nobody(stores: Stores) -> AgentExecutor:
    """Return an executor without agents."""
    return AgentExecutor(stores, ScriptedLLM(reply))
