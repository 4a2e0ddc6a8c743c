"""Streams on Redis against raw commands: `python -m benchmarks.redis_streams`.

Raw means redis-py itself: a loop of pipelines with 16 XADD each, trimmed to the same length. Delivery to another
process: `paced_delivery.py`. The server is a private one on this machine, without an append-only file.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from redis.asyncio import Redis

from benchmarks import machine
from benchmarks.paced_delivery import STAMPED, chunk, deliver, follow
from benchmarks.pairing import Report, pair_async
from helix_agents.backends.redis.stream_manager import RedisStreamManager
from tests.servers.redis_server import VALKEY_9, RedisServer

CHUNKS = 4_000
BATCH = 16


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


async def child(url: str, stream_id: str, readers: int) -> None:
    client = Redis.from_url(url)
    manager = RedisStreamManager(client, prefix="paced")
    await follow(manager, stream_id, readers)
    await manager.close()
    await client.aclose()


async def delivering(report: Report, url: str, readers: int, per_second: int, bound_ms: float) -> None:
    client = Redis.from_url(url)
    manager = RedisStreamManager(client, prefix="paced")
    stream_id = f"s{readers}"
    other = ("benchmarks.redis_streams", "child", url, stream_id, str(readers))
    await deliver(report, manager, stream_id, other, readers=readers, per_second=per_second, bound_ms=bound_ms)
    await manager.close()
    await client.aclose()


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
