"""32 sessions that commit at once on one SQLite store, against a hand-written transaction for every commit.

    python -m benchmarks.concurrent_sessions

Durability is the same on both sides: `synchronous=FULL`, an acknowledged commit is on the disk. The hand-written loop
has the file for itself and never waits for anybody; ours serves all sessions from one event loop, and batches that come
in while the disk is busy share the next transaction. Both sides take turns, a slice of the workload each.
"""

from __future__ import annotations

import asyncio
import sys
from itertools import islice
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter_ns

from benchmarks import machine
from benchmarks.by_hand import SqliteByHand, grow_log
from benchmarks.pairing import Paired, Report
from benchmarks.steps import OurSession, Step, steps
from helix_agents.backends.sqlite.state_store import SqliteStateStore

SESSIONS = 32
SLICE = 4
"""Steps that each session makes in a turn; the hand-written loop makes as many commits in its turn."""

SLICES = 15


class Ours:
    """All sessions as tasks of one event loop on one store."""

    def __init__(self, store: SqliteStateStore, sessions: list[OurSession]) -> None:
        self.store = store
        self.sessions = sessions
        self.commit_ns: list[float] = []

    async def one(self, session: OurSession, part: list[Step]) -> None:
        for step in part:
            start = perf_counter_ns()
            await session.commit(step)
            self.commit_ns.append(perf_counter_ns() - start)

    async def turn(self, part: list[Step]) -> float:
        """Seconds for the commits of a slice. What the tools wrote is staged before, off the clock."""
        for step in part:
            await asyncio.gather(*(session.stage(step, session.writes_of(step)) for session in self.sessions))
        start = perf_counter_ns()
        await asyncio.gather(*(self.one(session, part) for session in self.sessions))
        return perf_counter_ns() - start

    async def whole_steps(self, part: list[Step]) -> float:
        """Seconds for a slice with its staging, which is as durable as the commits."""

        async def one(session: OurSession) -> None:
            for step in part:
                await session.whole_step(step)

        start = perf_counter_ns()
        await asyncio.gather(*map(one, self.sessions))
        return perf_counter_ns() - start


class ByHand:
    """The same sessions and steps, one transaction for each commit; twice, to see the error of the measurement."""

    def __init__(self, stores: dict[str, SqliteByHand], session_ids: list[str]) -> None:
        self.stores = stores
        self.session_ids = session_ids

    def turn(self, part: list[Step]) -> dict[str, float]:
        taken = dict.fromkeys(self.stores, 0.0)
        for step in part:
            for session_id in self.session_ids:
                for name, store in self.stores.items():
                    start = perf_counter_ns()
                    store.commit(session_id, step, step.number)
                    taken[name] += perf_counter_ns() - start
        return taken


async def measure(report: Report, folder: Path) -> None:
    names = [f"session-{number:04d}" for number in range(SESSIONS)]
    store = SqliteStateStore(folder / "ours.db")
    ours = Ours(store, [await OurSession(store, name).create() for name in names])
    raw = {name: SqliteByHand(folder / f"{name}.db") for name in ("by hand", "by hand again")}
    for each in raw.values():
        for name in names:
            each.create(name)
    for path in ("ours", *raw):
        grow_log(folder / f"{path}.db")
    hand = ByHand(raw, names)
    samples: dict[str, list[float]] = {name: [] for name in ("ours", *raw)}
    every = iter(steps((2 * SLICES + 1) * SLICE))
    for number in range(SLICES + 1):
        part = list(islice(every, SLICE))
        turns = {"ours": await ours.turn(part), **hand.turn(part)}
        if number == 0:
            ours.commit_ns.clear()  # the first slice warms up
            continue
        for name, taken in turns.items():
            samples[name].append(taken)
    whole_steps = [await ours.whole_steps(list(islice(every, SLICE))) for _ in range(SLICES)]
    await store.close()
    for each in raw.values():
        each.close()
    show(report, Paired(samples), ours.commit_ns, whole_steps)
    print(f"       a sync of this disk takes {machine.sync_micros(folder):.0f} us; the longer, the more sharing pays")


def show(report: Report, paired: Paired, commit_ns: list[float], whole_steps: list[float]) -> None:
    def rate(name: str) -> float:
        return SESSIONS * SLICE / paired.median_ns(name) * 1e9

    report.line(f"{SESSIONS} sessions: commit rate, times by hand", paired.ratio("by hand", "ours"), at_least=3.0)
    report.self_check("by hand", paired, "by hand", "by hand again")
    latency = Paired({"commit": commit_ns})
    print(
        f"       {rate('ours'):,.0f} commits a second, by hand {rate('by hand'):,.0f}; commit p50 "
        f"{latency.median_ns('commit') / 1e6:.1f} ms, p99 {latency.quantile_ns('commit', 0.99) / 1e6:.1f} ms"
    )
    steps_rate = SESSIONS * SLICE / median(whole_steps) * 1e9
    print(f"       {steps_rate:,.0f} steps a second with their staging, two durable writes each")


def main() -> int:
    print(machine.describe())
    report = Report()
    with TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as folder:
        asyncio.run(measure(report, Path(folder)))
    return report.exit_code()


if __name__ == "__main__":
    sys.exit(main())
