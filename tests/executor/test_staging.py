"""When calls are staged: alone, together with others, or only with the commit; and what a crash repeats then."""

from __future__ import annotations

import asyncio
import cProfile
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any

import pytest

from helix_agents.agent import Agent
from helix_agents.backends.inmemory.state_store import InMemoryBeside, InMemoryStateStore
from helix_agents.backends.inmemory.stream_manager import InMemoryStreamManager
from helix_agents.backends.inmemory.usage_store import InMemoryUsageStore
from helix_agents.backends.registry import Stores, open_stores
from helix_agents.errors import InvalidArgument
from helix_agents.executor import AgentExecutor
from helix_agents.llm import Call, ScriptedLLM
from helix_agents.tools import ToolContext, tool
from helix_agents.types import StagedChanges


class Recording(InMemoryStateStore):
    """Records which rows were staged in one write."""

    def __init__(self, beside: InMemoryBeside | None = None) -> None:
        super().__init__(beside=beside)
        self.writes: list[list[str]] = []

    async def stage_calls(self, session_id: str, step_id: str, calls: Sequence[StagedChanges], **options: Any) -> int:
        if calls:
            self.writes.append([call.tool_call_id for call in calls])
        return await super().stage_calls(session_id, step_id, calls, **options)


@tool
async def save(n: int, ctx: ToolContext) -> int:
    """Do something that must not happen twice."""
    ctx.update_state(lambda draft: draft["seen"].append(n))
    return n


@tool(idempotent=True)
async def look(n: int, ctx: ToolContext) -> int:
    """Do something that may happen twice."""
    ctx.update_state(lambda draft: draft["seen"].append(n))
    return n


AGENT = Agent("main", tools=[save, look], state={"seen": []})


@pytest.fixture
async def stores() -> AsyncIterator[Stores]:
    async with open_stores("memory:") as opened:
        yield opened


async def staged_by(stores: Stores, calls: list[Call], **options: Any) -> list[list[str]]:
    store = Recording()
    async with AgentExecutor(store, stores.streams, ScriptedLLM([calls, "Done."]), **options) as executor:
        result = await (await executor.execute(AGENT, "Go", session_id="s")).result()
    session = await store.load_state("s")
    assert session is not None
    assert (result.output, session.custom_state) == ("Done.", {"seen": [call.arguments["n"] for call in calls]})  # type: ignore[index]
    return store.writes


async def test_outcomes_that_are_ready_together_leave_in_one_write(stores: Stores) -> None:
    writes = await staged_by(stores, [Call("save", {"n": n}) for n in range(3)])
    assert writes == [[""], ["call_1_1", "call_1_2", "call_1_3"]]


async def test_where_one_write_carries_everything_the_last_outcomes_travel_with_the_commit() -> None:
    streams, usage, go_on = InMemoryStreamManager(), InMemoryUsageStore(), asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait until a reader has seen that the others have finished."""
        await go_on.wait()
        return "waited"

    store = Recording(InMemoryBeside(streams, usage))
    calls = [Call("save", {"n": 1}), Call("wait"), Call("save", {"n": 2})]
    script = ScriptedLLM([calls, [Call("save", {"n": 3})], "Done."])
    agent = Agent("main", tools=[save, wait], state={"seen": []})
    async with AgentExecutor(store, streams, script, usage_store=usage) as executor:
        handle = await executor.execute(agent, "Go", session_id="s")
        async for chunk in handle.stream():
            if chunk["type"] == "tool_end" and chunk["tool_call_id"] == "call_1_1":
                go_on.set()  # no finished call waits for a sibling
        assert (await handle.result()).output == "Done."
    await streams.close()
    session = await store.load_state("s")
    assert session is not None
    assert session.custom_state == {"seen": [1, 2, 3]}
    assert store.writes == [[""], ["call_1_1", "call_1_3"], [""]]


async def test_tools_that_may_run_again_are_not_staged_by_themselves(stores: Stores) -> None:
    assert await staged_by(stores, [Call("look", {"n": n}) for n in range(3)]) == []


async def test_what_waits_for_the_commit_travels_with_what_does_not(stores: Stores) -> None:
    first, *others = await staged_by(stores, [Call("look", {"n": 1}), Call("save", {"n": 2})])
    assert first == [""]
    assert sorted(row for write in others for row in write) == ["call_1_1", "call_1_2"]
    assert len(others) == 1


async def test_with_durability_by_step_nothing_is_staged(stores: Stores) -> None:
    assert await staged_by(stores, [Call("save", {"n": n}) for n in range(3)], durability="step") == []


@pytest.mark.parametrize(("durability", "runs"), [("call", 1), ("step", 2)])
async def test_a_finished_call_runs_again_after_a_crash_only_where_steps_are_what_lasts(
    stores: Stores, durability: Any, runs: int
) -> None:
    ran: list[str] = []
    never = asyncio.Event()

    @tool
    async def quick(ctx: ToolContext) -> str:
        """Finish at once."""
        ran.append("quick")
        return "ok"

    @tool
    async def slow() -> str:
        """Wait until the process dies, the first time."""
        ran.append("slow")
        if ran.count("slow") == 1:
            await never.wait()
        return "ok"

    agent = Agent("main", tools=[quick, slow])
    llm = ScriptedLLM([[Call("quick"), Call("slow")], "Done."])
    async with AgentExecutor(stores.state, stores.streams, llm, durability=durability) as executor:
        handle = await executor.execute(agent, "Go", session_id="s")
        async for chunk in handle.stream():
            if chunk["type"] == "tool_end":
                break
    async with AgentExecutor(stores.state, stores.streams, llm, durability=durability) as other:
        assert (await (await other.resume(agent, "s")).result()).output == "Done."
    assert ran.count("quick") == runs
    messages = (await stores.state.get_messages("s", limit=None)).items
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "tool", "assistant"]


def test_an_unknown_durability_is_refused_at_once() -> None:
    with pytest.raises(InvalidArgument, match="'call' or 'step'"):
        AgentExecutor(InMemoryStateStore(), None, ScriptedLLM([]), durability="never")  # type: ignore[arg-type]


@pytest.mark.parametrize("tools", [1, 2])
async def test_the_cost_of_an_update_follows_the_update(stores: Stores, tools: int) -> None:
    def grow(n: int, tool_name: str, draft: Any) -> None:
        draft["seen"].append(n)
        draft[f"key {n}"] = n
        draft.setdefault("members", {})[f"{tool_name} {n}"] = n

    @tool
    async def work(updates: int, name: str, ctx: ToolContext) -> str:
        """Update the state many times."""
        for n in range(updates):
            ctx.update_state(partial(grow, n, name))
            await asyncio.sleep(0)
        return "ok"

    async def calls_for(updates: int) -> int:
        agent = Agent("main", tools=[work], state={"seen": []})
        calls = [Call("work", {"updates": updates, "name": f"tool {number}"}) for number in range(tools)]
        llm = ScriptedLLM([calls, "Done."])
        profile = cProfile.Profile()
        async with AgentExecutor(InMemoryStateStore(), stores.streams, llm) as executor:
            with profile:
                handle = await executor.execute(agent, "Go", session_id=f"s{updates}")
                await handle.result()
        return sum(entry.callcount for entry in profile.getstats())

    assert await calls_for(400) < 5 * await calls_for(100)
