"""A Python Worker whose agent runs by Cloudflare Workflows: sessions in D1, streams in objects, runs as instances."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from page import PAGE
from workers import Response, WorkerEntrypoint

from helix_agents import Agent, ScriptedLLM, ToolContext, expired_session_cleanup, tool
from helix_agents.cloudflare import (
    AgentWorkflow,
    CloudflareAgentExecutor,
    D1BlobStore,
    D1StateStore,
    D1UsageStore,
    DurableObjectStreamManager,
    StreamServer,
    serve,
)
from helix_agents.llm.scripted import Call, Reply
from helix_agents.server.auth import User, bearer_tokens

__all__ = ["AgentRun", "Default", "StreamServer"]


@tool
async def note(text: str, ctx: ToolContext) -> str:
    """Write something down."""
    ctx.update_state(lambda draft: draft["notes"].append(text))
    return "noted"


assistant = Agent("assistant", instructions="Take notes.", tools=[note], state={"notes": []})


def new_executor(env: Any) -> CloudflareAgentExecutor:
    """Make an executor for one request. The tables are created on first use."""
    return CloudflareAgentExecutor(
        workflow_binding=env.AGENT_WORKFLOW,
        state_store=D1StateStore(env.DB),
        stream_manager=DurableObjectStreamManager(env.STREAMS),
        usage_store=D1UsageStore(env.DB),
        blob_store=D1BlobStore(env.DB),
        # A script, so that this runs as it is. A real model: `OpenAILLM("gpt-5.2", api_key=env.OPENAI_API_KEY)`.
        llm=ScriptedLLM([Reply("Let me write that down.", [Call("note", {"text": "hello"})]), "I noted it."]),
        agents=[assistant],
    )


class AgentRun(AgentWorkflow):
    """Runs the steps of an agent, each as a step of the Workflow."""

    def executor(self, env: Any) -> CloudflareAgentExecutor:
        return new_executor(env)


class Default(WorkerEntrypoint):  # type: ignore[misc]  # untyped: it exists only inside a Worker
    """The page at `/`, POST /execute, GET /stream/{id}, /ws/{id} and /result/{id}, and the other routes."""

    async def fetch(self, request: Any) -> Any:
        if urlsplit(request.url).path == "/":
            return Response(PAGE, headers={"content-type": "text/html; charset=utf-8"})
        who = bearer_tokens({self.env.TOKEN: User("me")})
        return await serve(new_executor(self.env), request, authenticate=who)

    async def scheduled(self, controller: Any, env: Any, ctx: Any) -> None:
        """Every minute: continue lost runs, start scheduled ones, and end sessions whose `expires_at` has passed."""
        await new_executor(self.env).recover()
        streams = DurableObjectStreamManager(self.env.STREAMS)
        await expired_session_cleanup(D1StateStore(self.env.DB), stream_manager=streams)
