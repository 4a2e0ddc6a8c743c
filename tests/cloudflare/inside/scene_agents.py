"""The agents of the scenes in `tests/cloudflare/scenes.py`. What they do depends only on their conversation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from helix_agents import Agent, ToolContext, tool
from helix_agents.llm.scripted import Call, Reply

Note = Callable[[str, str], Awaitable[None]]
May = Callable[[str], Awaitable[bool]]


def scene_agents(note: Note, may_end: May) -> list[Agent]:
    """`note` is called by every tool; `may_end` says whether the tools of a session that wait may return."""

    @tool(requires_approval=True)
    async def send(to: str, ctx: ToolContext) -> str:
        """Send something, if a person agrees."""
        await note(ctx.session_id, f"{ctx.session_id} {ctx.tool_call_id}")
        ctx.update_state(lambda draft: draft["sent"].append(to))
        return f"sent to {to}"

    @tool(requires_approval=True, deadline_seconds=2)
    async def hurry(what: str) -> str:
        """Ask, and not for long."""
        return f"{what} done"

    @tool(execute="client")
    def measure(unit: str) -> str:
        """Ask the client."""
        raise NotImplementedError

    @tool
    async def render(ctx: ToolContext) -> str:
        """Start a job elsewhere."""
        call = await ctx.defer(deadline_seconds=3600)
        await note(ctx.session_id, f"token {call.token}")
        return "does not count"

    @tool
    async def wait(ctx: ToolContext) -> str:
        """Work until asked to stop."""
        await note(ctx.session_id, f"{ctx.session_id} {ctx.tool_call_id}")
        while not ctx.interrupted and not await may_end(ctx.session_id):  # noqa: ASYNC110  # what tools do
            await asyncio.sleep(0.05)
        ctx.update_state(lambda draft: draft["sent"].append("waited"))
        return "waited"

    @tool
    async def count(n: int, ctx: ToolContext) -> str:
        """Count."""
        await note(ctx.session_id, f"{ctx.session_id} {ctx.tool_call_id}")
        ctx.increment("count")
        return str(n)

    state: dict[str, Any] = {"sent": []}
    below = Agent("below", tools=[wait], state=state)
    return [
        Agent("desk", tools=[send, hurry, measure, render], state=state),
        Agent("patient", tools=[wait, below.as_tool()], state=state),
        Agent("counter", tools=[count], state={"count": 0}),
    ]


SCRIPTS: dict[str, Any] = {
    "desk": [
        Reply(
            "Four questions.",
            [Call("send", {"to": "a"}), Call("send", {"to": "b"}), Call("measure", {"unit": "m"}), Call("render")],
        ),
        [Call("hurry", {"what": "this"})],
        "Done.",
    ],
    "patient": [[Call("wait"), Call("below", {"input": "go"})], "Stopped and continued.", "The next turn."],
    "below": [[Call("wait")], "Waited below."],
    "counter": [[Call("count", {"n": 1})], [Call("count", {"n": 2})], "One.", [Call("count", {"n": 3})], "Two."],
}
