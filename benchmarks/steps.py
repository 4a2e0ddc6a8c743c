"""What a step waits for: a whole step of the executor, against three raw commits on the same database, in turns.

    ./dev bench steps [--steps 20] [--rounds 15]

An instant model, one tool and three, a durable stream. A raw commit stores one row of 1 KB, as durable as ours: by
sqlite3 in a thread, by asyncpg, by one Redis command. Both databases are also compared with other
frameworks, in environments of their own, taking turns.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from time import perf_counter

import asyncpg
from redis.asyncio import Redis

from benchmarks.all.contestants import OURS, available
from benchmarks.all.figures import step_costs
from benchmarks.executor_overhead import with_executor
from helix_agents import Stores, open_stores
from tests.servers.postgres import DURABLE as DURABLE_POSTGRES
from tests.servers.postgres import PostgresServer
from tests.servers.redis_server import DURABLE as DURABLE_REDIS
from tests.servers.redis_server import RedisServer

ROW = "x" * 1_000
RAW_COMMITS = 3
BARS = {"sqlite": 2.2, "postgres": 3.0, "redis": 2.5}
"""The most that a step with one tool may cost, in units of three raw commits."""
TOOLS_BAR = 1.25

Commit = Callable[[], Awaitable[object]]


@asynccontextmanager
async def raw_sqlite(folder: Path) -> AsyncIterator[Commit]:
    database = sqlite3.connect(folder / "raw.db", check_same_thread=False, isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    database.execute("CREATE TABLE row (id INTEGER PRIMARY KEY, text TEXT)")
    yield lambda: asyncio.to_thread(database.execute, "INSERT INTO row (text) VALUES (?)", (ROW,))
    database.close()


@asynccontextmanager
async def raw_postgres(url: str) -> AsyncIterator[Commit]:
    connection = await asyncpg.connect(url)
    await connection.execute("CREATE TABLE raw_row (id BIGSERIAL PRIMARY KEY, text TEXT)")
    yield lambda: connection.execute("INSERT INTO raw_row (text) VALUES ($1)", ROW)
    await connection.close()


@asynccontextmanager
async def raw_redis(url: str) -> AsyncIterator[Commit]:
    client = Redis.from_url(url)
    yield lambda: client.rpush("raw", ROW)
    await client.aclose()


async def compare(name: str, stores: Stores, commit: Commit, steps: int, rounds: int) -> None:
    """Measure in turns, print medians and ratios."""
    ours: dict[int, list[float]] = {1: [], 3: []}
    raw: list[float] = []
    await with_executor(stores, f"{name}-warm-up", steps, 1, usage=True)
    for number in range(rounds):
        for tools, times in ours.items():
            times.append(median(await with_executor(stores, f"{name}-{number}-{tools}", steps, tools, usage=True)))
        began = perf_counter()
        for _ in range(steps * RAW_COMMITS):
            await commit()
        raw.append((perf_counter() - began) / steps)
    over = median(one / bare for one, bare in zip(ours[1], raw, strict=True))
    more = median(three / one for three, one in zip(ours[3], ours[1], strict=True))
    print(
        f"{name:9} step {median(ours[1]) * 1e3:6.2f} ms, three raw commits {median(raw) * 1e3:6.2f} ms: "
        f"{over:4.2f} times (bar {BARS[name]}); three tools over one: {more:4.2f} (bar {TOOLS_BAR})",
        flush=True,
    )


async def run(steps: int, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        async with open_stores(f"sqlite:{folder / 'ours.db'}") as stores, raw_sqlite(folder) as commit:
            await compare("sqlite", stores, commit, steps, rounds)
        with PostgresServer(options=DURABLE_POSTGRES) as postgres:
            async with open_stores(postgres.url) as stores, raw_postgres(postgres.url) as commit:
                await compare("postgres", stores, commit, steps, rounds)
        with RedisServer(options=DURABLE_REDIS) as redis:
            async with open_stores(redis.url) as stores, raw_redis(redis.url) as commit:
                await compare("redis", stores, commit, steps, rounds)


def against_peers(steps: int, rounds: int) -> None:
    """Print a step of every framework whose environment exists."""
    with PostgresServer(options=DURABLE_POSTGRES) as postgres:
        costs = step_costs(available(), postgres.url, steps=steps, rounds=rounds)
    for cost in costs:
        ours = cost.milliseconds[OURS]
        others = ", ".join(
            f"{name} {ms:.2f} (ours is {ours / ms:.2f} of it)" for name, ms in cost.milliseconds.items() if name != OURS
        )
        where = cost.database or "no database"
        print(f"{cost.tools} tool(s), {where:11}: {OURS} {ours:.2f} ms; {others or 'no other framework is installed'}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="./dev bench steps", description=__doc__)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args()
    print(f"load average {os.getloadavg()[0]:.1f}")
    asyncio.run(run(given.steps, given.rounds))
    against_peers(given.steps, max(1, given.rounds // 5))


if __name__ == "__main__":
    main()
