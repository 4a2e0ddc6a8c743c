"""The child process of the stream checks: `python -m helix_agents.conformance.streams.child <mode> "<spec>"`.

It reads one line of JSON parameters and replies with lines of JSON. Mode `write` writes chunks and reports every
flush; mode `read` reads and reports every chunk.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from ...streams.contract import StreamManager
from ..harness import Harness
from ..registry import NotApplicable
from ..tools.child import resolve
from ..tools.crew import hear, stop_child, tell
from .sample import chunk, name_of


@asynccontextmanager
async def child(harness: Harness, mode: str, **params: Any) -> AsyncIterator[Process]:
    """Yield a running child process; kill it at the end."""
    spec = harness.stream_child_spec()
    if spec is None:
        raise NotApplicable("the data lives in one process")
    path = os.pathsep.join(entry or os.curdir for entry in sys.path)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "helix_agents.conformance.streams.child",
        mode,
        spec,
        stdin=PIPE,
        stdout=PIPE,
        env={**os.environ, "PYTHONPATH": path},
    )
    try:
        if await hear(process) != "ready":
            raise AssertionError("a child process did not say that it is ready")
        await tell(process, params)
        yield process
    finally:
        await stop_child(process)


def _say(answer: Any) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


async def _write(manager: StreamManager, params: dict[str, Any]) -> None:
    writer = await manager.create_writer(params["stream_id"], params["name"], "agent")
    for number in range(params["count"]):
        await writer.write(chunk(f"{params['name']}.{number}"))
        if number % params.get("flush_every", 10) == 0:
            _say([number, await writer.flush()])
    await writer.close()
    _say("done")


async def _read(manager: StreamManager, params: dict[str, Any]) -> None:
    reader = await manager.create_resumable_reader(params["stream_id"], from_sequence=params["from_sequence"])
    assert reader is not None
    _say("reading")
    async for stored in reader.stored():
        _say([stored.sequence, name_of(stored.chunk)])
    assert reader.outcome is not None
    _say(reader.outcome.status)


async def _main(mode: str, spec: str) -> None:
    name, _, argument = spec.partition(" ")
    manager: StreamManager = await resolve(name)(argument)
    _say("ready")
    params = json.loads(await asyncio.to_thread(sys.stdin.readline))
    await {"write": _write, "read": _read}[mode](manager, params)
    await manager.close()


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], sys.argv[2]))
