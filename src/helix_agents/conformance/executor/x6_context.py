"""X6: what tools know about their run besides their arguments, in any process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...agent import Agent
from ...errors import InvalidArgument
from ...llm.scripted import Call, Script, ScriptedLLM
from ...tools import ToolContext, tool
from ...types import SessionState
from ..expect import expect_same, raises
from ..harness import Harness
from .harness import check, executing, simple_agent

SCRIPT: Script = [[Call("greet"), Call("ask")], "Done."]


@dataclass
class Deps:
    """Dependencies that exist in one process only."""

    greeting: str


class Greeters:
    """An agent whose tools return what they know about their run."""

    def __init__(self) -> None:
        self.known: list[tuple[str, str | None, str]] = []
        known = self.known

        @tool(requires_approval=True)
        async def greet(ctx: ToolContext[Deps]) -> str:
            """Greet the user."""
            known.append((ctx.deps.greeting, ctx.user_id, ctx.metadata.get("tier", "")))
            return ctx.deps.greeting

        @tool(execute="client")
        def ask() -> str:
            """Ask a person."""
            raise NotImplementedError

        self.agent = simple_agent(greet, ask)


@check("X6", "tools get the user, the metadata and the deps, which a resuming process supplies or creates")
async def deps_are_given_again(harness: Harness) -> None:
    greeters = Greeters()
    options: dict[str, Any] = {"user_id": "ann", "metadata": {"tier": "gold"}}
    async with executing(await harness.open_stores(), ScriptedLLM(SCRIPT)) as executor:
        with raises(InvalidArgument, "a run without the deps that its tools need"):
            await executor.execute(greeters.agent, "Go", session_id="s", **options)
        await executor.run(greeters.agent, "Go", session_id="s", deps=Deps("Hello"), **options)
    stores = await harness.open_stores()
    async with executing(stores, ScriptedLLM(SCRIPT), agents=[greeters.agent]) as executor:
        await executor.submit_tool_result("s", "call_1_1", approved=True)
        await executor.submit_tool_result("s", "call_1_2", result="so")
        before = await stores.state.load_state("s")
        with raises(InvalidArgument, "resuming without the deps"):
            await executor.resume("main", "s")
        expect_same(await stores.state.load_state("s"), before, "a session that was not resumed")
        result = await (await executor.resume("main", "s", deps=Deps("Bonjour"))).result()
        expect_same(result.status, "completed", "the status")
    expect_same(greeters.known, [("Bonjour", "ann", "gold")], "what the tool knew")


@check("X6", "a factory creates the deps of runs that are started without them, also for sub-agents")
async def deps_are_made(harness: Harness) -> None:
    greeters = Greeters()
    boss = Agent("boss", tools=[greeters.agent.as_tool(name="clerk")])
    script: dict[str, Script] = {"boss": [[Call("clerk", {"input": "Greet"})], "Good."], "main": SCRIPT}
    made: list[tuple[str, str | None]] = []

    async def factory(session: SessionState) -> Deps:
        made.append((session.session_id, session.user_id))
        return Deps(f"Hello {session.user_id}")

    stores = await harness.open_stores()
    async with executing(stores, ScriptedLLM(script), agents=[boss], deps_factory=factory) as executor:
        result = await executor.run(boss, "Go", session_id="s", user_id="ann")
        for wait in result.suspended:
            answer = {"approved": True} if wait.approval_id else {"result": "so"}
            await executor.submit_tool_result("s", wait.tool_call_id, **answer)
        await (await executor.resume("boss", "s")).result()
    expect_same(made, [("s", "ann"), ("s", "ann")], "what the factory was asked for")
    expect_same(greeters.known, [("Hello ann", "ann", "")], "what the tool of the sub-agent knew")
