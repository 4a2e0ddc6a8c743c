"""A Worker that asks model providers through their official clients, at the address that a request gives.

GET /facts               what the import of the clients asked for, and the size of the heap
GET /ask/{model}?url=... run an agent with a tool; its conversation, or the error that ended it
GET /try/{model}?url=... ask the model once, and not for long; the error, and whether it may be tried again
"""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

import js
from workers import Response, WorkerEntrypoint

from helix_agents import Agent, AgentExecutor, tool
from helix_agents.codec import encode
from helix_agents.errors import ModelError
from helix_agents.inmemory import InMemoryStateStore, InMemoryStreamManager
from helix_agents.llm import AnthropicLLM, GeminiLLM, OpenAILLM, OpenAIResponsesLLM
from helix_agents.llm.contract import ModelRequest

MODELS: dict[str, Any] = {
    "openai": OpenAILLM,
    "responses": OpenAIResponsesLLM,
    "anthropic": AnthropicLLM,
    "gemini": GeminiLLM,
}


@tool
async def weather(city: str) -> str:
    """Return the weather."""
    return f"sunny in {city}"


class Default(WorkerEntrypoint):  # type: ignore[misc]
    async def fetch(self, request: Any) -> Any:
        url = urlsplit(request.url)
        if url.path == "/facts":
            facts = {"entropy_at_import": js.entropyAtImport, "heap_bytes": js.pythonHeapBytes()}
            return Response(encode(facts))
        query = parse_qs(url.query)
        verb, model = url.path.split("/")[1:]
        options: dict[str, Any] = {"timeout_seconds": 0.5} if verb == "try" else {}
        llm = MODELS[model]("a-model", api_key="a-key", base_url=query["url"][0], **options)
        if verb == "try":
            try:
                said = [event async for event in llm.stream(ModelRequest([{"role": "user", "content": "Hi"}]))]
                return Response(encode({"error": None, "said": len(said)}))
            except ModelError as error:
                return Response(encode({"error": str(error), "retryable": error.retryable}))
        state = InMemoryStateStore()
        agent = Agent("a", tools=[weather])
        async with AgentExecutor(state, InMemoryStreamManager(), llm, agents=[agent]) as executor:
            result = await executor.run(agent, "How is the weather?", session_id="s")
        await llm.close()
        said = [[each["role"], each["content"]] for each in (await state.get_messages("s")).items]
        return Response(encode({"status": result.status, "error": result.error, "said": said}))
