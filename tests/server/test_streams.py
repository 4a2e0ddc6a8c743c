"""Streams over sockets: resume at every position, follow, heartbeats, slow clients, final events."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from helix_agents.backends.registry import Stores
from tests.server.running import Running, chunks, execute, read_stream, result, running, streaming, text_of

ALICE = {"Authorization": "Bearer alice-token"}


async def test_a_stream_resumed_at_any_place_brings_exactly_the_rest(alice: httpx.AsyncClient, sid: str) -> None:
    await execute(alice, "search ants", sid)
    whole = chunks(await read_stream(alice, f"/stream/{sid}"))
    for place in range(len(whole) + 1):
        by_query = await read_stream(alice, f"/stream/{sid}?from_sequence={place}")
        by_header = await read_stream(alice, f"/stream/{sid}?from_sequence=1", headers={"Last-Event-ID": str(place)})
        assert chunks(by_query) == chunks(by_header) == whole[place:]
        assert by_query[0].data["from_sequence"] == place
        assert by_query[-1].event == by_header[-1].event == "end"


async def test_headers_forbid_caching_and_buffering(alice: httpx.AsyncClient, sid: str) -> None:
    await execute(alice, "hello", sid)
    async with alice.stream("GET", f"/stream/{sid}") as response:
        body = (await response.aread()).decode()
    assert response.headers["content-type"] == "text/event-stream"
    assert response.headers["cache-control"] == "no-store"
    assert response.headers["x-accel-buffering"] == "no"
    assert "content-encoding" not in response.headers
    assert body.count("retry: 1000\n") == 1


async def test_a_stream_is_live(alice: httpx.AsyncClient, sid: str) -> None:
    begun = await execute(alice, "nap 1.5", sid)
    async with streaming(alice, begun["stream_url"]) as frames:
        async for frame in frames:
            if frame.event == "chunk" and frame.data["type"] == "tool_start":
                break
        assert (await alice.get(f"/result/{sid}")).json()["status"] == "active"
        rest = [frame async for frame in frames]
    assert rest[-1].event == "end"


async def test_follow_goes_on_into_the_next_turn(alice: httpx.AsyncClient, sid: str) -> None:
    await execute(alice, "ask one", sid)
    async with streaming(alice, f"/stream/{sid}?follow=true") as frames:

        async def until(event: str) -> list[Any]:
            seen = []
            async with asyncio.timeout(60):
                async for frame in frames:
                    seen.append(frame)
                    if frame.event == event:
                        return seen
            raise AssertionError(f"the stream ended before {event}")

        seen = await until("pause")
        wait = seen[-1].data["suspended"][0]
        body = {"tool_call_id": wait["tool_call_id"], "result": "42"}
        await alice.post(f"/sessions/{sid}/tool-results", json=body)
        seen += await until("end")
        await execute(alice, "second turn", sid)
        seen += await until("end")
        assert text_of(seen).endswith("You said: second turn")
        numbers = [frame.id or 0 for frame in chunks(seen)]
        assert numbers == sorted(set(numbers))
        assert (await alice.delete(f"/sessions/{sid}")).status_code == 204
        assert (await until("gone"))[-1].data == {}


async def test_a_session_without_chunks_is_waited_for(alice: httpx.AsyncClient, stores: Stores, sid: str) -> None:
    await stores.state.create_session(sid, agent_type="manager", user_id="alice", custom_state={})
    async with streaming(alice, f"/stream/{sid}") as frames:
        first = await anext(frames)
        assert first.data["latest_sequence"] == 0
        await execute(alice, "hello", sid)
        rest = [frame async for frame in frames]
    assert text_of(rest) == "You said: hello"
    assert rest[-1].event == "end"


async def test_a_fork_has_its_last_word_without_a_stream(alice: httpx.AsyncClient, sid: str) -> None:
    await execute(alice, "hello", sid)
    await result(alice, sid)
    made = await alice.post(f"/sessions/{sid}/fork", json={})
    assert made.status_code == 201
    frames = await read_stream(alice, f"/stream/{made.json()['session_id']}")
    assert [frame.event for frame in frames] == ["open", "end"]
    assert frames[-1].data["output"] == "You said: hello"


async def test_deleting_a_session_ends_the_streams_of_its_run(alice: httpx.AsyncClient, sid: str) -> None:
    begun = await execute(alice, "nap 20", sid)
    async with streaming(alice, begun["stream_url"]) as frames:
        await anext(frames)
        assert (await alice.delete(f"/sessions/{sid}")).status_code == 204
        assert [frame.event async for frame in frames][-1] == "gone"  # though it was aborted first


async def test_deleting_a_session_that_waits_ends_its_streams(alice: httpx.AsyncClient, sid: str) -> None:
    begun = await execute(alice, "ask", sid)
    async with streaming(alice, begun["stream_url"] + "&follow=true") as frames:
        async for frame in frames:
            if frame.event == "pause":
                break
        assert (await alice.delete(f"/sessions/{sid}")).status_code == 204
        assert [frame.event async for frame in frames][-1] == "gone"


async def test_a_rewound_stream_goes_on_with_the_marker(alice: httpx.AsyncClient, stores: Stores, sid: str) -> None:
    await execute(alice, "search ants", sid)
    whole = chunks(await read_stream(alice, f"/stream/{sid}"))
    await stores.streams.cleanup_to_step(sid, 1)
    frames = await read_stream(alice, f"/stream/{sid}?from_sequence={whole[-2].id}")
    assert [frame.data["type"] for frame in chunks(frames)][-1] == "stream_rewound"


async def test_retention_that_overtakes_a_reader_is_told(server: Running, stores: Stores, sid: str) -> None:
    await stores.state.create_session(sid, agent_type="manager", user_id="alice", custom_state={})
    stores.streams.max_chunks = 50  # type: ignore[attr-defined]  # every manager of ours has it
    async with await stores.streams.create_writer(sid, "r", "manager") as writer:
        await writer.write({"type": "text_delta", "delta": "0"})
        await writer.flush()
        reader, socket = await _open_raw(server, f"/stream/{sid}")
        await reader.readuntil(b"id: 1\n")
        for _ in range(400):  # far more than all buffers on the way hold
            await writer.write({"type": "text_delta", "delta": "x" * 100_000})
        await writer.flush()
        await stores.streams.end_stream(sid, None)
        body = await reader.read()
        socket.close()
    assert b"event: truncated\ndata: {" in body[-300:]


async def test_a_client_that_does_not_read_holds_up_nobody(
    server: Running, alice: httpx.AsyncClient, stores: Stores, sid: str
) -> None:
    await stores.state.create_session(sid, agent_type="manager", user_id="alice", custom_state={})
    async with await stores.streams.create_writer(sid, "r", "manager") as writer:
        await writer.write({"type": "text_delta", "delta": "0"})
        await writer.flush()
        stuck, socket = await _open_raw(server, f"/stream/{sid}")
        await stuck.readuntil(b"id: 1\n")
        async with asyncio.timeout(60):
            for _ in range(300):
                await writer.write({"type": "text_delta", "delta": "x" * 50_000})
            await writer.flush()
            await stores.streams.end_stream(sid, None)
            quick = await read_stream(alice, f"/stream/{sid}")
            assert len(chunks(quick)) == 301
            late = await stuck.read()
        socket.close()
    assert late.count(b"event: chunk") == 300
    assert b"event: end" in late


async def _open_raw(server: Running, path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return a connection that reads only on request."""
    host, port = urlsplit(server.address).netloc.split(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=2**16)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\n{_lines(ALICE)}Connection: close\r\n\r\n".encode())
    return reader, writer


def _lines(headers: dict[str, str]) -> str:
    return "".join(f"{name}: {value}\r\n" for name, value in headers.items())


async def test_silence_is_broken_by_heartbeats(tmp_path: Path, sid: str) -> None:
    with running(f"sqlite:{tmp_path / 'h.db'}", tmp_path, 0, 0.1) as server:
        async with server.client() as alice:
            await execute(alice, "nap 20", sid)
            async with asyncio.timeout(30), streaming(alice, f"/stream/{sid}") as frames:
                seen = []
                async for frame in frames:
                    seen.append(frame.event)
                    if seen.count(":") == 3:
                        break
            assert seen.count(":") == 3
            assert "end" not in seen  # the run still sleeps: idle time, not its end, caused them


async def test_an_id_with_odd_characters_reaches_its_session(
    alice: httpx.AsyncClient, stores: Stores, sid: str
) -> None:
    odd = f"{sid}/a b?#%é☃\\'\"&+;=.."
    await stores.state.create_session(odd, agent_type="manager", user_id="alice", custom_state={})
    begun = await execute(alice, "hello", odd)
    frames = await read_stream(alice, begun["stream_url"])
    assert frames[0].data["session_id"] == odd
    address = begun["stream_url"].partition("?")[0].replace("/stream/", "/sessions/")
    assert (await alice.get(address)).json()["session_id"] == odd
    assert (await alice.get(f"{address}/messages")).json()["total"] == 2


# -- WebSocket


def socket_address(server: Running, path: str) -> str:
    return server.address.replace("http", "ws") + path


async def test_a_websocket_tells_the_same(server: Running, alice: httpx.AsyncClient, sid: str) -> None:
    await execute(alice, "search ants", sid)
    frames = await read_stream(alice, f"/stream/{sid}")
    for place in (0, 3, len(frames) - 2):
        address = socket_address(server, f"/ws/{sid}?from_sequence={place}")
        async with connect(address, additional_headers=ALICE) as socket:
            told = [json.loads(message) async for message in socket]
            assert socket.close_code == 1000
        assert [set(message) for message in told] == [{"event", "id", "data"}] * len(told)
        expected = await read_stream(alice, f"/stream/{sid}?from_sequence={place}")
        assert [(m["event"], m["id"], m["data"]) for m in told] == [tuple(frame) for frame in expected]


async def test_a_websocket_takes_a_token_in_the_query(server: Running, alice: httpx.AsyncClient, sid: str) -> None:
    await execute(alice, "hello", sid)
    async with connect(socket_address(server, f"/ws/{sid}?access_token=alice-token")) as socket:
        assert json.loads(await socket.recv())["event"] == "open"


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/ws/{}", {}, 401),
        ("/ws/{}", {**ALICE, "Origin": "https://evil.example"}, 403),
        ("/ws/nowhere", ALICE, 404),
        ("/ws/{}?from_sequence=x", ALICE, 400),
        ("/ws/{}?format=ag-ui", ALICE, 400),
        ("/ws/{}?from_sequence=99999", ALICE, 416),
    ],
)
async def test_a_websocket_is_refused_as_a_request_would_be(
    server: Running, alice: httpx.AsyncClient, sid: str, path: str, headers: dict[str, str], status: int
) -> None:
    await execute(alice, "hello", sid)
    with pytest.raises(InvalidStatus) as refused:
        await connect(socket_address(server, path.format(sid)), additional_headers=headers)
    assert refused.value.response.status_code == status
    assert refused.value.response.headers["content-type"] == "application/problem+json"
    assert "handshake" not in server.log.read_text()  # a client that is rejected must not be able to fill the log


async def test_what_a_websocket_client_sends_means_nothing(server: Running, alice: httpx.AsyncClient, sid: str) -> None:
    await execute(alice, "nap 0.5", sid)
    async with connect(socket_address(server, f"/ws/{sid}"), additional_headers=ALICE) as socket:
        for message in ("{}", "nonsense", b"\x00\xff"):
            await socket.send(message)
        told = [json.loads(message) async for message in socket]
    assert told[-1]["event"] == "end"
