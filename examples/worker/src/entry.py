"""A Python Worker with one agent: every session is a Durable Object that holds its state, its stream and its run."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from page import PAGE
from workers import Response, WorkerEntrypoint

from helix_agents import Agent, ScriptedLLM, ToolContext, tool
from helix_agents.cloudflare import AgentServer, route
from helix_agents.llm.scripted import Call, Reply
from helix_agents.server.auth import User, bearer_tokens


@tool
async def note(text: str, ctx: ToolContext) -> str:
    """Write something down."""
    ctx.update_state(lambda draft: draft["notes"].append(text))
    return "noted"


assistant = Agent("assistant", instructions="Take notes.", tools=[note], state={"notes": []})


class Assistant(AgentServer):
    agents = (assistant,)

    def model(self, env: Any) -> Any:
        # A script, so that this runs as it is. A real model: `OpenAILLM("gpt-5.2", api_key=env.OPENAI_API_KEY)`.
        return ScriptedLLM([Reply("Let me write that down.", [Call("note", {"text": "hello"})]), "I noted it."])

    def authenticate(self, env: Any) -> Any:
        return who(env)


def who(env: Any) -> Any:
    """Return who may use this Worker."""
    return bearer_tokens({env.TOKEN: User("me")})


class Default(WorkerEntrypoint):  # type: ignore[misc]  # untyped: it exists only inside a Worker
    """The page at `/`, and the routes of the server."""

    async def fetch(self, request: Any) -> Any:
        if urlsplit(request.url).path == "/":
            return Response(PAGE, headers={"content-type": "text/html; charset=utf-8"})
        return await route(self.env.ASSISTANTS, request, authenticate=who(self.env))
