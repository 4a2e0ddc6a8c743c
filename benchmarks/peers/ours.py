"""The agent on this library: without a database in memory, with one on SQLite or Postgres."""

from __future__ import annotations

import asyncio
from typing import Any

from benchmarks.peers.protocol import Clock, Task, serve
from helix_agents import Agent, AgentExecutor, ScriptedLLM, open_stores, tool
from helix_agents.llm import Call


@tool
async def no_op(n: int) -> str:
    """Do nothing."""
    return "ok"


async def main(task: Task, clock: Clock) -> None:
    def script(request: Any) -> Any:
        done = clock.tick()
        return "Done." if done >= task.steps else [Call("no_op", {"n": n}) for n in range(task.tools)]

    agent = Agent("bench", instructions="Work.", tools=[no_op], max_steps=task.steps + 2)
    async with open_stores(_url(task.database)) as stores:
        result = await AgentExecutor(stores, ScriptedLLM(script)).run(agent, "Go", session_id=task.session)
        assert result.output == "Done.", result


def _url(database: str | None) -> str:
    if database is None:
        return "memory:"
    return database if database.startswith("postgresql:") else f"sqlite:{database}"


if __name__ == "__main__":
    serve(lambda task, clock: asyncio.run(main(task, clock)), ["helix-agents"])
