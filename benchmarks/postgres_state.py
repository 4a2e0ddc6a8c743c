"""The state store on Postgres against one hand-written statement: `python -m benchmarks.postgres_state [--million]`.

A private server with the settings it comes with, durable. Timed is the commit that ends a step; staging comes before
it, as in a real run, and is reported. The hand-written statement has a connection of its own, ours a pool as anybody
would make it. What others offer runs on the same steps, where it is installed (`postgres_others.py`). `--million` fills
a table with 1,000,000 sessions for the listing, which takes a minute.
"""

from __future__ import annotations

import asyncio
import sys
from statistics import median
from time import perf_counter_ns

import asyncpg

from benchmarks import machine, postgres_by_hand
from benchmarks.pairing import Paired, Report, pair_async
from benchmarks.postgres_others import OTHERS, Other
from benchmarks.turns import HandCommit, Run, commits_in_turns, together
from benchmarks.workload import OurSession, in_turns, steps
from helix_agents.backends.postgres.state_store import PostgresStateStore
from tests.servers.postgres import DURABLE, PostgresServer
from tests.servers.process import HOST
from tests.servers.proxy import Proxy

SIZES = {50: 6, 200: 2, 1_000: 1}
WARMUP = 10
POOL = 20
ROUNDS = 9
SCALE = "scale"


async def round_trips(report: Report, server: PostgresServer) -> None:
    async with Proxy(server.port) as proxy:
        url = f"postgresql://postgres@{HOST}:{proxy.port}/postgres?sslmode=disable"
        async with asyncpg.create_pool(url, min_size=2, max_size=2) as pool:
            store = PostgresStateStore(pool)
            ours = await OurSession(store, "counted").create()
            counts = []
            for step in steps(20):
                await ours.stage(step, ours.writes_of(step))
                before = proxy.round_trips
                await ours.commit(step)
                counts.append(proxy.round_trips - before)
            report.line("round trips of a step commit, counted by a proxy", median(counts), at_most=1)
            await store.close()


async def session(url: str, pool: asyncpg.Pool, count: int, number: int) -> Run:
    # A connection for each: a server process that had two turns of three would find its caches warmer than the others.
    raw = {each: await asyncpg.connect(url) for each in ("by hand", "by hand again")}
    store = PostgresStateStore(pool)
    name = f"session-{count}-{number}"
    ours = await OurSession(store, name).create()
    for each, connection in raw.items():
        await postgres_by_hand.create(connection, f"{name} {each}")

    def by_hand(each: str) -> HandCommit:
        return lambda step: postgres_by_hand.commit(raw[each], f"{name} {each}", step, step.number)

    run = await commits_in_turns(ours, {each: by_hand(each) for each in raw}, count, warmup=WARMUP)
    await store.close()
    for connection in raw.values():
        await connection.close()
    return run


async def commits(report: Report, url: str, label: str, *, bounds: bool) -> None:
    async with asyncpg.create_pool(url, min_size=2, max_size=4) as pool:
        for count, times in SIZES.items():
            runs = [await session(url, pool, count, number) for number in range(times)]
            paired, staged = together(runs)
            what = f"{label}, {count} steps"
            ratio = paired.ratio("ours", "by hand")
            report.line(f"{what}: commit, times by hand", ratio, at_most=1.6 if bounds else None)
            if count == 1_000:
                report.line(
                    f"{what}: late against early",
                    runs[0].commits.growth("ours", "by hand"),
                    at_most=1.25 if bounds else None,
                )
                report.self_check(what, paired, "by hand", "by hand again")
            print(
                f"       commit p50 {paired.median_ns('ours') / 1000:.0f} us, by hand "
                f"{paired.median_ns('by hand') / 1000:.0f} us; stage p50 {median(staged) / 1000:.0f} us"
            )


async def size_of(connection: asyncpg.Connection) -> int:
    tables = await connection.fetch("SELECT tablename FROM pg_tables WHERE tablename LIKE '\\_\\_agents%'")
    for row in tables:
        await connection.execute(f"VACUUM {row['tablename']}")
    sizes = [
        await connection.fetchval("SELECT pg_total_relation_size($1::text::regclass)", row["tablename"])
        for row in tables
    ]
    return sum(sizes)


async def bytes_on_disk(report: Report, url: str, count: int) -> None:
    connection = await asyncpg.connect(url)
    async with asyncpg.create_pool(url, min_size=1, max_size=2) as pool:
        store = PostgresStateStore(pool)
        await store.session_exists("nobody")
        before = await size_of(connection)
        ours = await OurSession(store, "session-of-bytes").create()
        logical = 0
        for step in steps(count):
            logical += step.logical_bytes
            await ours.whole_step(step)
        report.line(
            f"{count} steps: bytes on disk, times logical", (await size_of(connection) - before) / logical, at_most=1.5
        )
        await store.close()
    await connection.close()


async def crowd(pool: asyncpg.Pool, sessions: int, rounds: int, label: str) -> tuple[float, float]:
    """Commits a second of ours and by hand, all sessions at once through one store and one pool."""
    store = PostgresStateStore(pool)
    names = [f"{label}-{number:04}" for number in range(sessions)]
    ours = [await OurSession(store, name, {"counter": 0, "items": []}).create() for name in names]
    for each in ours:
        await postgres_by_hand.create(pool, each.session_id)
    rates: dict[str, list[float]] = {"ours": [], "by hand": []}
    for step in steps(rounds):
        await asyncio.gather(*(each.stage(step, each.writes_of(step)) for each in ours))
        start = perf_counter_ns()
        await asyncio.gather(*(each.commit(step) for each in ours))
        between = perf_counter_ns()
        await asyncio.gather(*(postgres_by_hand.commit(pool, each.session_id, step, step.number) for each in ours))
        if step.number > 2:
            rates["ours"].append(sessions / (between - start) * 1e9)
            rates["by hand"].append(sessions / (perf_counter_ns() - between) * 1e9)
    await store.close()
    return median(rates["ours"]), median(rates["by hand"])


async def concurrency(report: Report, url: str) -> None:
    async with asyncpg.create_pool(url, min_size=POOL, max_size=POOL) as pool:
        few, few_raw = await crowd(pool, 20, ROUNDS * 5, "few")
        many, many_raw = await crowd(pool, 200, ROUNDS, "many")
    report.line("20 sessions at once: commits a second", few)
    report.line("200 sessions at once: commits a second", many)
    report.line("20 sessions at once: of the rate by hand", few / few_raw)
    report.line("200 sessions at once: of the rate by hand", many / many_raw, at_least=0.6)
    report.line("200 sessions against 20: commits a second", many / few, at_least=1.0)


async def listing(report: Report, url: str, small: int, large: int) -> None:
    connection = await asyncpg.connect(url)
    async with asyncpg.create_pool(url, min_size=1, max_size=2) as pool:
        store = PostgresStateStore(pool)
        await store.session_exists("nobody")
        times: dict[int, Paired] = {}
        filled = 0
        for size in (small, large):
            await connection.execute(
                "INSERT INTO __agents_states "
                "(session_id, agent_type, stream_id, status, user_id, created_at, updated_at)"
                " SELECT 'listed-' || n, 'agent-' || n % 10, 'listed-' || n, CASE WHEN n % 3 = 0 THEN 'active' ELSE "
                "'completed' END, 'user-' || n % 100, n, n FROM generate_series($1::bigint, $2::bigint) AS n",
                filled + 1,
                size,
            )
            await connection.execute("VACUUM ANALYZE __agents_states")
            filled = size
            cursor = (await store.list_sessions(status="active", limit=50, count=False)).next_cursor

            async def page(cursor: str | None = cursor) -> None:
                found = await store.list_sessions(status="active", limit=50, cursor=cursor, count=False)
                assert len(found.items) == 50

            times[size] = await pair_async({"page": page}, rounds=300, warmup=20)
        ratio = times[large].median_ns("page") / times[small].median_ns("page")
        report.line(f"a page of {large:,} sessions, times one of {small:,}", ratio, at_most=1.5)
        await store.close()
    await connection.close()


async def for_scale(url: str, kind: type[Other], count: int) -> None:
    """Another project's store on the same steps, alternating with ours. No bound: only for comparison."""
    if reason := kind.why_not():
        print(f"SKIPPED  {kind.name}: {reason}")
        return
    connection = await asyncpg.connect(url)
    await connection.execute(f"DROP DATABASE IF EXISTS {SCALE}")
    await connection.execute(f"CREATE DATABASE {SCALE}")
    await connection.close()
    url = url.rpartition("/")[0] + f"/{SCALE}"
    theirs = kind()
    await theirs.open(url, "scale")
    async with asyncpg.create_pool(url, min_size=2, max_size=4) as pool:
        store = PostgresStateStore(pool)
        ours = await OurSession(store, "scale").create()
        samples, logical = await in_turns(ours, theirs.commit, count)
        size = sum([await pool.fetchval(f"SELECT pg_total_relation_size('{table}')") for table in theirs.tables])
        await store.close()
    await theirs.close()
    paired = Paired({name: values[WARMUP:] for name, values in samples.items()})
    late = Paired({name: values[-count // 5 :] for name, values in samples.items()})
    print(f"for scale: {kind.name} as it comes, {count} steps: p50 {paired.median_ns('theirs') / 1000:.0f} us a step,")
    print(
        f"       {paired.ratio('theirs', 'ours'):.1f} times ours, {late.ratio('theirs', 'ours'):.1f} times in the last "
        f"fifth; {size / logical:.1f} times the logical bytes"
    )


async def grow_log(connection: asyncpg.Connection) -> None:
    """Let the server have segments of its log to use again, as after its first minutes: syncing a file that grows costs
    more than a sync that overwrites, and would hide in early steps what shows in late ones.
    """
    for _ in range(2):
        for _ in range(160):
            await connection.execute("SELECT pg_logical_emit_message(false, 'filler', repeat('x', 1000000))")
        await connection.execute("CHECKPOINT")


async def measure(report: Report, server: PostgresServer, *, durable: bool, million: bool) -> None:
    connection = await asyncpg.connect(server.url)
    await connection.execute(postgres_by_hand.SCHEMA)
    await grow_log(connection)
    await connection.close()
    if not durable:
        await commits(report, server.url, "without waiting for the disk", bounds=False)
        return
    await round_trips(report, server)
    await commits(report, server.url, "durable", bounds=True)
    await concurrency(report, server.url)
    await bytes_on_disk(report, server.url, 1_000)
    for kind in OTHERS:
        await for_scale(server.url, kind, 300)
    await listing(report, server.url, 10_000, 1_000_000 if million else 100_000)


def main(arguments: list[str]) -> int:
    print(machine.describe())
    report = Report()
    for durable in (True, False):
        with PostgresServer(options=(*DURABLE, *(() if durable else ("synchronous_commit=off",)))) as server:
            asyncio.run(measure(report, server, durable=durable, million="--million" in arguments))
    return report.exit_code()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
