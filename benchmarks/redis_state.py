"""Sessions on Redis against a hand-written script: `python -m benchmarks.redis_state`.

The server is a private one on this machine, without an append-only file, so that the client and the script are
measured and not the disk. Round trips are counted by a proxy in a run of their own.
"""

from __future__ import annotations

import asyncio
import sys
from statistics import median
from time import perf_counter
from typing import Any

from redis.asyncio import Redis

from benchmarks import machine
from benchmarks.pairing import Report
from benchmarks.redis_by_hand import RedisByHand
from benchmarks.turns import Run, commits_in_turns, together
from benchmarks.workload import OurSession, steps
from helix_agents.backends.redis.sessions.store import RedisStateStore
from helix_agents.state import StepWrites
from tests.servers.proxy import Proxy
from tests.servers.redis_server import VALKEY_9, RedisServer

SIZES = {50: 6, 200: 3, 1_000: 1}
WARMUP = 3
PROCESSES = 16
MERGES = 1_000


async def commits(url: str, count: int, number: int) -> Run:
    client = Redis.from_url(url)
    store = RedisStateStore(client, prefix=f"ours-{count}-{number}")
    ours = await OurSession(store, "session-0001").create()
    names = ("by hand", "by hand again")
    by_hand = {name: await RedisByHand(client, f"{name}-{count}-{number}").create() for name in names}
    run = await commits_in_turns(ours, {name: each.commit for name, each in by_hand.items()}, count)
    await client.aclose()
    return run


async def timing(report: Report, url: str) -> None:
    for count, sessions in SIZES.items():
        runs = [await commits(url, count, number) for number in range(sessions)]
        paired, staged = together(runs)
        what = f"{count} steps"
        report.line(f"{what}: commit, times by hand", paired.ratio("ours", "by hand"), at_most=1.6)
        late = median([each.commits.growth("ours", "by hand") for each in runs])
        report.line(f"{what}: late steps against early", late, at_most=1.25)
        report.self_check(what, paired, "by hand", "by hand again")
        ours, hand = (paired.median_ns(name) / 1000 for name in ("ours", "by hand"))
        print(f"       commit p50 {ours:.0f} us, by hand {hand:.0f} us, stage p50 {median(staged) / 1000:.0f} us")


async def memory(report: Report, url: str) -> None:
    client = Redis.from_url(url)
    for count in SIZES:
        prefix = f"bytes-{count}"
        ours = await OurSession(RedisStateStore(client, prefix=prefix), "session-0001").create()
        logical = 0
        for step in steps(count):
            logical += step.logical_bytes
            await ours.whole_step(step)
        used = 0
        async for key in client.scan_iter(match=f"{prefix}:*", count=1000):
            used += await client.memory_usage(key, samples=0) or 0
        report.line(f"{count} steps: memory, times logical bytes", used / logical, at_most=1.5)
    await client.aclose()


async def round_trips(report: Report, port: int) -> None:
    async with Proxy(port) as proxy:
        client = Redis(port=proxy.port)
        ours = await OurSession(RedisStateStore(client, prefix="counted"), "session-0001").create()
        counted = []
        for step in steps(20):
            await ours.stage(step, ours.writes_of(step))
            before = proxy.round_trips
            await ours.commit(step)
            counted.append(proxy.round_trips - before)
        report.line("round trips of a commit, at most", max(counted[1:]), at_most=1)
        await client.aclose()


async def worker(url: str, number: int) -> None:
    """One of the processes that merge and append at the same time."""
    client = Redis.from_url(url)
    store = RedisStateStore(client, prefix="crowd")
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    for turn in range(MERGES):
        ops: list[dict[str, Any]] = [
            {"kind": "append", "path": ["items"], "items": [f"{number}.{turn}"]},
            {"kind": "increment", "path": ["count"], "by": 1, "value": 0},
        ]
        await store.merge_custom_state("crowd", StepWrites(ops, []))
        await store.append_messages("crowd", [{"role": "user", "content": f"{number}.{turn}"}])
    await client.aclose()


async def crowd(report: Report, url: str) -> None:
    client = Redis.from_url(url)
    store = RedisStateStore(client, prefix="crowd")
    await store.create_session("crowd", agent_type="benchmark", custom_state={"items": [], "count": 0})
    command = [sys.executable, "-m", "benchmarks.redis_state", "worker", url]
    pipes: dict[str, Any] = {"stdin": asyncio.subprocess.PIPE, "stdout": asyncio.subprocess.PIPE}
    crew = [await asyncio.create_subprocess_exec(*command, str(number), **pipes) for number in range(PROCESSES)]
    for each in crew:
        assert each.stdout is not None
        await each.stdout.readline()
    start = perf_counter()
    for each in crew:
        assert each.stdin is not None
        each.stdin.write(b"go\n")
    await asyncio.gather(*(each.communicate() for each in crew))
    seconds = perf_counter() - start
    state = await store.load_state("crowd")
    assert state is not None
    expected = {f"{number}.{turn}" for number in range(PROCESSES) for turn in range(MERGES)}
    messages = (await store.get_messages("crowd", limit=None)).items
    lost = len(expected - set(state.custom_state["items"])) + len(expected - {each["content"] for each in messages})
    doubled = len(state.custom_state["items"]) + len(messages) - 2 * len(expected)
    report.line(f"{PROCESSES} processes x {MERGES:,}: lost or doubled", lost + abs(doubled), at_most=0)
    counted = state.custom_state["count"] - len(expected)
    report.line(f"{PROCESSES} processes x {MERGES:,}: increments lost", abs(counted), at_most=0)
    print(f"       {2 * len(expected) / seconds:,.0f} writes a second on one session")
    await client.aclose()


async def run(report: Report, server: RedisServer) -> None:
    await timing(report, server.url)
    await memory(report, server.url)
    await round_trips(report, server.port)
    await crowd(report, server.url)


def main() -> int:
    print(machine.describe(), VALKEY_9)
    report = Report()
    with RedisServer(VALKEY_9, options=("--appendonly", "no")) as server:
        asyncio.run(run(report, server))
    return report.exit_code()


if __name__ == "__main__":
    if sys.argv[1:2] == ["worker"]:
        asyncio.run(worker(sys.argv[2], int(sys.argv[3])))
        raise SystemExit(0)
    raise SystemExit(main())
