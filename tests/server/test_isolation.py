"""Users can only access their own sessions; another user's session looks exactly like a missing one."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from helix_agents import Agent, AgentExecutor, ScriptedLLM, Stores
from helix_agents.server import User, create_app
from helix_agents.stores.state.contract import StateStore
from helix_agents.stores.state.delegating import DelegatingStateStore
from helix_agents.types import Conversation
from tests.server.running import Running, execute, result
from tests.server.test_problems import assert_problem


@pytest.fixture
async def theirs(alice: httpx.AsyncClient, sid: str) -> str:
    """A session of Alice that waits for a response."""
    await execute(alice, "ask anything", sid, tags=["private"])
    await result(alice, sid)
    return sid


def plain(problem: dict[str, Any], session_id: str) -> dict[str, Any]:
    """Return a problem without the one thing that may differ: the id that was asked for."""
    return {
        name: value.replace(session_id, "?") if isinstance(value, str) else value for name, value in problem.items()
    }


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/sessions/{}", None),
        ("DELETE", "/sessions/{}", None),
        ("GET", "/sessions/{}/messages", None),
        ("GET", "/sessions/{}/runs", None),
        ("GET", "/sessions/{}/checkpoints", None),
        ("GET", "/sessions/{}/checkpoints/x", None),
        ("GET", "/sessions/{}/usage", None),
        ("GET", "/sessions/{}/state", None),
        ("GET", "/sessions/{}/children", None),
        ("GET", "/sessions/{}/snapshot", None),
        ("POST", "/sessions/{}/fork", {}),
        ("POST", "/sessions/{}/restore", {"checkpoint_id": "x"}),
        ("POST", "/sessions/{}/resume", {"message": "mine now"}),
        ("POST", "/sessions/{}/interrupt", {}),
        ("POST", "/sessions/{}/abort", {}),
        ("POST", "/sessions/{}/tool-results", {"tool_call_id": "call_1_1", "result": "x"}),
        ("GET", "/result/{}", None),
        ("GET", "/stream/{}", None),
    ],
)
async def test_another_users_session_is_as_one_that_does_not_exist(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, theirs: str, method: str, path: str, body: Any
) -> None:
    before = (await alice.get(f"/sessions/{theirs}")).json()
    there = await bob.request(method, path.format(theirs), json=body)
    nowhere = await bob.request(method, path.format("nowhere"), json=body)
    problem = assert_problem(there, 404, "session_not_found")
    assert plain(problem, theirs) == plain(nowhere.json(), "nowhere")
    assert set(there.headers) == set(nowhere.headers)
    assert (await alice.get(f"/sessions/{theirs}")).json() == before


async def test_another_users_session_cannot_be_continued(bob: httpx.AsyncClient, theirs: str) -> None:
    body = {"agent_type": "manager", "message": "mine now", "session_id": theirs}
    assert_problem(await bob.post("/execute", json=body), 404, "session_not_found")


async def test_lists_hold_ones_own_sessions(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, admin: httpx.AsyncClient, theirs: str
) -> None:
    async def ids(client: httpx.AsyncClient, path: str) -> set[str]:
        response = await client.get(path)
        assert response.status_code == 200, response.text
        return {item["session_id"] for item in response.json()["items"]}

    for path in ("/sessions?tag=private", "/sessions?user_id=alice", f"/sessions?q={theirs}", "/waiting?limit=200"):
        assert theirs in await ids(alice, path), path
        assert theirs in await ids(admin, path), path
        assert theirs not in await ids(bob, path), path
    counted = (await bob.get("/sessions?user_id=alice&count=true")).json()
    assert counted["items"] == []
    assert not counted.get("total")


async def test_a_sub_session_belongs_to_the_user_of_its_root(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, sid: str
) -> None:
    await execute(alice, "tell hello", sid)
    await result(alice, sid)
    child = (await alice.get(f"/sessions/{sid}/children")).json()["items"][0]["sub_session_id"]
    child = quote(child, safe="")
    assert (await alice.get(f"/sessions/{child}/messages")).status_code == 200
    assert_problem(await bob.get(f"/sessions/{child}/messages"), 404, "session_not_found")


async def test_a_websocket_of_another_user_is_refused(server: Running, theirs: str) -> None:
    address = server.address.replace("http", "ws")
    for session_id in (theirs, "nowhere"):
        with pytest.raises(InvalidStatus) as refused:
            await connect(f"{address}/ws/{session_id}", additional_headers={"Authorization": "Bearer bob-token"})
        assert refused.value.response.status_code == 404
        assert b"session_not_found" in (refused.value.response.body or b"")


async def test_a_token_in_the_query_works_on_streams_only_and_is_not_logged(
    server: Running, alice: httpx.AsyncClient, sid: str
) -> None:
    await execute(alice, "hello", sid)
    await result(alice, sid)
    async with server.client(None) as nobody:
        assert (await nobody.get(f"/stream/{sid}?access_token=alice-token")).status_code == 200
        assert_problem(await nobody.get(f"/stream/{sid}?access_token=bob-token"), 404, "session_not_found")
        for path in (f"/sessions/{sid}", f"/result/{sid}", "/sessions"):
            assert_problem(await nobody.get(f"{path}?access_token=alice-token"), 401, "not_authenticated")
    assert "alice-token" not in server.log.read_text()


class Overtaken(DelegatingStateStore):
    """A store in which Bob creates a session right after the n-th read has shown that there is none."""

    def __init__(self, inner: StateStore, looks: int) -> None:
        super().__init__(inner)
        self._looks = looks

    async def session_exists(self, session_id: str) -> bool:
        found = await super().session_exists(session_id)
        await self._count(session_id)
        return found

    async def load_conversation(
        self, session_id: str, *, last: int | None = 50, offset: int | None = None, custom_state: bool = True
    ) -> Conversation | None:
        found = await super().load_conversation(session_id, last=last, offset=offset, custom_state=custom_state)
        await self._count(session_id)
        return found

    async def _count(self, session_id: str) -> None:
        self._looks -= 1
        if self._looks == 0:
            await self.inner.create_session(session_id, agent_type="assistant", user_id="bob")


@pytest.mark.parametrize("path", ["/execute", "/chat/assistant"])
@pytest.mark.parametrize("looks", [1, 2])
async def test_what_is_said_to_a_new_session_does_not_reach_one_that_another_user_makes_meanwhile(
    stores: Stores, sid: str, path: str, looks: int
) -> None:
    says = {"id": "1", "role": "user", "parts": [{"type": "text", "text": "for me alone"}]}
    body = {
        "/execute": {"agent_type": "assistant", "session_id": sid, "message": "for me alone"},
        "/chat/assistant": {"id": sid, "messages": [says]},
    }[path]
    overtaken = Overtaken(stores.state, looks)
    executor = AgentExecutor(overtaken, stores.streams, ScriptedLLM(["No."]), agents=[Agent("assistant")])
    app = create_app(executor, authenticate=lambda _: User("alice"))
    async with executor, httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://test") as alice:
        assert_problem(await alice.post(path, json=body), 404, "session_not_found")
    assert (await stores.state.get_messages(sid)).items == []
