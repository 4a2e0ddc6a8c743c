"""The scenario that the crash checks run: parallel tools, sub-agents, an approval, a client's response.

Everything in it is a function of the conversation, so however often it is interrupted and continued, it must end with
the same messages and the same state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...agent import Agent
from ...llm.scripted import Call, Reply, Script, ScriptedLLM
from ...tools import ToolContext, tool

Journal = Callable[[str], None]
"""Called with `"session call"` for every execution of a tool."""

ROOT_STATE: dict[str, Any] = {"notes": [], "count": 0, "plan": {}}

NATIVE: list[dict[str, Any]] = [
    {"type": "thinking", "thinking": "Three tools\u2014\u00fc\x00 should do.", "signature": "Eq+/oBCkg=="},
    {"type": "call", "input": {"scale": 1.0, "count": 1, "empty": {}, "none": None}},
]
"""A provider block that must be sent back unchanged."""

SCRIPT: dict[str, Script] = {
    "author": [
        Reply(
            "Let me think about that. I will look at three things at once.",
            [Call("note", {"text": "one"}), Call("plan", {"key": "a"}), Call("note", {"text": "two"})],
            thinking="Three tools should do.",
            native=NATIVE,
        ),
        [Call("helper", {"input": "gather"}), Call("publish", {"title": "draft"}), Call("note", {"text": "three"})],
        Reply("Now the reviewer.", [Call("reviewer", {"input": "review it"}), Call("plan", {"key": "b"})]),
        [Call("ask", {"question": "Which colour?"}), Call("note", {"text": "four"})],
        "All done, the report is published.",
    ],
    "helper": [
        Reply("I gather.", [Call("note", {"text": "h1"}), Call("note", {"text": "h2"})], native=NATIVE),
        [Call("plan", {"key": "h"})],
        "Gathered.",
    ],
    "reviewer": [[Call("ask", {"question": "Is it good?"}), Call("note", {"text": "r1"})], "It is good."],
}

ANSWERS: dict[str, dict[str, Any]] = {"publish": {"approved": True}, "ask": {"result": "blue"}}
"""How the people of the scenario respond, by tool."""


def make_author(journal: Journal, *, hold: str | None = None) -> Agent:
    """Return the agent of the scenario, with its sub-agents. Tools wait until the file `hold` exists."""

    @tool
    async def note(text: str, ctx: ToolContext) -> str:
        """Write something down."""
        journal(f"{ctx.session_id} {ctx.tool_call_id}")
        ctx.update_state(lambda draft: draft["notes"].append({"text": text}))
        while hold is not None and not Path(hold).exists():  # noqa: ASYNC110, ASYNC240  # processes share files
            await asyncio.sleep(0.005)
        await asyncio.sleep(0)
        ctx.update_state(lambda draft: draft.increment("count"))
        ctx.emit("noted", text)
        return f"noted {text}"

    @tool
    def plan(key: str, ctx: ToolContext) -> dict[str, Any]:
        """Plan something, in a thread."""
        journal(f"{ctx.session_id} {ctx.tool_call_id}")
        ctx.update_state(lambda draft: draft["plan"].update({key: {"done": True}}))
        return {"planned": key}

    @tool(requires_approval=True)
    async def publish(title: str, ctx: ToolContext) -> str:
        """Publish something."""
        journal(f"{ctx.session_id} {ctx.tool_call_id}")
        ctx.update_state(lambda draft: draft["plan"].update(published=title))
        return f"published {title}"

    @tool(execute="client")
    def ask(question: str) -> str:
        """Ask a person."""
        raise NotImplementedError

    helper = Agent("helper", tools=[note, plan], state=ROOT_STATE)
    reviewer = Agent("reviewer", tools=[ask, note], state=ROOT_STATE)
    tools = [note, plan, publish, ask, helper.as_tool(), reviewer.as_tool()]
    return Agent("author", tools=tools, state=ROOT_STATE)


def make_llm(delay_seconds: float = 0.0) -> ScriptedLLM:
    """Return the model of the scenario."""
    return ScriptedLLM(SCRIPT, delay_seconds=delay_seconds)
