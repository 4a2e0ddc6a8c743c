"""The server processes of `benchmarks.server_streams`: ours, and a bare Starlette app that sends prebuilt bytes.

`python -m benchmarks.server_app ours|bare`. Prints its address; each further line on stdin is a command, answered by a
line on stdout.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from helix_agents.backends.registry import Stores, open_stores
from helix_agents.executor import AgentExecutor
from helix_agents.llm import ScriptedLLM
from helix_agents.server import create_app
from helix_agents.server.serve import serve

PIECE = {"type": "text_delta", "delta": "x" * 24, "agent_id": "run", "agent_type": "agent", "step": 1}
STREAM_LIMIT = 20_000


def rss_mb() -> float:
    """What this process takes of the memory now."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


async def commands() -> AsyncIterator[list[str]]:
    """The lines on stdin, as words."""
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        yield line.split()


async def ours() -> None:
    """`fill N`: a turn of N chunks at once. `pace N ms`: with the moment of each. `end`. `memory`."""
    async with open_stores("memory:") as stores:
        executor = AgentExecutor(stores.state, stores.streams, ScriptedLLM([]))
        app = create_app(executor, allow_unauthenticated=True, recover=False, max_streams_per_user=STREAM_LIMIT)
        await stores.state.create_session("s", agent_type="agent", custom_state={})
        serving = asyncio.create_task(serve(app, port=0, on_ready=lambda address: print(address, flush=True)))
        async for words in commands():
            print(await _obey(stores, words), flush=True)
        serving.cancel()


async def _obey(stores: Stores, words: list[str]) -> str:
    if words[0] == "memory":
        return f"{rss_mb():.1f}"
    if words[0] == "end":
        await stores.streams.end_stream("s", None)
        return "ended"
    async with await stores.streams.create_writer("s", "run", "agent") as writer:
        for _ in range(int(words[1])):
            if words[0] == "pace":
                await asyncio.sleep(int(words[2]) / 1000)
            await writer.write({**PIECE, "sent": time.monotonic_ns()} if words[0] == "pace" else dict(PIECE))
    return "written"


async def bare() -> None:
    """`fill N`: let all clients that wait have N prebuilt events, one `send` each."""
    gate = asyncio.Event()
    frames: list[bytes] = []

    async def stream(request: Request) -> StreamingResponse:
        async def body() -> AsyncIterator[bytes]:
            yield b"event: open\ndata: {}\n\n"
            await gate.wait()
            for frame in frames:
                yield frame
            yield b"event: end\ndata: {}\n\n"

        return StreamingResponse(body(), media_type="text/event-stream")

    app = Starlette(routes=[Route("/stream/s", stream)])
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", access_log=False))
    serving = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110  # uvicorn has no event for it
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    print(f"http://127.0.0.1:{port}", flush=True)
    async for words in commands():
        if words[0] == "fill":
            text = json.dumps({**PIECE, "timestamp": 1_700_000_000_000}, separators=(",", ":"))
            frames += [f"event: chunk\nid: {n + 1}\ndata: {text}\n\n".encode() for n in range(int(words[1]))]
            gate.set()
        print(f"{rss_mb():.1f}" if words[0] == "memory" else "done", flush=True)
    serving.cancel()


if __name__ == "__main__":
    asyncio.run(ours() if sys.argv[1] == "ours" else bare())
