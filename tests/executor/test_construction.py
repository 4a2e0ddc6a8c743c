"""An invalid agent or executor raises when it is constructed."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from helix_agents import Agent, AgentExecutor, InvalidArgument, NotResumable, ScriptedLLM, open_stores, tool
from helix_agents.agent import AgentRegistry
from helix_agents.types import SuspendedChildWait


@tool
def work() -> str:
    """Work."""
    return "done"


@pytest.mark.parametrize("options", [{"tools": work}, {"tools": 5}, {"max_steps": "5"}, {"max_steps": True}])
def test_an_agent_that_cannot_be_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match="Agent 'a'"):
        Agent("a", **options)


async def test_an_executor_on_what_are_not_its_stores_is_refused() -> None:
    async with open_stores("memory:") as stores:
        pairs: list[tuple[Any, Any]] = [(stores.streams, stores.state), ("sqlite:x.db", stores.streams)]
        for state, streams in pairs:
            with pytest.raises(InvalidArgument, match="in this order"):
                AgentExecutor(state, streams, ScriptedLLM([]))
        nobody: Any = None
        async with AgentExecutor(stores.state, stores.streams, ScriptedLLM([])) as executor:
            with pytest.raises(InvalidArgument, match="not NoneType"):
                await executor.execute(nobody, "Go")


def test_two_agents_of_one_name_are_refused_wherever_they_hide() -> None:
    below = Agent("a").as_tool(name="ask", description="Ask.")
    for agents in ([Agent("a"), Agent("a")], [Agent("a", tools=[below])]):
        with pytest.raises(InvalidArgument, match="Two different agents are named 'a'"):
            AgentRegistry(agents)


def test_the_same_agent_twice_is_one_and_a_new_one_of_its_name_replaces_it() -> None:
    first, second = Agent("a"), Agent("a")
    registry = AgentRegistry([first, first])
    registry.add(second)
    assert list(registry) == [second]


async def test_a_closed_executor_starts_nothing() -> None:
    async with open_stores("memory:") as stores:
        executor = AgentExecutor(stores.state, stores.streams, ScriptedLLM(["Hi."]))
        await (await executor.execute(Agent("a"), "Go", session_id="s")).result()
        await executor.close()
        with pytest.raises(InvalidArgument, match="closed"):
            await executor.execute(Agent("a"), "Go", session_id="other")
        with pytest.raises(InvalidArgument, match="closed"):
            await executor.resume(Agent("a"), "s", message="More")
        assert not await stores.state.session_exists("other")
        assert not (await executor.can_resume("s")).can_resume


@pytest.mark.parametrize(
    "message",
    [
        {"role": "wizard", "content": "Abracadabra"},
        {"role": "user", "content": 5},
        {"role": "user"},
        {"role": "user", "content": None},
        {"content": "no role"},
        {"role": "user", "content": {1, 2}},
    ],
)
async def test_what_no_model_can_be_told_is_refused_before_anything_is_stored(message: Any) -> None:
    async with open_stores("memory:") as stores:
        async with AgentExecutor(stores.state, stores.streams, ScriptedLLM(["Hi."])) as executor:
            with pytest.raises(InvalidArgument):
                await executor.execute(Agent("a"), message, session_id="s")
        assert not await stores.state.session_exists("s")


async def test_sessions_that_wait_for_each_other_are_interrupted_and_aborted() -> None:
    async with open_stores("memory:") as stores:
        for session_id, child in (("s", "t"), ("t", "s")):
            made = await stores.state.create_session(session_id, agent_type="a")
            waits = {"call": SuspendedChildWait("call", child)}
            waiting = replace(made, status="suspended_awaiting_children", suspended_awaiting_children=waits)
            await stores.state.save_state(session_id, waiting)
        async with AgentExecutor(stores.state, stores.streams, ScriptedLLM([])) as executor:
            await executor.interrupt("s", "enough")
            for session_id in "st":
                session = await stores.state.load_state(session_id)
                assert session is not None
                assert session.status == "interrupted"
            await executor.abort("s")


@pytest.mark.parametrize(
    "options",
    [
        {"tags": 5},
        {"metadata": [1]},
        {"input": []},
        {"input": {"role": "tool", "content": "no call asked for this", "tool_call_id": "call_1"}},
        {"input": [{"role": "assistant", "content": "", "tool_calls": [{"id": "1", "name": "x", "arguments": {}}]}]},
        {"input": [{"role": "assistant", "content": "", "tool_calls": ["x"]}]},
    ],
)
async def test_what_cannot_begin_a_turn_is_refused_and_leaves_no_session(options: dict[str, Any]) -> None:
    async with open_stores("memory:") as stores:
        executor = AgentExecutor(stores, ScriptedLLM(["Hi."]))
        given = {"input": "Hi", **options}
        for begin in (executor.execute, executor.submit):
            with pytest.raises(InvalidArgument):
                await begin(Agent("main"), session_id="s", **given)
            assert not await stores.state.session_exists("s")


async def test_a_closed_executor_takes_nothing_up_and_stores_nothing() -> None:
    agent = Agent("main")
    async with open_stores("memory:") as stores:
        executor = AgentExecutor(stores, ScriptedLLM(["Hi."]))
        await executor.submit(agent, "Hi", session_id="s")
        await executor.close()
        for refused in (executor.recover(), executor.submit(agent, "Hi"), executor.retry("s")):
            with pytest.raises(InvalidArgument, match="closed"):
                await refused


async def test_a_turn_whose_input_was_refused_cannot_be_run_again_without_it() -> None:
    agent = Agent("main")

    @agent.check_input
    def refuse(messages: list[Any]) -> None:
        raise ValueError("no")

    async with open_stores("memory:") as stores:
        executor = AgentExecutor(stores, ScriptedLLM(["Hi."]))
        assert (await executor.run(agent, "Hi", session_id="s")).status == "failed"
        agent.input_guards.clear()
        with pytest.raises(NotResumable, match="refused"):
            await executor.retry("s")
