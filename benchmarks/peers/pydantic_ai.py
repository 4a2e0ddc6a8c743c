"""The agent on pydantic-ai, which stores nothing: with a database it is not measured."""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.usage import UsageLimits

from benchmarks.peers.protocol import Clock, Task, serve


async def main(task: Task, clock: Clock) -> None:
    def instant(messages: Any, info: Any) -> ModelResponse:
        done = clock.tick()
        if done >= task.steps:
            return ModelResponse(parts=[TextPart("Done.")])
        return ModelResponse(parts=[ToolCallPart("no_op", {"n": n}) for n in range(task.tools)])

    agent = Agent(FunctionModel(instant), instructions="Work.")

    @agent.tool_plain
    async def no_op(n: int) -> str:
        """Do nothing."""
        return "ok"

    result = await agent.run("Go", usage_limits=UsageLimits(request_limit=None))
    assert result.output == "Done."


if __name__ == "__main__":
    serve(lambda task, clock: asyncio.run(main(task, clock)), ["pydantic-ai-slim"])
