"""A client of the agents in `inside/agent_worker.py`: what a browser or another service does."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

import aiohttp
import pytest

from tests.cloudflare.workerd import PythonWorkerd

LIMIT = aiohttp.ClientTimeout(total=240)


def new_session() -> aiohttp.ClientSession:
    # A connection for each request: one that was kept may be closed by the time it is used again.
    return aiohttp.ClientSession(timeout=LIMIT, connector=aiohttp.TCPConnector(force_close=True, limit=0))


def narrow_session() -> aiohttp.ClientSession:
    """Its connections take a few kilobytes that nobody reads; the rest stays with the server."""

    def narrow(address: Any) -> socket.socket:
        made = socket.socket(*address[:3])
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        return made

    return aiohttp.ClientSession(timeout=LIMIT, connector=aiohttp.TCPConnector(limit=0, socket_factory=narrow))


class Client:
    """What a browser or another service does."""

    def __init__(self, server: PythonWorkerd, session: aiohttp.ClientSession) -> None:
        self.url = f"{server.url}/agent_worker"
        self.http = session

    async def ask(
        self, method: str, path: str, body: Any = None, *, token: str = "alice", **more: str
    ) -> tuple[int, Any]:
        headers = {"authorization": f"Bearer {token}", **{name.replace("_", "-"): text for name, text in more.items()}}
        async with self.http.request(method, self.url + path, json=body, headers=headers) as reply:
            text = await reply.text()
            try:
                return reply.status, json.loads(text) if text else None
            except ValueError:
                pytest.fail(f"{method} {path}: {reply.status} {text[-3000:]}")

    async def execute(self, session_id: str, agent_type: str = "author") -> None:
        body = {"agent_type": agent_type, "message": "go", "session_id": session_id}
        status, answer = await self.ask("POST", "/execute", body)
        assert status == 202, answer

    async def sse(self, session_id: str, query: str = "") -> list[tuple[str, int | None, Any]]:
        """Events of a stream until it ends: name, id, data."""
        headers = {"authorization": "Bearer alice"}
        async with self.http.get(f"{self.url}/stream/{session_id}{query}", headers=headers) as reply:
            assert reply.status == 200, await reply.text()
            text = await reply.text()
        events = []
        for block in text.split("\n\n"):
            lines = dict(line.partition(": ")[::2] for line in block.splitlines() if not line.startswith(":"))
            if "event" in lines:
                number = int(lines["id"]) if lines.get("id", "").isdigit() else None  # final frames have the id `N-end`
                events.append((lines["event"], number, json.loads(lines["data"])))
        return events

    async def watch(self, session_id: str, query: str = "") -> list[dict[str, Any]]:
        """Frames of a WebSocket until it closes."""
        address = f"{self.url}/ws/{session_id}?access_token=alice{query}"
        async with self.http.ws_connect(address, max_msg_size=0) as connection:
            return [message.json() async for message in connection]

    async def watch_to_the_end(self, session_id: str) -> list[dict[str, Any]]:
        """Return the same for a client that reconnects with the last sequence it saw until it gets a final frame."""
        frames: list[dict[str, Any]] = []
        while not frames or frames[-1]["event"] != "end":
            last = max(numbers(frames), default=0)
            address = f"{self.url}/ws/{session_id}?access_token=alice&from_sequence={last}"
            try:
                async with self.http.ws_connect(address, max_msg_size=0) as connection:
                    async for message in connection:
                        frames.append(message.json())
            except (aiohttp.ClientError, OSError):
                await asyncio.sleep(0.1)  # it is not up again yet
        return frames


def numbers(frames: list[dict[str, Any]]) -> list[int]:
    return [frame["id"] for frame in frames if frame["event"] == "chunk"]
