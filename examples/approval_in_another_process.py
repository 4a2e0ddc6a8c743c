"""A run asks a person and exits; another process finds the question, corrects the call and continues the run."""

from __future__ import annotations

import asyncio
import subprocess
import sys

from helix_agents import Agent, AgentExecutor, ScriptedLLM, open_stores, tool
from helix_agents.llm import Call, Line, ModelRequest


@tool(effect="once", requires_approval=True)
def pay(amount: int, to: str) -> str:
    """Pay somebody.

    Args:
        amount: How much, in euros.
        to: Who gets it.
    """
    return f"{to} got {amount} euros."


def answer(request: ModelRequest) -> Line:
    """Stands for a model: it pays once a turn, then repeats what it was told."""
    told = request.messages[-1]
    return told["content"] if told["role"] == "tool" else [Call("pay", {"amount": 900, "to": "Ann"})]


agent = Agent("clerk", tools=[pay])


async def ask() -> None:
    async with open_stores("sqlite:approvals.db") as stores, AgentExecutor(stores, ScriptedLLM(answer)) as executor:
        result = await executor.run(agent, "Pay Ann", user_id="bob")
        print("asks:", result.status, result.suspended[0].input)


async def decide() -> None:
    async with open_stores("sqlite:approvals.db") as stores:
        async with AgentExecutor(stores, ScriptedLLM(answer), agents=[agent]) as executor:
            for waiting in (await executor.list_waiting(user_id="bob")).items:
                changed = {**waiting.input, "amount": 90}
                await executor.submit_tool_result(
                    waiting.session_id, approval_id=waiting.approval_id, approved=True, arguments=changed
                )
                result = await (await executor.resume(waiting.agent_type, waiting.session_id)).result()
                print("decides:", result.status, result.output.splitlines()[-1])
                assert "Ann got 90 euros." in result.output


if __name__ == "__main__":
    if sys.argv[1:] == ["decide"]:
        asyncio.run(decide())
    else:
        asyncio.run(ask())
        subprocess.run([sys.executable, __file__, "decide"], check=True)
