"""Bytes that no honest client sends: they get an error or a closed connection, and the server keeps serving."""

from __future__ import annotations

import asyncio
import random
from urllib.parse import urlsplit

import httpx
import pytest

from tests.server.running import Running, execute, result

HEAD = b"Host: x\r\nAuthorization: Bearer alice-token\r\n"


async def send_raw(server: Running, data: bytes, *, wait_seconds: float = 10) -> bytes:
    """Return what the server sends after these bytes, until it closes the connection or stops sending."""
    host, port = urlsplit(server.address).netloc.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(data)
        writer.write_eof()
        async with asyncio.timeout(wait_seconds):
            return await reader.read()
    except OSError:  # a time-out too
        return b""
    finally:
        writer.close()


async def ensure_alive(server: Running) -> None:
    async with server.client() as alice:
        assert (await alice.get("/healthz")).status_code == 200


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x01\x02\x03",
        b"GET /sessions\r\n\r\n",
        b"GET /sessions HTTP/1.1\r\n" + HEAD + b"Broken header\r\n\r\n",
        b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\n" + HEAD + b"\r\n",
        b"GET /sessions HTTP/1.1\r\n" + HEAD + b"X: " + b"a" * 200_000 + b"\r\n\r\n",
        b"GET /sessions HTTP/1.1\r\n" + HEAD + b"X: a\r\n" * 20_000 + b"\r\n",
        b"POST /execute HTTP/1.1\r\n" + HEAD + b"Content-Length: -1\r\n\r\n",
        b"POST /execute HTTP/1.1\r\n" + HEAD + b"Content-Length: abc\r\n\r\n",
        b"POST /execute HTTP/1.1\r\n" + HEAD + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
    ids=range(10),
)
async def test_what_is_not_http_is_refused(server: Running, data: bytes) -> None:
    answer = await send_raw(server, data)
    assert answer == b"" or answer.split(b"\r\n")[0].split()[1].startswith(b"4")
    assert b"Traceback" not in answer
    await ensure_alive(server)


@pytest.mark.parametrize(
    "headers",
    [
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        b"Content-Length: 5\r\nContent-Length: 6\r\n",
        b"Transfer-Encoding: chunked, identity\r\n",
        b"Content-Length: 0\r\nTransfer-Encoding:\x0bchunked\r\n",
        b"Content-Length: +5\r\n",
    ],
    ids=range(5),
)
async def test_a_request_hidden_in_another_is_not_served(server: Running, headers: bytes) -> None:
    hidden = b"GET /sessions?tag=smuggled HTTP/1.1\r\n" + HEAD + b"\r\n"
    outer = b"POST /execute HTTP/1.1\r\n" + HEAD + b"Content-Type: application/json\r\n" + headers
    answer = await send_raw(server, outer + b"\r\n0\r\n\r\n" + hidden)
    assert b" 200 " not in answer
    await ensure_alive(server)


async def test_connections_that_say_nothing_hold_up_nobody(server: Running, alice: httpx.AsyncClient, sid: str) -> None:
    host, port = urlsplit(server.address).netloc.split(":")
    silent = await asyncio.gather(*(asyncio.open_connection(host, int(port)) for _ in range(200)))
    try:
        for number, (_, writer) in enumerate(silent):
            writer.write(b"POST /execute HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"[: number % 60])
        await execute(alice, "hello", sid)
        assert (await result(alice, sid))["status"] == "completed"
    finally:
        for _, writer in silent:
            writer.close()


async def test_random_paths_headers_and_bodies_never_break_it(server: Running) -> None:
    seed = 7
    choose = random.Random(seed)
    routes = ["/execute", "/sessions", "/stream/", "/result/", "/ws/", "/agui/", "/chat/", "/sessions/a/", "/waiting"]
    methods = ["GET", "POST", "DELETE", "HEAD", "OPTIONS", "PATCH"]
    for number in range(150):
        junk = bytes(choose.randrange(256) for _ in range(choose.randrange(40)))
        path = choose.choice(routes) + "".join(f"%{byte:02x}" for byte in junk[:12])
        lines = [
            f"{choose.choice(methods)} {path}?{junk.hex()}=%{choose.randrange(100):02d} HTTP/1.1".encode(),
            b"Host: x",
        ]
        lines.append(b"Authorization: Bearer alice-token")
        lines.append(b"Last-Event-ID: " + junk.replace(b"\r", b"").replace(b"\n", b"").replace(b"\x00", b""))
        body = junk if choose.random() < 0.5 else b'{"agent_type": "manager"'
        lines += [b"Content-Type: application/json", f"Content-Length: {len(body)}".encode(), b"Connection: close"]
        answer = await send_raw(server, b"\r\n".join(lines) + b"\r\n\r\n" + body, wait_seconds=20)
        assert b" 500 " not in answer[:20], (seed, number, lines, answer)
    await ensure_alive(server)
