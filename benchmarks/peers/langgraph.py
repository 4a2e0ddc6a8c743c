"""The agent on LangGraph: `create_agent`, without a checkpointer, or with its SQLite or Postgres saver (defaults)."""

from __future__ import annotations

import asyncio
from typing import Any

from langchain.agents import create_agent
from langchain.tools import tool
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from benchmarks.peers.protocol import Clock, Task, serve

PACKAGES = ["langgraph", "langchain", "langgraph-checkpoint-sqlite", "langgraph-checkpoint-postgres"]


@tool
async def no_op(n: int) -> str:
    """Do nothing."""
    return "ok"


class Instant(BaseChatModel):
    """Replies at once."""

    task: Any
    clock: Any

    @property
    def _llm_type(self) -> str:
        return "instant"

    def bind_tools(self, tools: Any, **options: Any) -> Any:
        return self

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **options: Any) -> ChatResult:
        done = self.clock.tick()
        calls = [{"name": "no_op", "args": {"n": n}, "id": f"{done}-{n}"} for n in range(self.task.tools)]
        message = AIMessage("Done.") if done >= self.task.steps else AIMessage("", tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=message)])


async def main(task: Task, clock: Clock, **options: Any) -> None:
    async def run(saver: Any, **options: Any) -> None:
        agent = create_agent(Instant(task=task, clock=clock), [no_op], system_prompt="Work.", checkpointer=saver)
        config = {"configurable": {"thread_id": task.session}, "recursion_limit": 10 * task.steps + 10}
        result = await agent.ainvoke({"messages": [{"role": "user", "content": "Go"}]}, config, **options)
        assert result["messages"][-1].content == "Done."

    if task.database is None:
        await run(None)
        return
    kind: Any = AsyncPostgresSaver if task.database.startswith("postgresql:") else AsyncSqliteSaver
    async with kind.from_conn_string(task.database) as saver:
        await saver.setup()
        await run(saver, **options)


if __name__ == "__main__":
    serve(lambda task, clock: asyncio.run(main(task, clock)), PACKAGES)
