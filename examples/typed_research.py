"""A typed agent: state and output are dataclasses, tools have dependencies, and a turn that failed is run again."""

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime

from helix_agents import Agent, AgentExecutor, ScriptedLLM, ToolContext, open_stores, tool
from helix_agents.errors import ModelError
from helix_agents.llm import Call, Line, ModelRequest


@dataclass
class Library:  # what the tools need of this process; never stored
    books: dict[str, str]


@dataclass
class Research:  # what the session remembers
    looked_up: dict[str, datetime] = field(default_factory=dict)


@dataclass
class Report:  # what the run returns
    title: str
    findings: list[str] = field(default_factory=list)


@tool(effect="read")
async def look_up(topic: str, ctx: ToolContext[Library, Research]) -> str:
    """Look up one word."""
    ctx.update_state(lambda research: research.looked_up.update({topic: datetime.now(UTC)}))
    return ctx.deps.books.get(topic, "Nothing is known.")


agent = Agent("researcher", tools=[look_up], state=Research, output=Report)
online = False


def answer(request: ModelRequest) -> Line:
    """Stands for a model that is out of order at first."""
    told = [message["content"] for message in request.messages if message["role"] == "tool"]
    if not told:
        return [Call("look_up", {"topic": "ants"})]
    return [Call("finish", {"title": "Ants", "findings": told[:1]})] if online else ModelError("out of order")


async def main() -> None:
    global online
    library = Library({"ants": "Ants are strong."})
    async with open_stores("sqlite:research.db") as stores, AgentExecutor(stores, ScriptedLLM(answer)) as executor:
        handle = await executor.execute(agent, "Ants?", deps=library)
        print((await handle.result()).error)
        online = True
        result = await (await executor.retry(handle.session_id, agent=agent, deps=library)).result()
        assert result.output == Report("Ants", ["Ants are strong."])  # a Report; the tool has not run again
        print(result.output, (await handle.get_state()).custom_state)


asyncio.run(main())
