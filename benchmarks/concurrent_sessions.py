"""32 sessions that commit at once on one SQLite store, against a hand-written transaction for every commit.

    python -m benchmarks.concurrent_sessions

Durability is the same on both sides: `synchronous=FULL`, an acknowledged commit is on the disk. Both serve 32 tasks of
one event loop, which never waits for the disk: by hand, a thread of its own makes one transaction after the other;
ours lets batches that come in while the disk is busy share the next transaction. All take turns, a slice of the
workload each.

For scale, the same transactions in a plain loop that blocks its event loop and so serves no one else in the meantime.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter_ns

from benchmarks import machine
from benchmarks.by_hand import SqliteByHand, grow_log
from benchmarks.pairing import Paired, Report, pair_async
from benchmarks.workload import OurSession, Step, steps
from helix_agents.backends.sqlite.state_store import SqliteStateStore

NAMES = [f"session-{number:04d}" for number in range(32)]
SLICE = 8
"""Steps that each session makes in a turn."""

SLICES = 24


class Ours:
    """All sessions as tasks of one event loop on one store."""

    def __init__(self, store: SqliteStateStore, sessions: list[OurSession]) -> None:
        self.store = store
        self.sessions = sessions
        self.commit_ns: list[float] = []

    async def stage(self, part: list[Step]) -> None:
        """What the tools wrote is staged before, off the clock."""
        for step in part:
            await asyncio.gather(*(session.stage(step, session.writes_of(step)) for session in self.sessions))

    async def one(self, session: OurSession, part: list[Step]) -> None:
        for step in part:
            start = perf_counter_ns()
            await session.commit(step)
            self.commit_ns.append(perf_counter_ns() - start)

    async def turn(self, part: list[Step]) -> None:
        await asyncio.gather(*(self.one(session, part) for session in self.sessions))

    async def whole_steps(self, part: list[Step]) -> float:
        """Nanoseconds for a slice with its staging, which is as durable as the commits."""

        async def one(session: OurSession) -> None:
            for step in part:
                await session.whole_step(step)

        start = perf_counter_ns()
        await asyncio.gather(*map(one, self.sessions))
        return perf_counter_ns() - start


class ByHand:
    """The same sessions as tasks of the same event loop, one transaction for each commit on a thread for the file."""

    def __init__(self, path: Path) -> None:
        self.thread = ThreadPoolExecutor(1)
        self.store = self.thread.submit(SqliteByHand, path).result()
        for name in NAMES:
            self.thread.submit(self.store.create, name).result()

    async def turn(self, part: list[Step]) -> None:
        loop = asyncio.get_running_loop()

        async def one(name: str) -> None:
            for step in part:
                await loop.run_in_executor(self.thread, self.store.commit, name, step, step.number)

        await asyncio.gather(*map(one, NAMES))

    def close(self) -> None:
        self.thread.submit(self.store.close).result()
        self.thread.shutdown()


class Blocking:
    """The same transactions in a plain loop on the calling thread."""

    def __init__(self, path: Path) -> None:
        self.store = SqliteByHand(path)
        for name in NAMES:
            self.store.create(name)

    async def turn(self, part: list[Step]) -> None:
        for step in part:
            for name in NAMES:
                self.store.commit(name, step, step.number)

    def close(self) -> None:
        self.store.close()


async def measure(report: Report, folder: Path) -> None:
    store = SqliteStateStore(folder / "ours.db")
    ours = Ours(store, [await OurSession(store, name).create() for name in NAMES])
    raw: dict[str, ByHand | Blocking] = {
        "by hand": ByHand(folder / "by hand.db"),
        "by hand again": ByHand(folder / "by hand again.db"),
        "blocking": Blocking(folder / "blocking.db"),
    }
    for name in ("ours", *raw):
        grow_log(folder / f"{name}.db")
    every = iter(steps((2 * SLICES + 10) * SLICE))
    part: list[Step] = []

    async def next_part() -> None:
        part[:] = islice(every, SLICE)
        await ours.stage(part)

    def turn(contestant: Ours | ByHand | Blocking) -> Callable[[], Awaitable[None]]:
        return lambda: contestant.turn(part)

    turns = {name: turn(each) for name, each in ({"ours": ours} | raw).items()}
    paired = await pair_async(turns, rounds=SLICES, before=next_part)
    whole_steps = [await ours.whole_steps(list(islice(every, SLICE))) for _ in range(SLICES // 2)]
    await store.close()
    for each in raw.values():
        each.close()
    show(report, paired, ours.commit_ns, whole_steps)
    print(f"       a sync of this disk takes {machine.sync_micros(folder):.0f} us; the longer, the more sharing pays")


def show(report: Report, paired: Paired, commit_ns: list[float], whole_steps: list[float]) -> None:
    commits = len(NAMES) * SLICE

    def rate(name: str) -> float:
        return commits / paired.median_ns(name) * 1e9

    report.line(f"{len(NAMES)} sessions: commit rate, times by hand", paired.ratio("by hand", "ours"), at_least=3.0)
    report.self_check("by hand", paired, "by hand", "by hand again")
    latency = Paired({"commit": commit_ns})
    print(
        f"       {rate('ours'):,.0f} commits a second, by hand {rate('by hand'):,.0f}; commit p50 "
        f"{latency.median_ns('commit') / 1e6:.1f} ms, p99 {latency.quantile_ns('commit', 0.99) / 1e6:.1f} ms"
    )
    print(
        f"       a loop that blocks and serves nobody else: {rate('blocking'):,.0f} a second; "
        f"ours {paired.ratio('blocking', 'ours'):.2f} times that"
    )
    steps_rate = commits / median(whole_steps) * 1e9
    print(f"       {steps_rate:,.0f} steps a second with their staging, two durable writes each")


def main() -> int:
    print(machine.describe())
    report = Report()
    with TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as folder:
        asyncio.run(measure(report, Path(folder)))
    return report.exit_code()


if __name__ == "__main__":
    sys.exit(main())
