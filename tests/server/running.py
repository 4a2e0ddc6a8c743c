"""A server in its own process, and clients that read its streams as a browser would."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 60
LAST_WORDS = frozenset({"end", "fail", "pause", "truncated", "gone"})


class Running:
    """One server process and how to reach it."""

    def __init__(self, url: str, folder: Path, *arguments: object) -> None:
        self.url = url
        self.log = folder / "server.log"
        self._arguments = [url, *map(str, arguments)]
        self.process: subprocess.Popen[str] = self._launch()
        self.address = self._ready()

    def client(self, token: str | None = "alice-token", **options: Any) -> httpx.AsyncClient:
        """Return a client of one user."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        limits = httpx.Limits(max_connections=None)
        return httpx.AsyncClient(
            base_url=self.address,
            headers=headers,
            timeout=PATIENCE_SECONDS,
            limits=limits,
            verify=False,  # there is no TLS here, and reading certificates would cost more than most tests
            **options,
        )

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, wait for the end and return the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(PATIENCE_SECONDS)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code

    def _launch(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.server.app_process", *self._arguments]
        with self.log.open("ab") as log:
            return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True)

    def _ready(self) -> str:
        assert self.process.stdout is not None
        address = self.process.stdout.readline().strip()
        assert address.startswith("http://"), self.log.read_text()
        return address


@contextmanager
def running(url: str, folder: Path, *arguments: object) -> Iterator[Running]:
    """Start the server of `app_process.py` and stop it at the end. `arguments` as there."""
    server = Running(url, folder, *arguments)
    try:
        yield server
    finally:
        server.stop(signal.SIGKILL)


class Seen(NamedTuple):
    """One frame as a client sees it."""

    event: str
    id: int | None
    data: Any


async def frames_of(lines: AsyncIterator[str]) -> AsyncIterator[Seen]:
    """Yield the events of an SSE body. Comments are frames called `:`."""
    fields: dict[str, str] = {}
    async for line in lines:
        if line.startswith(":"):
            yield Seen(":", None, line[1:].strip())
        elif line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif "event" in fields:
            number = fields.get("id", "").removesuffix("-end")
            chunk_id = int(number) if number and fields["event"] == "chunk" else None
            yield Seen(fields["event"], chunk_id, json.loads(fields["data"]))
            fields = {}
        else:
            fields = {}


@asynccontextmanager
async def streaming(client: httpx.AsyncClient, path: str, **options: Any) -> AsyncIterator[AsyncIterator[Seen]]:
    """An open stream."""
    async with client.stream("GET", path, **options) as response:
        assert response.status_code == 200, await response.aread()
        assert response.headers["content-type"] == "text/event-stream"
        yield frames_of(response.aiter_lines())


async def read_stream(client: httpx.AsyncClient, path: str, **options: Any) -> list[Seen]:
    """Return all frames of a stream that ends by itself."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        async with streaming(client, path, **options) as frames:
            return [frame async for frame in frames]


async def execute(client: httpx.AsyncClient, message: str, session_id: str, **members: Any) -> dict[str, Any]:
    """Start a run; return the response."""
    body = {"agent_type": "manager", "message": message, "session_id": session_id, **members}
    response = await client.post("/execute", json=body)
    assert response.status_code == 202, response.text
    answer: dict[str, Any] = response.json()
    return answer


async def result(client: httpx.AsyncClient, session_id: str) -> dict[str, Any]:
    """Return the status of a session once it has stopped."""
    response = await client.get(f"/result/{session_id}", params={"wait": 30})
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def chunks(frames: list[Seen]) -> list[Seen]:
    """Return the chunks among the frames."""
    return [frame for frame in frames if frame.event == "chunk"]


def text_of(frames: list[Seen]) -> str:
    """Return the text of the model."""
    return "".join(frame.data["delta"] for frame in chunks(frames) if frame.data["type"] == "text_delta")
