"""Streams on Redis against raw commands: `python -m benchmarks.redis_streams`.

Raw means redis-py itself: a loop of pipelines with 16 XADD each, trimmed to the same length. Delivery is measured from
`write` in this process to the `async for` of readers in another one, by the system's monotonic clock, which both share.
The server is a private one on this machine, without an append-only file.
"""

from __future__ import annotations

import asyncio
import sys
import time
from statistics import median, quantiles
from typing import Any

from redis.asyncio import Redis

from benchmarks import machine
from benchmarks.pairing import Report, pair_async
from helix_agents.backends.redis.stream_manager import RedisStreamManager
from helix_agents.codec import encode
from tests.servers.redis_server import VALKEY_9, RedisServer

CHUNKS = 4_000
BATCH = 16
PACED_SECONDS = 5.0


def chunk() -> dict[str, Any]:
    return {"type": "text_delta", "delta": "x" * 24}  # about 120 bytes once stamped


STAMPED = encode({"agent_id": "run", "agent_type": "agent", "step": 0, **chunk(), "timestamp": 1_700_000_000_000})


async def raw_write(client: Any, key: str) -> None:
    for _ in range(0, CHUNKS, BATCH):
        pipeline = client.pipeline(transaction=False)
        for _ in range(BATCH):
            pipeline.xadd(key, {"m": "0:1700000000000", "c": STAMPED}, maxlen=10_000)
        await pipeline.execute()


async def our_write(manager: RedisStreamManager, stream_id: str, *, flushed: bool) -> None:
    async with await manager.create_writer(stream_id, "run", "agent") as writer:
        for _ in range(0, CHUNKS, BATCH):
            for _ in range(BATCH):
                await writer.write(chunk())
            if flushed:
                await writer.flush()


async def writing(report: Report, url: str) -> None:
    client = Redis.from_url(url)
    manager = RedisStreamManager(client, prefix="bench")
    names = iter(range(10_000))

    async def raw() -> None:
        await raw_write(client, f"raw-{next(names)}")

    async def same_batches() -> None:
        await our_write(manager, f"s{next(names)}", flushed=True)

    async def coalescing() -> None:
        await our_write(manager, f"s{next(names)}", flushed=False)

    paired = await pair_async({"raw": raw, "same": same_batches, "ours": coalescing}, rounds=9, warmup=1)
    for name, what in (("raw", "raw, 16 a batch"), ("same", "ours, flushed every 16"), ("ours", "ours, coalescing")):
        report.line(f"{what}: thousand chunks a second", CHUNKS / paired.median_ns(name) * 1e6)
    report.line("throughput, flushed every 16, over raw", paired.ratio("raw", "same"), at_least=0.7)
    report.line("throughput, coalescing, over raw", paired.ratio("raw", "ours"), at_least=0.7)
    await manager.close()
    await client.aclose()


async def counting(report: Report, url: str) -> None:
    reading, other = Redis.from_url(url), Redis.from_url(url)
    readers, writers = RedisStreamManager(reading, prefix="counted"), RedisStreamManager(other, prefix="counted")
    writer = await writers.create_writer("s", "run", "agent")
    attached = [await readers.create_reader("s") for _ in range(1000)]

    async def drain(reader: Any) -> int:
        return len([each async for each in reader])

    everyone = [asyncio.create_task(drain(reader)) for reader in attached]
    await asyncio.sleep(0.2)
    before = readers.hub.reads
    for _ in range(100):
        await writer.write(chunk())
        await writer.flush()
    await writers.end_stream("s")
    assert set(await asyncio.gather(*everyone)) == {100}
    report.line("subscriptions of 1,000 readers", readers.hub.subscriptions, at_most=1)
    report.line("reads of 1,000 readers for 100 chunks", readers.hub.reads - before, at_most=110)
    for manager in (readers, writers):
        await manager.close()
    for client in (reading, other):
        await client.aclose()


# -- delivery to another process


async def child(url: str, prefix: str, readers: int) -> None:
    """Reads with many readers; says how long the chunks were under way."""
    client = Redis.from_url(url)
    manager = RedisStreamManager(client, prefix=prefix)
    delays: list[float] = []

    async def follow() -> None:
        reader = await manager.create_reader("s")
        assert reader is not None
        async for found in reader:
            if "sent" in found:
                delays.append((time.monotonic_ns() - found["sent"]) / 1e6)

    tasks = [asyncio.create_task(follow()) for _ in range(readers)]
    await asyncio.sleep(1.0)  # until all of them wait
    print("ready", flush=True)
    await asyncio.gather(*tasks)
    cuts = quantiles(delays, n=100)
    print(f"delays {len(delays)} {median(delays)} {cuts[94]} {cuts[98]} {manager.hub.subscriptions}", flush=True)
    await manager.close()
    await client.aclose()


async def delivering(report: Report, url: str, readers: int, per_second: int, bound_ms: float) -> None:
    client = Redis.from_url(url)
    prefix = f"paced-{readers}"
    manager = RedisStreamManager(client, prefix=prefix)
    writer = await manager.create_writer("s", "run", "agent")
    command = (sys.executable, "-m", "benchmarks.redis_streams", "child", url, prefix, str(readers))
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    await process.stdout.readline()
    count = int(PACED_SECONDS * per_second)
    loop = asyncio.get_running_loop()
    begin = loop.time()
    for number in range(count):
        await asyncio.sleep(max(0.0, begin + number / per_second - loop.time()))
        await writer.write({**chunk(), "sent": time.monotonic_ns()})
    await writer.close()
    await manager.end_stream("s")
    words = (await process.stdout.readline()).split()
    await process.wait()
    await manager.close()
    await client.aclose()
    label = f"{readers:,} readers elsewhere, {per_second} a second"
    report.line(f"{label}: deliveries", int(words[1]), at_least=count * readers, at_most=count * readers)
    report.line(f"{label}: p50 ms", float(words[2]), at_most=bound_ms)
    report.line(f"{label}: p95 ms", float(words[3]))
    report.line(f"{label}: p99 ms", float(words[4]))
    report.line(f"{label}: subscriptions", int(words[5]), at_most=1)


async def run(report: Report, server: RedisServer) -> None:
    await writing(report, server.url)
    await counting(report, server.url)
    await delivering(report, server.url, 1, 100, 4.0)
    await delivering(report, server.url, 100, 100, 4.0)
    await delivering(report, server.url, 1000, 50, 15.0)


def main() -> int:
    print(machine.describe(), VALKEY_9)
    report = Report()
    with RedisServer(VALKEY_9, options=("--appendonly", "no")) as server:
        asyncio.run(run(report, server))
    return report.exit_code()


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        asyncio.run(child(sys.argv[2], sys.argv[3], int(sys.argv[4])))
        raise SystemExit(0)
    raise SystemExit(main())
