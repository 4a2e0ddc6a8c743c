"""What strangers and other users can make an agent in a Durable Object do: nothing, at no cost."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.cloudflare.client import Client
from tests.cloudflare.workerd import PythonWorkerd

RUN = {"agent_type": "author", "message": "go"}


async def send(client: Client, path: str, body: bytes, *, token: str = "wrong", **headers: str) -> int:
    """Post a body as it is, and return the status."""
    sent = {"content-type": "application/json", "authorization": f"Bearer {token}", **headers}
    async with client.http.post(client.url + path, data=body, headers=sent) as reply:
        await reply.read()
        return reply.status


def stored_objects(server: PythonWorkerd) -> set[str]:
    """Return the files of all objects that have stored something: an object that was only created has an empty one."""
    found = set()
    for path in Path(server.folder, "do").rglob("*.sqlite"):
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as opened:
            if opened.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]:
                found.add(path.name)
    return found


@pytest.mark.parametrize("door", ["", "/unguarded"])
async def test_a_rejected_request_leaves_nothing_behind(
    client: Client, python_workers: PythonWorkerd, door: str
) -> None:
    await client.ask("GET", "/test/look/other")
    before, (_, lives) = stored_objects(python_workers), await client.ask("GET", "/isolate/x")
    for number in range(5):
        body = json.dumps({**RUN, "session_id": f"stranger{door.strip('/')}-{number}"}).encode()
        assert await send(client, f"{door}/execute", body) == 401
        assert await send(client, f"{door}/sessions/stranger-{number}/resume", b"{}") == 401
    assert stored_objects(python_workers) - before == set()
    if not door:  # `route` has rejected them: no object was even created
        assert (await client.ask("GET", "/isolate/x"))[1]["objects"] == lives["objects"]
    _, facts = await client.ask("GET", f"/test/look/stranger{door.strip('/')}-0")
    assert (facts["alarm"], facts["empty"]) == (None, True)


async def test_a_request_for_a_session_that_does_not_exist_stores_nothing(client: Client) -> None:
    for method, path in (("GET", "/sessions/void"), ("GET", "/stream/void"), ("POST", "/sessions/void/interrupt")):
        status, problem = await client.ask(method, path, {} if method == "POST" else None)
        assert (status, problem["code"]) == (404, "session_not_found")
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await client.http.ws_connect(f"{client.url}/ws/void?access_token=alice")
    assert refused.value.status == 404
    status, _ = await client.ask("POST", "/execute", {**RUN, "agent_type": "nobody", "session_id": "void"})
    assert status == 404
    _, facts = await client.ask("GET", "/test/look/void")
    assert (facts["alarm"], facts["empty"]) == (None, True)


@pytest.mark.parametrize("token", ["wrong", "alice"])
async def test_a_large_body_is_neither_read_nor_parsed(client: Client, token: str) -> None:
    _, before = await client.ask("GET", "/isolate/x")
    status = await send(client, "/execute", b'{"x":"' + b"a" * 20_000_000 + b'"}', token=token)
    assert status == (401 if token == "wrong" else 413)
    _, after = await client.ask("GET", "/isolate/x")
    assert after["heap"] - before["heap"] < 8_000_000


@pytest.mark.parametrize("path", ["/execute", "/chat/author", "/agui/author", "/sessions/deep/tool-results"])
@pytest.mark.parametrize("token", ["wrong", "alice"])
@pytest.mark.parametrize(
    "body", [b"[" * 5_000, b'{"a":' * 5_000, b'{"message":' + b"[" * 100_000], ids=["[", "{", "in"]
)
async def test_deep_nesting_does_not_end_the_isolate(client: Client, path: str, token: str, body: bytes) -> None:
    await client.ask("GET", "/test/create/deep")
    assert await send(client, path, body, token=token) == (401 if token == "wrong" else 400)
    assert (await client.ask("GET", "/sessions/deep"))[0] == 200


async def test_brackets_in_strings_are_not_nesting(client: Client) -> None:
    body = {**RUN, "session_id": "brackets", "message": '[{"' * 1_000}
    assert (await client.ask("POST", "/execute", body))[0] == 202


async def test_nobody_starts_a_session_in_the_object_of_another_user(client: Client) -> None:
    await client.ask("GET", "/test/create/owned")
    body = {**RUN, "session_id": "inside"}
    for path, sent in (
        ("/execute", body),
        ("/chat/author", {"id": "inside", "messages": [{"role": "user", "parts": [{"type": "text", "text": "go"}]}]}),
        ("/agui/author", {"threadId": "inside", "runId": "r", "messages": [{"role": "user", "content": "go"}]}),
    ):
        status, problem = await client.ask("POST", f"{path}?object=owned", sent, token="bob")
        assert (status, problem["code"]) == (404, "session_not_found"), path
    assert (await client.ask("POST", "/execute?object=owned", body))[0] == 202
    assert (await client.ask("GET", "/sessions/inside?object=owned", token="bob"))[0] == 404
    assert (await client.ask("POST", "/execute?object=nowhere", body))[0] == 404


async def test_sockets_count_against_the_limit_of_their_user(client: Client) -> None:
    await client.ask("GET", "/test/create/crowded")
    address = f"{client.url}/ws/crowded?access_token="
    held = [await client.http.ws_connect(address + "alice") for _ in range(40)]
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await client.http.ws_connect(address + "alice")
    assert refused.value.status == 429
    await (await client.http.ws_connect(address + "root")).close()
    await held[0].close()
    while True:  # the object learns of it a moment later
        try:
            await client.http.ws_connect(address + "alice")
            break
        except aiohttp.WSServerHandshakeError:
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("has_stream", [False, True])
async def test_a_follower_does_not_follow_into_the_next_session_of_that_id(client: Client, has_stream: bool) -> None:
    name = f"victim-{has_stream}"
    await client.ask("GET", f"/test/create/{name}")
    await client.ask("POST", f"/execute?object={name}", {**RUN, "session_id": f"{name}-other"})  # so that it lives on
    await client.ask("GET", f"/result/{name}-other?object={name}&wait=60")
    if has_stream:
        await client.ask("GET", f"/test/pour/{name}?n=2")
    async with client.http.ws_connect(f"{client.url}/ws/{name}?access_token=alice&follow=true") as socket:
        for _ in range(3 if has_stream else 1):
            await socket.receive_json()
        assert (await client.ask("DELETE", f"/sessions/{name}"))[0] == 204
        await client.ask("POST", "/execute", {**RUN, "session_id": name}, token="bob")
        frames: list[dict[str, Any]] = [message.json() async for message in socket]
    assert frames == [{"event": "gone", "id": None, "data": {}}]


# -- what is over is removed


async def test_the_object_of_a_deleted_session_is_emptied_and_can_be_used_again(client: Client) -> None:
    body = {**RUN, "session_id": "deleted"}
    for _ in range(2):
        assert (await client.ask("POST", "/execute", body))[0] == 202
        _, result = await client.ask("GET", "/result/deleted?wait=60")
        assert result["status"] == "completed"
        assert (await client.ask("DELETE", "/sessions/deleted"))[0] == 204
        _, facts = await client.ask("GET", "/test/look/deleted")
        assert (facts["empty"], facts["alarm"]) == (True, None)


async def test_a_session_expires_by_the_alarm(client: Client) -> None:
    await client.execute("expiring", "asker")
    _, result = await client.ask("GET", "/result/expiring?wait=60")
    assert result["status"] == "suspended_client_tool"
    await client.ask("GET", "/test/expire/expiring?in=1")
    async with asyncio.timeout(60):
        while True:
            _, session = await client.ask("GET", "/sessions/expiring")
            if session["status"] == "failed":
                break
            await asyncio.sleep(0.5)
    assert session["failure_reason"] == "session_expired"


async def test_sessions_that_were_not_touched_for_long_are_removed_with_their_object(client: Client) -> None:
    await client.execute("idle-object")
    await client.ask("GET", "/result/idle-object?wait=60")
    _, kept = await client.ask("GET", "/test/ttl/idle-object?seconds=3600")
    assert not kept["empty"]
    assert kept["alarm"] is not None
    _, emptied = await client.ask("GET", "/test/ttl/idle-object?seconds=0")
    assert (emptied["empty"], emptied["alarm"]) == (True, None)


# -- what many objects cost


async def test_many_objects_of_one_isolate_stay_small(client: Client) -> None:
    _, before = await client.ask("GET", "/isolate/x")
    for start in range(0, 100, 10):
        await asyncio.gather(*(client.ask("GET", f"/test/look/small-{start + each}") for each in range(10)))
    _, after = await client.ask("GET", "/isolate/x")
    grown = after["heap"] - before["heap"]
    print(f"100 objects: {grown / 1e6:.1f} MB of heap; {after['heap'] / 1e6:.0f} MB in all")
    assert after["objects"] - before["objects"] >= 100
    assert grown < 30_000_000
