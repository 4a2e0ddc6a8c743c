"""The agent on pydantic-ai, which brings no database: its messages are saved after each run, by hand.

That is how its documentation stores a chat. A process that dies in a run loses the whole run.
"""

from __future__ import annotations

import asyncio
import sqlite3
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.usage import UsageLimits

from benchmarks.peers.protocol import Clock, Task, serve


class Saved:
    """The messages of one conversation: a row of JSON per run."""

    def __init__(self, path: str) -> None:
        self._database = sqlite3.connect(path)
        self._database.execute("CREATE TABLE IF NOT EXISTS messages (id INTEGER PRIMARY KEY, list BLOB)")

    def load(self) -> list[ModelMessage]:
        rows = self._database.execute("SELECT list FROM messages ORDER BY id").fetchall()
        return [message for (row,) in rows for message in ModelMessagesTypeAdapter.validate_json(row)]

    def add(self, new: bytes) -> None:
        with self._database:
            self._database.execute("INSERT INTO messages (list) VALUES (?)", [new])


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

    saved = Saved(task.database) if task.database else None
    history = saved.load() if saved else None
    result = await agent.run("Go", message_history=history, usage_limits=UsageLimits(request_limit=None))
    assert result.output == "Done."
    if saved:
        saved.add(result.new_messages_json())


if __name__ == "__main__":
    serve(lambda task, clock: asyncio.run(main(task, clock)), ["pydantic-ai-slim"])
