"""`serve`, the door of a Worker whose runs are Workflows: strangers cost little, users are kept apart, sockets end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp
import pytest

from tests.cloudflare.client import Client, new_session, numbers
from tests.cloudflare.test_strangers import send
from tests.cloudflare.workerd import FLOWS, INSIDE, PythonWorkerd
from tests.servers.fixtures import started


@pytest.fixture(scope="module")
def server() -> Iterator[PythonWorkerd]:
    with contextlib.ExitStack() as stack:
        yield started(stack, lambda: PythonWorkerd(FLOWS, beside=[INSIDE / "deaths.py", INSIDE / "scene_agents.py"]))


@pytest.fixture
async def door(server: PythonWorkerd) -> AsyncIterator[Client]:
    async with new_session() as session:
        client = Client(server, session)
        client.url = f"{server.url}/flow_worker"
        await client.ask("GET", "/migrate")
        client.url += "/door"
        yield client


async def heap(door: Client) -> int:
    async with door.http.get(door.url.replace("/door", "/heap")) as reply:
        return int(await reply.text())


@pytest.mark.parametrize("token", ["wrong", "alice"])
async def test_a_large_body_is_neither_read_nor_parsed(door: Client, token: str) -> None:
    before = await heap(door)
    status = await send(door, "/execute", b'{"x":"' + b"a" * 20_000_000 + b'"}', token=token)
    assert status == (401 if token == "wrong" else 413)
    assert await heap(door) - before < 8_000_000


@pytest.mark.parametrize("path", ["/execute", "/chat/runner", "/agui/runner"])
@pytest.mark.parametrize("token", ["wrong", "alice"])
async def test_deep_nesting_does_not_end_the_isolate(door: Client, path: str, token: str) -> None:
    for body in (b"[" * 5_000, b'{"message":' + b"[" * 100_000):
        assert await send(door, path, body, token=token) == (401 if token == "wrong" else 400)


async def test_strangers_and_other_users_find_nothing(door: Client) -> None:
    await door.execute("private", "runner")
    for path in ("/sessions/private", "/stream/private", "/result/private", "/hooks/private"):
        assert (await door.ask("GET", path, token="wrong"))[0] == 401
    assert (await door.ask("GET", "/sessions/private", token="bob"))[0] == 404
    assert (await door.ask("POST", "/hooks/nothing", {}, token="alice"))[0] == 404
    for token, status in (("bob", 404), ("wrong", 401)):
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await door.http.ws_connect(f"{door.url}/ws/private?access_token={token}")
        assert refused.value.status == status


async def test_a_websocket_gets_the_chunks_of_a_run_and_of_the_next_turn(door: Client) -> None:
    await door.execute("watched", "counter")
    frames = await door.watch("watched")
    assert frames[0]["data"]["session_id"] == "watched"
    assert numbers(frames) == list(range(1, numbers(frames)[-1] + 1))
    assert frames[-1]["event"] == "end"
    last = numbers(frames)[-1]
    following = asyncio.create_task(door.watch("watched", f"&from_sequence={last}&follow=true"))
    await door.execute("watched", "counter")
    _, result = await door.ask("GET", "/result/watched?wait=60")
    assert result["output"] == "Two."
    assert (await door.ask("DELETE", "/sessions/watched"))[0] == 204
    later = await following
    assert later[-1]["event"] == "gone"
    deltas: list[Any] = [frame["data"].get("delta") for frame in later if frame["event"] == "chunk"]
    assert "Two." in deltas


async def test_sockets_count_against_the_limit_of_their_user(door: Client) -> None:
    await door.execute("crowded", "sleeper")
    address = f"{door.url}/ws/crowded?follow=true&access_token=alice"
    held = [await door.http.ws_connect(address) for _ in range(3)]
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await door.http.ws_connect(address)
    assert refused.value.status == 429
    await held[0].close()


async def test_files_are_stored_in_d1(door: Client) -> None:
    await door.execute("files", "runner")
    data = bytes(range(256)) * 12_000
    headers = {"authorization": "Bearer alice", "content-type": "application/pdf"}
    async with door.http.post(f"{door.url}/sessions/files/blobs", data=data, headers=headers) as reply:
        assert reply.status == 201, await reply.text()
        found = await reply.json()
    async with door.http.get(f"{door.url}/sessions/files/blobs/{found['blob']}", headers=headers) as reply:
        assert await reply.read() == data
