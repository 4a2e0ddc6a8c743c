"""The rule about who may see a session, and what clients may create and start."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from helix_agents import Agent, AgentExecutor, ScriptedLLM, SessionNotFound, Stores, open_stores
from helix_agents.inmemory import InMemoryStateStore
from helix_agents.server import User, create_app
from helix_agents.server.access import ListScope, list_scope, may_see, reload_session
from helix_agents.types import Conversation, SessionState
from tests.server.running import execute, result
from tests.server.test_problems import assert_problem

ANN, BOB, ROOT = User("ann"), User("bob"), User("root", is_admin=True)


@pytest.mark.parametrize(
    ("user", "owner", "seen"),
    [(ANN, "ann", True), (ANN, "bob", False), (ANN, None, False), (ROOT, "bob", True), (ROOT, None, True)],
)
def test_a_user_sees_its_own_sessions_and_an_admin_all(user: User, owner: str | None, seen: bool) -> None:
    assert may_see(user, SessionState("s", "agent", user_id=owner)) is seen


@pytest.mark.parametrize(
    ("user", "asked", "scope"),
    [
        (ANN, None, ListScope("ann")),
        (ANN, "ann", ListScope("ann")),
        (ANN, "bob", ListScope("ann", is_empty=True)),
        (ROOT, None, ListScope(None)),
        (ROOT, "bob", ListScope("bob")),
    ],
)
def test_a_list_shows_what_a_user_may_see(user: User, asked: str | None, scope: ListScope) -> None:
    assert list_scope(user, asked) == scope


@pytest.mark.parametrize(
    ("stored", "same"),
    [
        (SessionState("s", "agent", user_id="ann", incarnation="i1", version=7), True),
        (SessionState("s", "agent", user_id="ann", incarnation="i2"), False),
        (SessionState("s", "agent", user_id="bob", incarnation="i1"), False),
        (None, False),
    ],
)
async def test_a_session_that_replaced_another_one_is_not_the_same(stored: SessionState | None, same: bool) -> None:
    class Store(InMemoryStateStore):
        async def load_conversation(self, session_id: str, **options: Any) -> Conversation | None:
            return None if stored is None else Conversation(stored, [], 0, None, None)

    seen = SessionState("s", "agent", user_id="ann", incarnation="i1")
    if same:
        assert (await reload_session(Store(), seen)).session is stored
    else:
        with pytest.raises(SessionNotFound):
            await reload_session(Store(), seen)


# -- ids


RESERVED = ["helix/workers", "helix/workers/alive", "helix/recovered/2026-11-17", "a/b", "/", "a/", "s/@critic"]


@pytest.mark.parametrize("reserved", RESERVED)
async def test_clients_cannot_create_ids_with_a_slash(
    alice: httpx.AsyncClient, stores: Stores, sid: str, reserved: str
) -> None:
    await execute(alice, "hello", sid)
    await result(alice, sid)
    said = {"id": "1", "role": "user", "content": "hi", "parts": [{"type": "text", "text": "hi"}]}
    attempts: list[tuple[str, Any]] = [
        ("/execute", {"agent_type": "manager", "message": "hi", "session_id": reserved}),
        ("/execute", {"agent_type": "manager", "message": "hi", "session_id": reserved, "if_running": "enqueue"}),
        ("/chat/manager", {"id": reserved, "messages": [said]}),
        ("/agui/manager", {"threadId": reserved, "runId": "r", "messages": [said]}),
        (f"/sessions/{sid}/fork", {"new_session_id": reserved}),
    ]
    for path, body in attempts:
        assert_problem(await alice.post(path, json=body), 400, "invalid_argument")
    assert not await stores.state.session_exists(reserved)


@pytest.mark.parametrize("path", ["/sessions/{}", "/stream/{}", "/sessions/{}/messages", "/result/{}"])
async def test_the_streams_of_the_library_are_not_sessions(admin: httpx.AsyncClient, stores: Stores, path: str) -> None:
    internal = "helix/workers/alive"
    if not await stores.state.session_exists(internal):  # as an older version let a client create it
        await stores.state.create_session(internal, agent_type="manager", user_id="alice")
    found = await admin.get(path.format(quote(internal, safe="")))
    assert_problem(found, 404, "session_not_found")


async def test_a_session_with_a_slash_that_exists_can_be_continued(
    alice: httpx.AsyncClient, stores: Stores, sid: str
) -> None:
    await stores.state.create_session(f"tenant/{sid}", agent_type="manager", user_id="alice", custom_state={})
    begun = await execute(alice, "hello", f"tenant/{sid}")
    assert begun["session_id"] == f"tenant/{sid}"


# -- users and agents


@pytest.fixture
async def memory() -> AsyncIterator[Stores]:
    async with open_stores("memory:") as opened:
        yield opened


def client_of(app: Any) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://test")


@pytest.mark.parametrize("user", [User(None), User(""), User("a\nb"), User("x" * 300), "ann", True])  # type: ignore[arg-type]
async def test_a_user_without_an_id_is_an_error_and_sees_nothing(memory: Stores, user: Any) -> None:
    executor = AgentExecutor(memory, ScriptedLLM(["Secret."]), agents=[Agent("a")])
    await executor.run("a", "hi", session_id="of-ann", user_id="ann")
    async with client_of(create_app(executor, authenticate=lambda _: user)) as client:
        for path in ("/sessions", "/sessions?q=of", "/waiting", "/sessions/of-ann", "/stats", "/agents"):
            assert_problem(await client.get(path), 500, "internal_error")
        body = {"agent_type": "a", "message": "hi", "session_id": "new"}
        assert_problem(await client.post("/execute", json=body), 500, "internal_error")
    assert not await memory.state.session_exists("new")


inner = Agent("inner")
front = Agent("front", tools=[inner.as_tool()])
other = Agent("other")


async def names(client: httpx.AsyncClient) -> list[str]:
    return [item["name"] for item in (await client.get("/agents")).json()["items"]]


async def test_sub_agents_are_not_public(memory: Stores) -> None:
    executor = AgentExecutor(memory, ScriptedLLM(["Hi."] * 9), agents=[front])
    await executor.run(other, "used in this process only")
    async with client_of(create_app(executor, authenticate=lambda _: ANN)) as client:
        assert await names(client) == ["front"]
        for name in ("inner", "other"):
            body = {"agent_type": name, "message": "hi", "session_id": f"s-{name}"}
            problem = assert_problem(await client.post("/execute", json=body), 404, "agent_not_found")
            assert "Known agents: front." in problem["detail"]
            said = {"id": "1", "role": "user", "content": "hi", "parts": [{"type": "text", "text": "hi"}]}
            chat = await client.post(f"/chat/{name}", json={"id": "c", "messages": [said]})
            assert_problem(chat, 404, "agent_not_found")
            agui = await client.post(f"/agui/{name}", json={"threadId": "c", "runId": "r", "messages": [said]})
            assert_problem(agui, 404, "agent_not_found")


async def test_a_client_cannot_speak_to_a_sub_agent_by_resuming_its_session(memory: Stores) -> None:
    executor = AgentExecutor(memory, ScriptedLLM(["Hi."] * 9), agents=[front])
    await memory.state.create_session("s/1", agent_type="inner", user_id="ann", parent_session_id="s")
    await memory.state.update_status("s/1", "interrupted")
    async with client_of(create_app(executor, authenticate=lambda _: ANN)) as client:
        response = await client.post("/sessions/s%2F1/resume", json={"message": "obey me"})
        assert_problem(response, 404, "agent_not_found")


async def test_the_app_may_name_its_agents(memory: Stores) -> None:
    executor = AgentExecutor(memory, ScriptedLLM(["Hi."] * 9), agents=[front, other])
    async with client_of(create_app(executor, agents=["other"], authenticate=lambda _: ANN)) as client:
        assert await names(client) == ["other"]
    async with client_of(create_app(executor, agents=[Agent("new")], authenticate=lambda _: ANN)) as client:
        assert await names(client) == ["new"]
        body = {"agent_type": "new", "message": "hi", "session_id": "n"}
        assert (await client.post("/execute", json=body)).status_code == 202
        assert (await client.get("/result/n?wait=10")).json()["output"] == "Hi."


async def test_users_do_not_see_which_worker_ran_a_run(memory: Stores) -> None:
    executor = AgentExecutor(memory, ScriptedLLM(["Hi."]), agents=[other])
    await executor.run(other, "hi", session_id="s", user_id="ann")
    (run,) = await memory.state.list_runs("s")
    await memory.state.create_run("s", "run-2", turn=run.turn, worker="host-7")
    app = create_app(executor, authenticate=lambda connection: ROOT if "x-root" in connection.headers else ANN)
    async with client_of(app) as client:
        for path in ("/sessions/s", "/sessions/s/runs", "/sessions/s/snapshot"):
            assert "host-7" not in (await client.get(path)).text, path
            assert "host-7" in (await client.get(path, headers={"X-Root": "1"})).text, path
