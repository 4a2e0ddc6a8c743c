"""The measurements. Each function returns plain data for the page, and takes its sizes, so that a test can be quick."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from statistics import median

import msgspec

from benchmarks import listing
from benchmarks.all.contestants import Contestant, ask, in_turns
from benchmarks.server_streams import delay, deliveries
from helix_agents import Stores, open_stores

CHUNKS = 200


class StepCost(msgspec.Struct):
    """Milliseconds of a step, by framework."""

    tools: int
    stored: bool
    milliseconds: dict[str, float]


class Growth(msgspec.Struct):
    """One session of many steps in SQLite, by framework."""

    steps: int
    kilobytes: dict[str, float]
    late_step_ms: dict[str, float]
    """The median of the last tenth of the steps."""
    resume_ms: dict[str, float]
    """From opening the database in a new process to the model's call for the next turn."""


class Readers(msgspec.Struct):
    """Readers of one stream in one process."""

    readers: int
    per_second: dict[str, float]
    """Deliveries a second, by backend."""


class Sse(msgspec.Struct):
    """Clients of one server process."""

    clients: int
    per_second: float
    bare_per_second: float


class Listing(msgspec.Struct):
    """A keyset page of sessions."""

    sessions: int
    page_ms: dict[str, float]


class Figures(msgspec.Struct):
    """All that is published."""

    machine: str
    date: str
    versions: dict[str, str]
    steps: list[StepCost] = []
    growth: list[Growth] = []
    readers: list[Readers] = []
    sse: list[Sse] = []
    sse_delay_ms: tuple[float, float] = (0.0, 0.0)
    listing: list[Listing] = []


def step_costs(contestants: Sequence[Contestant], *, steps: int, rounds: int) -> list[StepCost]:
    """Measure a step with one and three tools, without and with a database."""
    found = []
    for stored in (False, True):
        for tools in (1, 3):
            taking_part = [each for each in contestants if each.stores or not stored]
            found.append(StepCost(tools, stored, _stepping(taking_part, tools, steps, rounds, stored=stored)))
    return found


def _stepping(
    contestants: Sequence[Contestant], tools: int, steps: int, rounds: int, *, stored: bool
) -> dict[str, float]:
    if not stored:
        return in_turns(contestants, rounds, tools=tools, steps=steps)
    samples: dict[str, list[float]] = {each.title: [] for each in contestants}
    for number in range(rounds):
        for each in contestants[number % len(contestants) :] + contestants[: number % len(contestants)]:  # type: ignore[operator]
            with tempfile.TemporaryDirectory() as folder:
                figures = ask(each, tools=tools, steps=steps, database=str(Path(folder) / "x.db"))
            samples[each.title].append(median(figures["step_ms"]))
    return {title: median(values) for title, values in samples.items()}


def growth(contestants: Sequence[Contestant], sizes: Sequence[int]) -> list[Growth]:
    """Measure sessions of many steps: bytes, the cost of late steps, and continuing in a new process."""
    found = []
    for steps in sizes:
        row = Growth(steps, {}, {}, {})
        for each in [each for each in contestants if each.stores]:
            with tempfile.TemporaryDirectory() as folder:
                database = Path(folder) / "x.db"
                figures = ask(each, tools=1, steps=steps, database=str(database))
                row.late_step_ms[each.title] = median(figures["step_ms"][-max(1, steps // 10) :])
                row.kilobytes[each.title] = sum(file.stat().st_size for file in Path(folder).iterdir()) / 1000
                again = [ask(each, tools=1, steps=0, database=str(database), resume=True) for _ in range(3)]
                row.resume_ms[each.title] = median(figures["first_call_ms"] for figures in again)
        found.append(row)
    return found


async def readers(sizes: Sequence[int], urls: dict[str, str]) -> list[Readers]:
    """Measure how quickly one stream reaches many readers in a process."""
    numbers = count()
    found = []
    for size in sizes:
        row = Readers(size, {})
        for name, url in urls.items():
            async with open_stores(url) as stores:
                row.per_second[name] = await _deliveries(stores, f"stream-{next(numbers)}", size)
        found.append(row)
    return found


async def _deliveries(stores: Stores, stream_id: str, size: int) -> float:
    async with await stores.streams.create_writer(stream_id, "r", "a") as writer:
        await writer.write({"type": "text_delta", "delta": "first"})
        await writer.flush()
        opened = [await stores.streams.create_reader(stream_id) for _ in range(size)]

        async def read(reader: object) -> int:
            return len([chunk async for chunk in reader])  # type: ignore[attr-defined]

        reading = [asyncio.create_task(read(reader)) for reader in opened]
        started = time.perf_counter()
        for _ in range(CHUNKS):
            await writer.write({"type": "text_delta", "delta": "some words of a reply"})
        await writer.flush()
        await stores.streams.end_stream(stream_id)
        counts = await asyncio.gather(*reading)
    assert set(counts) == {CHUNKS + 1}, "a chunk was lost or doubled"
    return size * CHUNKS / (time.perf_counter() - started)


async def sse(sizes: Sequence[int], events: int) -> list[Sse]:
    """Measure clients of one server, beside a bare app that sends the same bytes."""
    return [Sse(size, await deliveries("ours", size, events), await deliveries("bare", size, events)) for size in sizes]


async def sse_delay() -> tuple[float, float]:
    """Measure the delay of a chunk from `write` to a client: median and 99th percentile, in milliseconds."""
    return await delay()


async def pages(sizes: Sequence[int], folder: Path, *, rounds: int) -> list[Listing]:
    """Measure a page of sessions among more and more of them, on SQLite."""
    found = []
    for size in sizes:
        store = await listing.filled(folder / f"{size}.db", size)
        row = Listing(size, {})
        for name in ("no filter", "user", "tag"):
            wanted = listing.FILTERS[name]
            first = await store.list_sessions(**wanted, limit=listing.PAGE, count=False)
            taken = []
            for _ in range(rounds):
                started = time.perf_counter()
                await store.list_sessions(**wanted, limit=listing.PAGE, cursor=first.next_cursor, count=False)
                taken.append((time.perf_counter() - started) * 1000)
            row.page_ms[name] = median(taken)
        await store.close()
        found.append(row)
    return found
