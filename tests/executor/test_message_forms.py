"""Messages as the executor writes them have the form that their TypedDicts declare."""

from __future__ import annotations

from typing import Any, get_type_hints

from helix_agents import Agent, AgentExecutor, ScriptedLLM, open_stores, tool
from helix_agents.llm import Call, Reply
from helix_agents.messages import AssistantMessage, ToolMessage, UserMessage


def take_back(arguments: dict[str, Any], result: Any, key: str) -> None:
    """Do nothing."""


@tool(requires_approval=True, effect="once", undo=take_back)
async def pay(account: str) -> str:
    """Pay."""
    return f"paid {account}"


FORMS: dict[str, type[Any]] = {"user": UserMessage, "assistant": AssistantMessage, "tool": ToolMessage}


async def test_what_the_executor_writes_has_the_declared_members() -> None:
    script = ScriptedLLM(
        [
            Reply("I will.", [Call("pay", {"account": "a"})], thinking="Hm.", native=[{"signature": "s"}]),
            Reply("Done.", finish_reason="length"),
        ]
    )
    async with open_stores("memory:") as stores, AgentExecutor(stores, script) as executor:
        agent = Agent("clerk", tools=[pay])
        (asked,) = (await executor.run(agent, "Go", session_id="s")).suspended
        await executor.submit_tool_result(
            "s", asked.tool_call_id, approved=True, arguments={"account": "b"}, answered_by="ann"
        )
        await (await executor.resume(agent, "s")).result()
        messages = (await stores.state.get_messages("s")).items
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant"]
    for message in messages:
        form = FORMS[message["role"]]
        assert form.__required_keys__ <= set(message) <= set(get_type_hints(form))
