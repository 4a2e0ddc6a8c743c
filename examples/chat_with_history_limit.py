"""An endless chat: the model sees the last messages, the store keeps all of them.

Run it again and it continues where it stopped. A message sent while a run is in progress is read by that run.
"""

from __future__ import annotations

import asyncio

from helix_agents import Agent, AgentExecutor, ScriptedLLM, open_stores
from helix_agents.history import last
from helix_agents.llm import ModelRequest


def answer(request: ModelRequest) -> str:
    """Stands for a model: it says what it was shown."""
    return f"I see {len(request.messages)} messages; the last one is {request.messages[-1]['content']!r}."


async def main() -> None:
    agent = Agent("companion", instructions="Be kind.", history=last(4))
    async with (
        open_stores("sqlite:chat.db") as stores,
        AgentExecutor(stores, ScriptedLLM(answer, delay_seconds=0.001)) as executor,
    ):
        for text in ("Hello", "How are you?", "Tell me more"):
            async for chunk in executor.stream(agent, text, session_id="chat-1", user_id="ann"):
                if chunk["type"] == "text_delta":
                    print(chunk["delta"], end="", flush=True)
            print()

        handle = await executor.execute(agent, "One more thing", session_id="chat-1")
        await executor.execute(agent, "And another", session_id="chat-1", if_running="enqueue")
        print((await handle.result()).output)

        async with executor.watch("chat-1") as view:  # as another tab would, with everything from the beginning
            said = [message["content"] for message in view.messages if message["role"] == "user"]
            assert said[-2:] == ["One more thing", "And another"]
            print(f"{len(view.messages)} messages are kept.")


asyncio.run(main())
