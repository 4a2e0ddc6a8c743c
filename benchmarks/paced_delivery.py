"""Chunks at a steady pace from this process to the readers of another one, for every technology alike.

A chunk carries the moment of its `write`; a reader compares that with the moment at which its `async for` has it, by
the system's monotonic clock, which both processes share. A benchmark opens the managers and starts the other process:
it calls `follow` there and `deliver` here.
"""

from __future__ import annotations

import asyncio
import resource
import sys
import time
from statistics import median, quantiles
from typing import Any

from benchmarks.pairing import Report
from helix_agents.codec import encode
from helix_agents.streams.base import StreamManagerBase

IDLE_SECONDS = 4.0
PACED_SECONDS = 5.0


def chunk() -> dict[str, Any]:
    return {"type": "text_delta", "delta": "x" * 24}  # about 120 bytes once stamped


STAMPED = encode({"agent_id": "run", "agent_type": "agent", "step": 0, **chunk(), "timestamp": 1_700_000_000_000})
"""A chunk as it is stored."""


async def follow(manager: StreamManagerBase, stream_id: str, readers: int) -> None:
    """In the other process: read with many readers; say what idling costs and how long the chunks were under way."""
    delays: list[float] = []

    async def read() -> None:
        reader = await manager.create_reader(stream_id)
        assert reader is not None
        async for found in reader:
            if "sent" in found:
                delays.append((time.monotonic_ns() - found["sent"]) / 1e6)

    tasks = [asyncio.create_task(read()) for _ in range(readers)]
    await asyncio.sleep(1.0)  # until all of them wait
    before = resource.getrusage(resource.RUSAGE_SELF)
    await asyncio.sleep(IDLE_SECONDS)
    after = resource.getrusage(resource.RUSAGE_SELF)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"idle {100 * used / IDLE_SECONDS}", flush=True)
    await asyncio.gather(*tasks)
    cuts = quantiles(delays, n=100)
    print(f"delays {len(delays)} {median(delays)} {cuts[94]} {cuts[98]} {manager.hub.subscriptions}", flush=True)


async def deliver(
    report: Report,
    manager: StreamManagerBase,
    stream_id: str,
    other: tuple[str, ...],
    *,
    readers: int,
    per_second: int,
    bound_ms: float,
) -> None:
    """In this process: start `other`, the module and arguments of one that follows, and write at a steady pace."""
    writer = await manager.create_writer(stream_id, "run", "agent")
    await writer.write(chunk())
    await writer.flush()
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", *other, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    idle = float((await process.stdout.readline()).split()[1])
    count = int(PACED_SECONDS * per_second)
    loop = asyncio.get_running_loop()
    begin = loop.time()
    for number in range(count):
        await asyncio.sleep(max(0.0, begin + number / per_second - loop.time()))
        await writer.write({**chunk(), "sent": time.monotonic_ns()})
    await writer.close()
    await manager.end_stream(stream_id)
    words = (await process.stdout.readline()).split()
    await process.wait()
    label = f"{readers:,} readers elsewhere, {per_second} a second"
    report.line(f"{label}: deliveries", int(words[1]), at_least=count * readers, at_most=count * readers)
    report.line(f"{label}: p50 ms", float(words[2]), at_most=bound_ms)
    report.line(f"{label}: p95 ms", float(words[3]))
    report.line(f"{label}: p99 ms", float(words[4]))
    report.line(f"{label}: subscriptions", int(words[5]), at_most=1)
    report.line(f"{readers:,} idle readers in a process: % of a core", idle, at_most=1.0)
