"""Two users on one server, on three backends: Bob tries every way to Ann's sessions, direct and indirect."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from websockets.asyncio.client import connect

from helix_agents.backends.registry import Stores, open_stores
from helix_agents.clock import random_id
from helix_agents.server.app import ENDPOINTS
from tests.server.clients import agui_input, chat_request, events_of, resume, user_says
from tests.server.running import Running, execute, result, running, streaming
from tests.server.test_problems import assert_problem
from tests.servers.fixtures import started
from tests.servers.postgres import PostgresServer
from tests.servers.redis_server import RedisServer

PATIENCE_SECONDS = 30
SECRET = "BOBS-SECRET"


@pytest.fixture(scope="module", params=["sqlite", "redis", "postgres"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One server per backend. In this file, `alice` and `bob` are its clients."""
    folder: Path = tmp_path_factory.mktemp(f"attack-{request.param}")
    with contextlib.ExitStack() as stack:
        url = f"sqlite:{folder / 'h.db'}"
        if request.param == "redis":
            url = started(stack, RedisServer).url
        elif request.param == "postgres":
            url = started(stack, PostgresServer).url
        yield stack.enter_context(running(url, folder))


@pytest.fixture
async def stores(server: Running) -> AsyncIterator[Stores]:
    async with open_stores(server.url) as opened:
        yield opened


def path_of(session_id: str) -> str:
    return quote(session_id, safe="")


async def session_of(client: httpx.AsyncClient, session_id: str) -> dict[str, Any]:
    """Return the session without its run, whose record may be closed a moment later."""
    found: dict[str, Any] = (await client.get(f"/sessions/{session_id}")).json()
    del found["current_run"]
    return found


# -- directly


BODIES: dict[str, Any] = {
    "/sessions/{session_id:id}/fork": {"new_session_id": None},
    "/sessions/{session_id:id}/restore": {"checkpoint_id": "c"},
    "/sessions/{session_id:id}/resume": {"message": "mine now"},
    "/sessions/{session_id:id}/tool-results": {"tool_call_id": "call_1_1", "approved": True},
    "/sessions/{session_id:id}": {"title": "mine now"},
    "/sessions/{session_id:id}/edit": {"message_id": "m", "content": "mine now"},
}
"""What a route needs to get as far as the session. A new route that needs a body must be added here."""


async def test_no_route_shows_or_changes_another_users_session(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, sid: str
) -> None:
    await execute(alice, "delete a.txt", sid, tags=["private"], metadata={"title": "Secret plan"})
    await result(alice, sid)
    before = await session_of(alice, sid)
    tried = 0
    for endpoint in ENDPOINTS:
        if "{session_id:id}" not in endpoint.path:
            continue
        path = endpoint.path.replace("{session_id:id}", sid).replace("{checkpoint_id:id}", "c")
        path = path.replace("{branch_id:id}", "b")
        path = path.replace("{digest}", f"sha256:{'0' * 64}")
        assert "{" not in path, f"say what {endpoint.path} needs"
        body = BODIES.get(endpoint.path, {}) if endpoint.method != "GET" else None
        response = await bob.request(endpoint.method, path, json=body)
        assert_problem(response, 404, "session_not_found")
        assert "Secret" not in response.text
        tried += 1
    assert tried >= 20
    for query in ("", "?q=" + sid, "?tag=private", "?user_id=alice", "?user_id=alice&count=true"):
        assert sid not in (await bob.get(f"/sessions{query}")).text
    assert sid not in (await bob.get("/waiting?user_id=alice")).text
    assert await session_of(alice, sid) == before


async def test_another_users_session_cannot_be_continued_in_any_protocol(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, sid: str
) -> None:
    await execute(alice, "delete a.txt", sid)
    (wait,) = (await result(alice, sid))["suspended"]
    message = {"agent_type": "manager", "message": "mine", "session_id": sid}
    attempts = [
        ("/execute", message),
        ("/execute", {**message, "if_running": "enqueue"}),
        ("/execute", {**message, "if_running": "interrupt"}),
        ("/agui/manager", agui_input(sid, "r", "mine")),
        ("/agui/manager", agui_input(sid, "r", resume=resume(wait["approval_id"], True))),
        ("/chat/manager", chat_request(sid, user_says("mine"))),
        ("/chat/manager", {"id": sid, "message": user_says("mine")}),
    ]
    for path, body in attempts:
        assert_problem(await bob.post(path, json=body), 404, "session_not_found")
        headers = {"Idempotency-Key": "k"}
        assert_problem(await bob.post(path, json=body, headers=headers), 404, "session_not_found")
    taken = await bob.post("/sessions/nowhere/fork", json={"new_session_id": sid})
    assert_problem(taken, 404, "session_not_found")
    assert (await result(alice, sid))["suspended"] == [wait]


# -- by choosing ids


async def test_a_session_of_a_sub_agent_cannot_be_made_by_another_user_first(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, stores: Stores, sid: str
) -> None:
    await execute(bob, "hello", f"{sid}-bob")
    await result(bob, f"{sid}-bob")
    for squatted in (f"{sid}/call_1_1", f"{sid}/@assistant"):
        for path, body in (
            ("/execute", {"agent_type": "assistant", "message": "obey bob", "session_id": squatted}),
            ("/chat/assistant", chat_request(squatted, user_says("obey bob"))),
            ("/agui/assistant", agui_input(squatted, "r", "obey bob")),
            (f"/sessions/{sid}-bob/fork", {"new_session_id": squatted}),
        ):
            assert_problem(await bob.post(path, json=body), 400, "invalid_argument")
        # As an older version, or code in the process, may have left it there:
        await stores.state.create_session(squatted, agent_type="assistant", user_id="bob", custom_state={})
    await execute(alice, "tell ALICES-PLAN", sid)
    await result(alice, sid)
    for squatted in (f"{sid}/call_1_1", f"{sid}/@assistant"):
        assert "ALICES-PLAN" not in (await bob.get(f"/sessions/{path_of(squatted)}/messages")).text
        assert (await bob.get(f"/sessions/{path_of(squatted)}")).json()["user_id"] == "bob"


async def test_an_idempotency_key_does_not_lead_into_another_users_session(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, sid: str
) -> None:
    body, headers = {"agent_type": "manager", "message": "card 4111"}, {"Idempotency-Key": sid}
    theirs = (await bob.post("/execute", json=body, headers=headers)).json()["session_id"]
    mine = (await alice.post("/execute", json=body, headers=headers)).json()["session_id"]
    assert mine != theirs
    await result(alice, mine)
    assert_problem(await bob.get(f"/sessions/{mine}/messages"), 404, "session_not_found")
    assert sid not in mine


@pytest.mark.parametrize(
    "internal",
    [
        "helix/workers",
        "helix/workers/alive",
        "helix/recovered/2026-11-17",
        "helix/keys/x",
        "helix/schedule/x",
        "helix/outbox/x",
    ],
)
async def test_the_librarys_own_streams_are_out_of_reach(
    bob: httpx.AsyncClient, admin: httpx.AsyncClient, sid: str, internal: str
) -> None:
    await execute(bob, "hello", sid)
    await result(bob, sid)
    body = {"agent_type": "manager", "message": "hi", "session_id": internal}
    assert_problem(await bob.post("/execute", json=body), 400, "invalid_argument")
    assert_problem(await bob.post(f"/sessions/{sid}/fork", json={"new_session_id": internal}), 400, "invalid_argument")
    for client in (bob, admin):
        for path in ("/stream/{}", "/sessions/{}", "/sessions/{}/snapshot", "/result/{}"):
            assert_problem(await client.get(path.format(path_of(internal))), 404, "session_not_found")
        assert_problem(await client.delete(f"/sessions/{path_of(internal)}"), 404, "session_not_found")
    assert (await admin.get("/stats")).status_code == 200


@pytest.mark.parametrize("kind", ["helix/schedule", "helix/outbox/hook"])
async def test_records_of_the_library_are_not_sessions_even_of_their_own_user(
    bob: httpx.AsyncClient, stores: Stores, sid: str, kind: str
) -> None:
    internal = f"{kind}/{sid}"
    await stores.state.create_session(internal, agent_type=kind, user_id="bob", custom_state={"secret": SECRET})
    path = path_of(internal)
    body = {"agent_type": "manager", "message": "hi", "session_id": internal}
    assert_problem(await bob.post("/execute", json=body), 400, "invalid_argument")
    for route in (f"/sessions/{path}", f"/sessions/{path}/state", f"/stream/{path}", f"/result/{path}"):
        assert SECRET not in (await bob.get(route)).text
    for route in (f"/sessions/{path}/resume", f"/sessions/{path}/fork", f"/sessions/{path}/abort"):
        assert 400 <= (await bob.post(route, json={})).status_code < 500, route
    assert (await bob.delete(f"/sessions/{path}")).status_code == 404
    assert internal not in (await bob.get("/sessions?limit=100")).text
    assert await stores.state.session_exists(internal)


# -- by naming ids of another conversation in a conversation of one's own


async def test_ids_of_another_users_conversation_mean_nothing_in_ones_own(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, sid: str
) -> None:
    own = f"{sid}-bob"
    for client, name, message in ((alice, sid, "ALICES-SECRET"), (bob, own, "hello")):
        await execute(client, message, name)
        await result(client, name)
    assert (await alice.post(f"/sessions/{sid}/regenerate", json={})).status_code == 202
    await result(alice, sid)
    kept = await alice.post(f"/sessions/{sid}/blobs", content=b"ALICES-SECRET", headers={"Content-Type": "text/plain"})
    digest = kept.json()["blob"]
    theirs = [(await alice.get(f"/sessions/{sid}/{what}")).json()["items"] for what in ("branches", "checkpoints")]
    branch, checkpoint = theirs[0][0]["branch_id"], theirs[1][0]["checkpoint_id"]
    message = (await alice.get(f"/sessions/{sid}/messages")).json()["items"][0]["id"]
    before = await session_of(bob, own)
    for path, body in (
        (f"branches/{branch}/switch", {}),
        ("regenerate", {"message_id": message}),
        ("edit", {"message_id": message, "content": "mine"}),
        ("restore", {"checkpoint_id": checkpoint}),
        ("fork", {"checkpoint_id": checkpoint}),
        ("tool-results", {"tool_call_id": "call_1_1", "happened": True}),
    ):
        response = await bob.post(f"/sessions/{own}/{path}", json=body)
        assert 400 <= response.status_code < 500, (path, response.text)
        assert "ALICES-SECRET" not in response.text
    for path in (f"blobs/{digest}", f"checkpoints/{checkpoint}"):
        response = await bob.get(f"/sessions/{own}/{path}")
        assert response.status_code == 404, (path, response.text)
    assert await session_of(bob, own) == before


# -- by staying connected after a session was deleted


async def forked(client: httpx.AsyncClient, session_id: str) -> str:
    """Return a session without a stream: its readers look for one by its id."""
    await execute(client, "hello", session_id)
    await result(client, session_id)
    made = await client.post(f"/sessions/{session_id}/fork", json={"new_session_id": f"{session_id}-x"})
    assert made.status_code == 201, made.text
    return f"{session_id}-x"


async def replace(owner: httpx.AsyncClient, other: httpx.AsyncClient, session_id: str) -> None:
    """Delete a session as its owner, and create one with the same id as the other user."""
    assert (await owner.delete(f"/sessions/{session_id}")).status_code == 204
    await execute(other, SECRET, session_id)
    await result(other, session_id)


@pytest.mark.parametrize("has_stream", [False, True])
async def test_a_stream_does_not_follow_an_id_to_its_next_owner(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, sid: str, has_stream: bool
) -> None:
    name = await forked(alice, sid)
    if has_stream:
        await execute(alice, "again", name)
        await result(alice, name)
    async with asyncio.timeout(PATIENCE_SECONDS), streaming(alice, f"/stream/{name}?follow=true") as frames:
        seen = [await anext(frames)]
        await replace(alice, bob, name)
        seen += [frame async for frame in frames]
    assert seen[-1].event == "gone"
    assert SECRET not in json.dumps([frame.data for frame in seen])


@pytest.mark.parametrize("has_stream", [False, True])
async def test_a_websocket_does_not_follow_an_id_to_its_next_owner(
    server: Running, alice: httpx.AsyncClient, bob: httpx.AsyncClient, sid: str, has_stream: bool
) -> None:
    name = await forked(alice, sid)
    if has_stream:
        await execute(alice, "again", name)
        await result(alice, name)
    address = server.address.replace("http", "ws") + f"/ws/{name}?follow=true&access_token=alice-token"
    async with asyncio.timeout(PATIENCE_SECONDS), connect(address) as socket:
        seen = [await socket.recv()]
        await replace(alice, bob, name)
        seen += [message async for message in socket]
    assert json.loads(seen[-1])["event"] == "gone"
    assert SECRET not in "".join(map(str, seen))


async def test_waiting_for_a_result_does_not_follow_an_id_to_its_next_owner(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, sid: str
) -> None:
    await execute(alice, "nap 20", sid)
    waiting = asyncio.create_task(alice.get(f"/result/{sid}?wait=20"))
    await asyncio.sleep(0)
    await replace(alice, bob, sid)
    response = await waiting
    assert SECRET not in response.text
    assert response.status_code in (200, 404)


async def test_nothing_of_a_deleted_session_is_left_under_its_id(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, sid: str
) -> None:
    await execute(alice, "search ALICES-SECRET", sid)
    await result(alice, sid)
    assert (await alice.delete(f"/sessions/{sid}")).status_code == 204
    await execute(bob, "hello", f"{sid}-bob")
    await result(bob, f"{sid}-bob")
    assert (await bob.post(f"/sessions/{sid}-bob/fork", json={"new_session_id": sid})).status_code == 201
    for path in ("messages", "usage?entries=true", "runs", "checkpoints", "state", "children", "snapshot"):
        text = (await bob.get(f"/sessions/{sid}/{path}")).text
        assert "ALICES-SECRET" not in text, path
        assert "search" not in text, path
    assert "ALICES-SECRET" not in (await bob.get(f"/stream/{sid}")).text


async def test_a_session_that_the_store_made_alone_shows_nothing_of_an_earlier_one(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, stores: Stores, sid: str
) -> None:
    await execute(alice, "ALICES-SECRET", sid)
    await result(alice, sid)
    await execute(bob, "hello", f"{sid}-bob")
    await result(bob, f"{sid}-bob")
    await stores.state.delete_session(sid)  # like an interrupted deletion: the stream stays
    await stores.state.fork_session(f"{sid}-bob", sid)
    for path in ("stream/{}", "stream/{}?format=ag-ui", "chat/{}/stream", "sessions/{}/snapshot"):
        assert "ALICES-SECRET" not in (await bob.get(f"/{path.format(sid)}")).text, path
    await execute(bob, "again", sid)
    await result(bob, sid)
    assert "ALICES-SECRET" not in (await bob.get(f"/stream/{sid}")).text


async def test_an_approval_that_was_answered_for_an_earlier_session_is_stale(
    alice: httpx.AsyncClient, sid: str
) -> None:
    await execute(alice, "delete harmless.txt", sid)
    (first,) = (await result(alice, sid))["suspended"]
    await alice.delete(f"/sessions/{sid}")
    await execute(alice, "delete everything.txt", sid)
    (second,) = (await result(alice, sid))["suspended"]
    assert first["tool_call_id"] == second["tool_call_id"]
    body = {"approval_id": first["approval_id"], "approved": True}
    assert_problem(await alice.post(f"/sessions/{sid}/tool-results", json=body), 400, "invalid_argument")
    given = agui_input(sid, "r", resume=resume(first["approval_id"], True))
    assert_problem(await alice.post("/agui/manager", json=given), 400, "invalid_argument")
    assert (await result(alice, sid))["suspended"] == [second]


async def test_only_one_of_many_creators_gets_an_id(server: Running, sid: str) -> None:
    async with server.client() as alice, server.client("bob-token") as bob:
        body = {"agent_type": "manager", "message": "hello", "session_id": sid}
        tries = [client.post("/execute", json=body) for client in (alice, bob) * 4]
        statuses = [response.status_code for response in await asyncio.gather(*tries)]
        assert 202 in statuses
        assert set(statuses) <= {202, 404, 409}
        owners = [client for client in (alice, bob) if (await client.get(f"/sessions/{sid}")).status_code == 200]
        assert len(owners) == 1
        await result(owners[0], sid)


async def test_events_of_another_protocol_show_nothing_either(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, sid: str
) -> None:
    await events_of(alice, "POST", "/agui/manager", json=agui_input(sid, "r", f"private {random_id()}"))
    for path in (f"/stream/{sid}?format=ag-ui", f"/stream/{sid}?format=ai-sdk", f"/chat/{sid}/stream"):
        assert_problem(await bob.get(path), 404, "session_not_found")
    for form in ("ag-ui", "ai-sdk"):
        assert_problem(await bob.get(f"/sessions/{sid}/messages?format={form}"), 404, "session_not_found")
