"""What is wrong with an agent or an executor is said when it is made."""

from __future__ import annotations

from typing import Any

import pytest

from helix_agents import Agent, AgentExecutor, InvalidArgument, ScriptedLLM, open_stores, tool


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
