"""A step that changes little of a big custom state: it must cost what it changes, not what is there.

    python -m benchmarks.large_state

The session workload on SQLite at `synchronous=FULL`, twice in turns: once beside nothing, once beside 5 MB of custom
state that no step touches (a big object, a list of 20,000 items, many keys). Each step also sets one member of a key.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks import machine
from benchmarks.by_hand import grow_log
from benchmarks.pairing import Paired, Report, pair_async
from benchmarks.workload import START, OurSession, Step, steps
from helix_agents.backends.inmemory.state_store import InMemoryStateStore
from helix_agents.backends.sqlite.state_store import SqliteStateStore
from helix_agents.codec import encode
from helix_agents.state import StepWrites
from helix_agents.stores.state.contract import StateStore

STEPS = 300
WARMUP = 5


def big_state() -> dict[str, Any]:
    """About 5 MB of JSON in the shapes that real states have."""
    return {
        **START,
        "settings": {"step": 0},
        "documents": {f"document-{number}": "text " * 400 for number in range(1_000)},
        "events": [{"number": number, "text": "event " * 10} for number in range(20_000)],
        **{f"note-{number}": "note " * 30 for number in range(5_000)},
    }


class Session(OurSession):
    """The workload, with one member of one key set by each step."""

    def writes_of(self, step: Step) -> StepWrites:
        def change(draft: Any) -> None:
            draft.increment("counter")
            draft["items"].append(step.item)
            draft["settings"]["step"] = step.number

        self.tracker.reset_tracking()
        self.tracker.update(change)
        return self.tracker.get_step_writes()


async def in_turns(stores: dict[str, StateStore]) -> tuple[Paired, Paired]:
    """The commits of both sessions, and their stagings."""
    small: dict[str, Any] = {**START, "settings": {"step": 0}}
    starts = {"small": small, "large": big_state(), "small again": small}
    sessions = {name: await Session(store, "session", start=starts[name]).create() for name, store in stores.items()}
    every = steps(STEPS)
    now: list[Step] = []
    staged: dict[str, list[float]] = {name: [] for name in sessions}

    async def prepare() -> None:
        now[:] = [next(every)]
        taken = await pair_async({name: staging(session) for name, session in sessions.items()}, rounds=1, warmup=0)
        for name, values in taken.samples.items():
            staged[name] += values

    def staging(session: OurSession) -> Any:
        writes = session.writes_of(now[0])
        return lambda: session.stage(now[0], writes)

    def committing(session: OurSession) -> Any:
        return lambda: session.commit(now[0])

    contestants = {name: committing(session) for name, session in sessions.items()}
    paired = await pair_async(contestants, rounds=STEPS - WARMUP, warmup=WARMUP, before=prepare)
    return paired, Paired(staged)


def report_times(report: Report, what: str, commits: Paired, stagings: Paired) -> None:
    report.line(f"{what}: commit beside 5 MB, times small", commits.ratio("large", "small"), at_most=1.5)
    report.self_check(f"{what}: small", commits, "small", "small again")
    for name, taken in (("commit", commits), ("staging", stagings)):
        print(f"       {name} {taken.median_ns('large') / 1000:.0f} us, small {taken.median_ns('small') / 1000:.0f} us")


async def on_sqlite(report: Report, folder: Path) -> None:
    stores = {name: SqliteStateStore(folder / f"{name}.db") for name in ("small", "large", "small again")}
    for name, store in stores.items():
        await store.session_exists("session")
        grow_log(folder / f"{name}.db")
    commits, stagings = await in_turns({**stores})
    report_times(report, "SQLite", commits, stagings)
    for store in stores.values():
        await store.close()


async def on_memory(report: Report) -> None:
    stores: dict[str, StateStore] = {name: InMemoryStateStore() for name in ("small", "large", "small again")}
    report_times(report, "memory", *await in_turns(stores))


async def bytes_per_step(report: Report, folder: Path) -> None:
    """Growth of the closed file over the steps alone: the state that was there before is not counted."""
    growth = {}
    for name, start in (("small", {**START, "settings": {"step": 0}}), ("large", big_state())):
        path = folder / f"bytes-{name}.db"
        store = SqliteStateStore(path, synchronous="OFF")
        session = await Session(store, "session", start=start).create()
        await store.close()
        before = path.stat().st_size
        session.store = store = SqliteStateStore(path, synchronous="OFF")
        for step in steps(STEPS):
            await session.whole_step(step)
        await store.close()
        growth[name] = (path.stat().st_size - before) / STEPS
    report.line("SQLite: bytes a step beside 5 MB, times small", growth["large"] / growth["small"], at_most=1.5)
    print(f"       {growth['large']:,.0f} bytes a step, small {growth['small']:,.0f}")


async def run(report: Report, folder: Path) -> None:
    await on_sqlite(report, folder)
    await bytes_per_step(report, folder)
    await on_memory(report)


def main() -> int:
    print(machine.describe())
    print(f"custom state of {len(encode(big_state())):,} bytes")
    report = Report()
    with TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as folder:
        asyncio.run(run(report, Path(folder)))
    return report.exit_code()


if __name__ == "__main__":
    sys.exit(main())
