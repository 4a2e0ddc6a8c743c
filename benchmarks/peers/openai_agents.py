"""The agent on the OpenAI Agents SDK: without a session, or with its SQLite session. Tracing is off."""

from __future__ import annotations

import asyncio
from typing import Any

from agents import Agent, Model, ModelResponse, RunConfig, Runner, SQLiteSession, Usage, function_tool
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from benchmarks.peers.protocol import Clock, Task, serve


@function_tool
async def no_op(n: int) -> str:
    """Do nothing."""
    return "ok"


class Instant(Model):
    """Replies at once."""

    def __init__(self, task: Task, clock: Clock) -> None:
        self._task, self._clock = task, clock

    async def get_response(self, *arguments: Any, **options: Any) -> ModelResponse:
        done = self._clock.tick()
        output: list[Any] = [
            ResponseFunctionToolCall(
                type="function_call",
                name="no_op",
                arguments=f'{{"n": {n}}}',
                call_id=f"{self._clock.started}-{done}-{n}",
            )
            for n in range(self._task.tools)
        ]
        if done >= self._task.steps:
            text = ResponseOutputText(text="Done.", type="output_text", annotations=[])
            output = [
                ResponseOutputMessage(id="m", role="assistant", status="completed", type="message", content=[text])
            ]
        return ModelResponse(output=output, usage=Usage(), response_id=None)

    def stream_response(self, *arguments: Any, **options: Any) -> Any:
        raise NotImplementedError


async def main(task: Task, clock: Clock) -> None:
    agent = Agent(name="bench", instructions="Work.", tools=[no_op], model=Instant(task, clock))
    session = SQLiteSession("s", task.database) if task.database else None
    config = RunConfig(tracing_disabled=True)
    result = await Runner.run(agent, "Go", session=session, max_turns=task.steps + 2, run_config=config)
    assert result.final_output == "Done."


if __name__ == "__main__":
    serve(lambda task, clock: asyncio.run(main(task, clock)), ["openai-agents"])
