"""A typed agent: an output that is a dataclass, tools with dependencies, memories of the user, and a retry."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from helix_agents import Agent, AgentExecutor, ModelError, ScriptedLLM, ToolContext, memory_tools, open_stores, tool
from helix_agents.llm import Call, Line, ModelRequest


@dataclass
class Library:
    """What the tools need of this process; never stored."""

    books: dict[str, str]


@dataclass
class Report:
    title: str
    findings: list[str] = field(default_factory=list)


@tool
async def look_up(topic: str, ctx: ToolContext[Library]) -> str:
    """Look something up.

    Args:
        topic: One word.
    """
    return ctx.deps.books.get(topic, "Nothing is known.")


online = False


def answer(request: ModelRequest) -> Line:
    """Stands for a model that is out of order at first."""
    told = [message["content"] for message in request.messages if message["role"] == "tool"]
    if not told:
        return [Call("look_up", {"topic": "ants"}), Call("save_memory", {"content": "The user likes ants."})]
    return [Call("finish", {"title": "Ants", "findings": told[:1]})] if online else ModelError("out of order")


async def main() -> None:
    global online
    agent = Agent("researcher", tools=[look_up, *memory_tools()], output=Report)
    library = Library({"ants": "Ants are strong."})
    async with open_stores("sqlite:research.db") as stores, AgentExecutor(stores, ScriptedLLM(answer)) as executor:
        failed = await (handle := await executor.execute(agent, "Ants?", user_id="ann", deps=library)).result()
        print(failed.status, failed.error)
        online = True
        result = await (await executor.retry(handle.session_id, deps=library)).result()  # tools do not run again
        assert result.output == Report("Ants", ["Ants are strong."])
        print(result.output, (await stores.memory.search("ann", "ants"))[0].content)


asyncio.run(main())
