"""One session of many steps: commit, growth, bytes on disk and loading, against hand-written storage.

    python -m benchmarks.session_workload

Timed is the commit that ends a step; staging comes before it, as in a real run, and is reported. Both databases are at
`synchronous=FULL` with write-ahead logs of full size. The hand-written one commits on the calling thread; ours never
blocks the event loop, so it pays for the way to its worker thread and back. Loads are on a thread for both.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks import machine
from benchmarks.by_hand import DictByHand, SqliteByHand, grow_log
from benchmarks.langgraph_saver import LangGraphSession, why_not
from benchmarks.pairing import Paired, Report, pair_async
from benchmarks.turns import HandCommit, Run, commits_in_turns, together
from benchmarks.workload import OurSession, Step, in_turns, steps
from helix_agents.backends.inmemory.state_store import InMemoryStateStore
from helix_agents.backends.sqlite.state_store import SqliteStateStore

SIZES = {50: 8, 200: 3, 1_000: 1}
"""Steps of a session, and how many sessions of that length are measured."""

SESSION = "session-0001"
MESSAGES_A_STEP = 3
WHOLE_STATE = "whole state by hand"


def by_hand(store: SqliteByHand | DictByHand) -> HandCommit:
    async def commit(step: Step) -> None:
        store.commit(SESSION, step, step.number)

    return commit


async def sqlite_commits(folder: Path, count: int, number: int) -> Run:
    store = SqliteStateStore(folder / f"ours-{count}-{number}.db")
    ours = await OurSession(store, SESSION).create()
    raw = {name: SqliteByHand(folder / f"{name}-{count}-{number}.db") for name in ("by hand", "by hand again")}
    for each in raw.values():
        each.create(SESSION)
    for name in ("ours", *raw):
        grow_log(folder / f"{name}-{count}-{number}.db")
    run = await commits_in_turns(ours, {name: by_hand(each) for name, each in raw.items()}, count)
    await store.close()
    for each in raw.values():
        each.close()
    return run


async def memory_commits(count: int) -> Run:
    ours = await OurSession(InMemoryStateStore(), SESSION).create()
    raw = {"by hand": DictByHand(), "by hand again": DictByHand(), WHOLE_STATE: DictByHand(whole=True)}
    for each in raw.values():
        each.create(SESSION)
    return await commits_in_turns(ours, {name: by_hand(each) for name, each in raw.items()}, count)


def report_commits(report: Report, what: str, runs: list[Run]) -> None:
    paired, staged = together(runs)
    report.line(f"{what}: commit, times by hand", paired.ratio("ours", "by hand"), at_most=2.0)
    late = median([each.commits.growth("ours", "by hand") for each in runs])
    report.line(f"{what}: late steps against early", late, at_most=1.6)
    report.self_check(what, paired, "by hand", "by hand again")
    print(
        f"       commit p50 {paired.median_ns('ours') / 1000:.0f} us, p99 {paired.quantile_ns('ours', 0.99) / 1000:.0f}"
        f" us; by hand p50 {paired.median_ns('by hand') / 1000:.0f} us; stage p50 {median(staged) / 1000:.0f} us"
    )
    if WHOLE_STATE in paired.samples:
        times, micros = paired.ratio("ours", WHOLE_STATE), paired.median_ns(WHOLE_STATE) / 1000
        print(f"       against a dictionary that can answer what the state was ({micros:.0f} us): {times:.2f} times")


async def bytes_on_disk(report: Report, folder: Path, count: int) -> None:
    """What a session adds to the file, after closing. The empty tables of all stores are there before the first one."""
    path, raw_path = folder / f"bytes-{count}.db", folder / f"bytes-by-hand-{count}.db"
    empty = SqliteStateStore(path, synchronous="OFF")
    await empty.session_exists(SESSION)
    await empty.close()
    schema_bytes = path.stat().st_size
    store, raw = SqliteStateStore(path, synchronous="OFF"), SqliteByHand(raw_path, synchronous="OFF")
    ours = await OurSession(store, SESSION).create()
    raw.create(SESSION)
    logical = 0
    for step in steps(count):
        logical += step.logical_bytes
        await ours.whole_step(step)
        raw.commit(SESSION, step, step.number)
    await store.close()
    raw.close()
    size = path.stat().st_size
    report.line(f"{count} steps: bytes on disk, times logical", (size - schema_bytes) / logical, at_most=1.5)
    print(
        f"       {size:,} bytes in all ({size / logical:.2f}), {schema_bytes:,} of them empty tables; "
        f"logical {logical:,}; by hand {raw_path.stat().st_size:,} ({raw_path.stat().st_size / logical:.2f})"
    )


async def loading(report: Report, folder: Path, count: int, last: int | None) -> None:
    """The session, its state and its last messages (None: all), from the files of the bytes run.

    By hand on a thread: no server may wait for a file in its event loop.
    """
    store = SqliteStateStore(folder / f"bytes-{count}.db")
    raw = SqliteByHand(folder / f"bytes-by-hand-{count}.db")
    wanted = count * MESSAGES_A_STEP if last is None else last

    async def ours() -> None:
        read = await store.load_conversation(SESSION, last=last)
        assert read is not None
        assert (len(read.session.custom_state["items"]), len(read.messages)) == (count, wanted)

    def by_hand() -> Callable[[], Awaitable[object]]:
        async def load() -> None:
            _, _, items, messages = await asyncio.to_thread(raw.load, SESSION, wanted)
            assert (len(items), len(messages)) == (count, wanted)

        return load

    contestants = {"ours": ours, "by hand": by_hand(), "by hand again": by_hand()}
    paired = await pair_async(contestants, rounds=60 if last is None else 400, warmup=20)
    what = f"{count} steps: loading, {'all' if last is None else last} messages"
    report.line(f"{what}, times by hand", paired.ratio("ours", "by hand"), at_most=1.5 if last is None else 1.3)
    report.self_check(what, paired, "by hand", "by hand again")
    print(f"       {paired.median_ns('ours') / 1000:.0f} us, by hand {paired.median_ns('by hand') / 1000:.0f} us")
    await store.close()
    raw.close()


async def for_scale(folder: Path, count: int) -> None:
    """LangGraph's SQLite saver on the same steps, as it comes. No bound: this tells where the figures above stand."""
    if reason := why_not():
        print(f"SKIPPED  LangGraph's SQLite saver: {reason}")
        return
    store = SqliteStateStore(folder / "scale-ours.db")
    ours = await OurSession(store, SESSION).create()
    theirs = LangGraphSession(folder / "scale-langgraph.db", SESSION)
    samples, logical = await in_turns(ours, theirs.commit, count)
    await store.close()
    theirs.close()
    late = Paired({name: values[-count // 5 :] for name, values in samples.items()})
    size = (folder / "scale-langgraph.db").stat().st_size
    times, micros = late.ratio("theirs", "ours"), late.median_ns("theirs") / 1000
    print(
        f"for scale: LangGraph's SQLite saver as it comes, the last fifth of {count} steps: {micros:.0f} us a commit,"
    )
    print(f"       {times:.1f} times ours; {size / logical:.0f} times the logical bytes")


async def run(report: Report, folder: Path) -> None:
    for count, sessions in SIZES.items():
        runs = [await sqlite_commits(folder, count, number) for number in range(sessions)]
        report_commits(report, f"SQLite, {count} steps", runs)
    for count, sessions in SIZES.items():
        runs = [await memory_commits(count) for _ in range(4 * sessions)]
        report_commits(report, f"memory, {count} steps", runs)
    for count in SIZES:
        await bytes_on_disk(report, folder, count)
        for last in (50, None):
            await loading(report, folder, count, last)
    await for_scale(folder, 300)


def main() -> int:
    print(machine.describe())
    report = Report()
    with TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as folder:
        asyncio.run(run(report, Path(folder)))
    return report.exit_code()


if __name__ == "__main__":
    sys.exit(main())
