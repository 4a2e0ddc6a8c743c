"""Streams on Postgres against raw inserts: `python -m benchmarks.postgres_streams`.

Raw is a loop on one connection that appends 16 chunks with one statement. Delivery to another process:
`paced_delivery.py`.
"""

from __future__ import annotations

import asyncio
import sys

import asyncpg

from benchmarks import machine, postgres_by_hand
from benchmarks.paced_delivery import STAMPED, chunk, deliver, follow
from benchmarks.pairing import Report, pair_async
from benchmarks.streams_sqlite import CHUNKS, RAW_BATCH
from helix_agents.backends.postgres.stream_manager import PostgresStreamManager
from tests.servers.postgres import DURABLE, PostgresServer


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
    async with asyncpg.create_pool(url, min_size=1, max_size=4) as pool:
        manager = PostgresStreamManager(pool)
        await follow(manager, stream_id, readers)
        await manager.close()


async def delivering(report: Report, url: str, readers: int, per_second: int, bound_ms: float) -> None:
    stream_id = f"paced-{readers}"
    async with asyncpg.create_pool(url, min_size=1, max_size=4) as pool:
        manager = PostgresStreamManager(pool)
        other = ("benchmarks.postgres_streams", "child", url, stream_id, str(readers))
        await deliver(report, manager, stream_id, other, readers=readers, per_second=per_second, bound_ms=bound_ms)
        await manager.close()


async def measure(report: Report, url: str) -> None:
    await writing(report, url)
    await delivering(report, url, 1, 100, 5.0)
    await delivering(report, url, 100, 100, 5.0)
    await delivering(report, url, 1000, 50, 15.0)


def main() -> int:
    print(machine.describe())
    report = Report()
    with PostgresServer(options=DURABLE) as server:
        asyncio.run(measure(report, server.url))
    return report.exit_code()


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        asyncio.run(child(sys.argv[2], sys.argv[3], int(sys.argv[4])))
        raise SystemExit(0)
    raise SystemExit(main())
