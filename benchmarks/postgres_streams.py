"""Streams on Postgres against raw inserts: `python -m benchmarks.postgres_streams`.

Raw is a loop on one connection that appends 16 chunks with one statement. Delivery is measured from `write` in this
process to the `async for` of readers in another one, by the system's monotonic clock, which both share.
"""

from __future__ import annotations

import asyncio
import resource
import sys
import time
from statistics import median, quantiles

import asyncpg

from benchmarks import machine, postgres_by_hand
from benchmarks.pairing import Report, pair_async
from benchmarks.streams_sqlite import CHUNKS, RAW_BATCH, STAMPED, chunk
from helix_agents.backends.postgres.stream_manager import PostgresStreamManager
from tests.servers.postgres import PostgresServer

IDLE_SECONDS = 4.0
PACED_SECONDS = 5.0


async def writing(report: Report, url: str) -> None:
    raw_connection = await asyncpg.connect(url)
    await raw_connection.execute(postgres_by_hand.SCHEMA)
    async with asyncpg.create_pool(url, min_size=2, max_size=4) as pool:
        manager = PostgresStreamManager(pool, max_chunks=0)
        names = iter(range(1000))
        batch = [STAMPED] * RAW_BATCH

        async def raw() -> None:
            name = f"s{next(names)}"
            await raw_connection.execute("INSERT INTO streams VALUES ($1, 0)", name)
            for _ in range(CHUNKS // RAW_BATCH):
                await raw_connection.execute(postgres_by_hand.APPEND, name, batch)

        async def ours() -> None:
            async with await manager.create_writer(f"s{next(names)}", "run", "agent") as writer:
                for _ in range(CHUNKS):
                    await writer.write(chunk())

        paired = await pair_async({"raw": raw, "ours": ours}, rounds=5, warmup=1)
        report.line("raw, thousand chunks a second, 16 a batch", CHUNKS / paired.median_ns("raw") * 1e6)
        report.line("ours, thousand chunks a second", CHUNKS / paired.median_ns("ours") * 1e6)
        report.line("throughput of ours over raw", paired.ratio("raw", "ours"), at_least=0.5)
        await manager.close()
    await raw_connection.close()


async def child(url: str, stream_id: str, readers: int) -> None:
    """Reads with many readers; says how long the chunks were under way, and what idling costs."""
    async with asyncpg.create_pool(url, min_size=1, max_size=4) as pool:
        manager = PostgresStreamManager(pool)
        delays: list[float] = []

        async def follow() -> None:
            reader = await manager.create_reader(stream_id)
            assert reader is not None
            async for found in reader:
                if "sent" in found:
                    delays.append((time.monotonic_ns() - found["sent"]) / 1e6)

        tasks = [asyncio.create_task(follow()) for _ in range(readers)]
        await asyncio.sleep(1.0)  # until all of them wait
        before = resource.getrusage(resource.RUSAGE_SELF)
        await asyncio.sleep(IDLE_SECONDS)
        after = resource.getrusage(resource.RUSAGE_SELF)
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        print(f"idle {100 * used / IDLE_SECONDS}", flush=True)
        await asyncio.gather(*tasks)
        cuts = quantiles(delays, n=100)
        print(f"delays {len(delays)} {median(delays)} {cuts[94]} {cuts[98]} {manager.hub.subscriptions}", flush=True)
        await manager.close()


async def delivering(report: Report, url: str, readers: int, per_second: int, bound_ms: float) -> None:
    stream_id = f"paced-{readers}"
    async with asyncpg.create_pool(url, min_size=1, max_size=4) as pool:
        manager = PostgresStreamManager(pool)
        writer = await manager.create_writer(stream_id, "run", "agent")
        await writer.write(chunk())
        await writer.flush()
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "benchmarks.postgres_streams",
            "child",
            url,
            stream_id,
            str(readers),
            stdout=asyncio.subprocess.PIPE,
        )
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
        await manager.close()
    label = f"{readers:,} readers elsewhere, {per_second} a second"
    report.line(f"{label}: deliveries", int(words[1]), at_least=count * readers, at_most=count * readers)
    report.line(f"{label}: p50 ms", float(words[2]), at_most=bound_ms)
    report.line(f"{label}: p95 ms", float(words[3]))
    report.line(f"{label}: p99 ms", float(words[4]))
    report.line(f"{label}: subscriptions", int(words[5]), at_most=1)
    report.line(f"{readers:,} idle readers in a process: % of a core", idle, at_most=1.0)


async def measure(report: Report, url: str) -> None:
    await writing(report, url)
    await delivering(report, url, 1, 100, 5.0)
    await delivering(report, url, 100, 100, 5.0)
    await delivering(report, url, 1000, 50, 15.0)


def main() -> int:
    print(machine.describe())
    report = Report()
    with PostgresServer() as server:
        asyncio.run(measure(report, server.url))
    return report.exit_code()


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        asyncio.run(child(sys.argv[2], sys.argv[3], int(sys.argv[4])))
        raise SystemExit(0)
    raise SystemExit(main())
