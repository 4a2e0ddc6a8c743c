"""The agent of the demo: three parallel searches, a sub-agent, an approval, a typed output. The model is scripted."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from ..agent import Agent
from ..llm.scripted import Call, Reply, Script, ScriptedLLM
from ..tools import ToolContext, tool

QUESTION = "How do ants find the shortest way?"


@dataclass
class Notes:
    """The researcher's state: what it found, how much it read, what was published."""

    findings: list[dict[str, str]] = field(default_factory=list)
    pages_read: int = 0
    published: list[str] = field(default_factory=list)


@dataclass
class Report:
    """The output of the run."""

    title: str
    answer: str
    sources: int


LIBRARY = {
    "pheromone trails": ("Ants mark the way with pheromones; shorter ways are marked more often.", 0.2),
    "double bridge experiment": ("Given two bridges a colony settles on the shorter one within minutes.", 0.7),
    "evaporation": ("Marks evaporate, so a way that is no longer used is forgotten.", 1.4),
}


PRICE = 0.004
"""The price of a search in dollars; the inspector shows an entry named `cost` as money."""


@tool(timeout_seconds=30)
async def search(topic: str, ctx: ToolContext) -> str:
    """Look a topic up in the library."""
    found, seconds = LIBRARY[topic]
    await asyncio.sleep(seconds)
    ctx.update_state(lambda notes: notes["findings"].append({"topic": topic, "text": found}))
    ctx.update_state(lambda notes: notes.increment("pages_read", 3))
    ctx.record_usage("pages", 3)
    ctx.record_usage("cost", PRICE)
    return found


@tool(requires_approval=True)
def publish(title: str, ctx: ToolContext) -> str:
    """Publish the report. A person must approve it."""
    ctx.update_state(lambda notes: notes["published"].append(title))
    return f"published as {title!r}"


critic = Agent(
    "critic",
    instructions="Find the weakest claim.",
    description="Looks for the weakest claim in a text.",
)
researcher = Agent(
    "researcher",
    instructions="Answer with sources. Have your work read before you publish it.",
    tools=[search, critic.as_tool(), publish],
    state=Notes,
    output=Report,
)

SCRIPT: dict[str, Script] = {
    "researcher": [
        Reply(
            "I will look at three sources at once.",
            [Call("search", {"topic": topic}) for topic in LIBRARY],
            thinking="Trails, the experiment, and what makes them forget.",
        ),
        Reply(
            "All three agree. Before I publish, somebody should look for holes.",
            [Call("critic", {"input": "Ants choose the shortest way because marks add up and fade."})],
        ),
        Reply("The critic has a point, I will say 'a short way'.", [Call("publish", {"title": "Short ways"})]),
        [
            Call(
                "finish",
                {
                    "title": "Short ways",
                    "answer": "Marks add up faster on shorter ways and fade elsewhere: colonies settle on a short way.",
                    "sources": 3,
                },
            )
        ],
    ],
    "critic": ["'Shortest' is too strong: colonies can get stuck on a way that is merely good."],
}


def make_llm(delay_seconds: float = 0.02) -> ScriptedLLM:
    """Return a model that types at reading speed."""
    return ScriptedLLM(SCRIPT, delay_seconds=delay_seconds, piece=6)
