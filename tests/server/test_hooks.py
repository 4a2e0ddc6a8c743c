"""`POST /hooks/{token}`: a job outside completes a deferred call, with the token and nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from helix_agents import Agent, AgentExecutor, ScriptedLLM, ToolContext, open_stores, tool
from helix_agents.llm.scripted import Call
from helix_agents.server import User, bearer_tokens, create_app
from helix_agents.tools import DeferredCall
from tests.server.test_access import client_of
from tests.server.test_problems import assert_problem

CALLS: list[DeferredCall] = []


@tool
async def render(ctx: ToolContext) -> None:
    """Render something, elsewhere."""
    CALLS.append(await ctx.defer(deadline_seconds=600))


AGENT = Agent("a", tools=[render])


@pytest.fixture
async def executor() -> AsyncIterator[AgentExecutor]:
    CALLS.clear()
    async with open_stores("memory:") as stores:
        llm = ScriptedLLM([[Call("render")], "Done."])
        options: dict[str, Any] = {"secret": "a secret of sixteen", "public_url": "http://localhost/"}
        async with AgentExecutor(stores, llm, agents=[AGENT], **options) as made:
            yield made


@pytest.fixture
async def client(executor: AgentExecutor) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(executor, authenticate=bearer_tokens({"t" * 20: User("ann")}), recover=False)
    async with client_of(app) as made:
        yield made


async def _result(executor: AgentExecutor) -> Any:
    handle = await executor.get_handle(AGENT, "s")
    assert handle is not None
    assert (await handle.result()).status == "completed"
    page = await executor.services.store.get_messages("s")
    return next(message["content"] for message in page.items if message["role"] == "tool")


@pytest.mark.parametrize(
    ("body", "media_type", "content"),
    [
        (b'{"result": {"pages": 3}}', "application/json", '{"pages":3}'),
        (b'{"error": "no paper"}', "application/json", "Error: no paper"),
        (b'{"id": 7, "status": "done"}', "application/json; charset=utf-8", '{"id":7,"status":"done"}'),
        (b'{"error": {"code": 1}}', "application/json", '{"error":{"code":1}}'),
        ("fertig – ja".encode(), "text/plain", "fertig – ja"),
        (b"", "", "null"),
    ],
)
async def test_a_job_completes_its_call_and_the_run_continues(
    executor: AgentExecutor, client: httpx.AsyncClient, body: bytes, media_type: str, content: str
) -> None:
    assert (await executor.run(AGENT, "Go", session_id="s", user_id="ann")).status == "suspended_client_tool"
    path = httpx.URL(CALLS[0].url).path
    response = await client.post(path, content=body, headers={"Content-Type": media_type} if media_type else {})
    assert response.status_code == 200, response.text
    assert response.json()["receipt"] == "accepted"
    assert response.json()["run_id"]
    assert await _result(executor) == content


async def test_tokens_that_complete_nothing_are_refused(executor: AgentExecutor, client: httpx.AsyncClient) -> None:
    await executor.run(AGENT, "Go", session_id="s", user_id="ann")
    token = CALLS[0].token
    forged = await client.post(f"/hooks/{token[:-3]}abc", json=1)
    assert_problem(forged, 404, "not_found")
    nowhere = await client.post("/nothing", json=1)
    assert forged.json() == nowhere.json()  # as if there were no such route
    assert_problem(await client.post(f"/hooks/{token}", content=b"x" * 1_000_001), 413, "body_too_large")
    assert_problem(
        await client.post(f"/hooks/{token}", content=b"{", headers={"Content-Type": "application/json"}),
        400,
        "invalid_argument",
    )
    assert (await client.post(f"/hooks/{token}", json="one")).status_code == 200
    await _result(executor)
    assert_problem(await client.post(f"/hooks/{token}", json="two"), 409, "already_answered")
    await executor.delete_session("s")
    gone = await client.post(f"/hooks/{token}", json="three")
    assert_problem(gone, 410, "call_gone")
    assert "ann" not in gone.text
    await executor.run(AGENT, "Go", session_id="s", user_id="ann")
    assert_problem(await client.post(f"/hooks/{token}", json="four"), 410, "call_gone")


async def test_the_host_rules_hold_for_hooks(executor: AgentExecutor) -> None:
    await executor.run(AGENT, "Go", session_id="s")
    app = create_app(executor, allow_unauthenticated=True, recover=False)
    async with client_of(app) as client:
        headers = {"Host": "evil.example"}
        refused = await client.post(f"/hooks/{CALLS[0].token}", json=1, headers=headers)
        assert_problem(refused, 421, "misdirected_request")


async def test_the_token_does_not_reach_the_log_of_the_server(executor: AgentExecutor) -> None:
    await executor.run(AGENT, "Go", session_id="s")
    app = create_app(executor, allow_unauthenticated=True, recover=False)
    sent: list[Any] = []
    logged: list[str] = []
    path = f"/hooks/{CALLS[0].token}"
    scope: dict[str, Any] = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode()}
    scope["query_string"] = b""
    scope["headers"] = [(b"host", b"localhost"), (b"content-type", b"application/json")]

    async def receive() -> Any:
        return {"type": "http.request", "body": b"1", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)
        logged.append(scope["path"])  # servers write their log when the response starts

    await app(scope, receive, send)
    assert sent[0]["status"] == 200
    assert set(logged) == {"/hooks/-"}
