"""The measurements. Each function returns plain data for the page, and takes its sizes, so that a test can be quick."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from statistics import median
from uuid import uuid4

import asyncpg
import msgspec
from redis.asyncio import Redis

from benchmarks import listing
from benchmarks.all.contestants import POSTGRES, SQLITE, Contestant, ask, in_turns, scratch
from benchmarks.server_streams import delay, deliveries
from helix_agents import Stores, open_stores

CHUNKS = 200
MOST_EVENTS = 1000
"""To each client of a server: few clients get more events, so that starting does not count."""


class StepCost(msgspec.Struct):
    """Milliseconds of a step, by framework."""

    tools: int
    database: str | None
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
    """Deliveries per second, by backend."""


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
    sync_micros: float = 0.0
    steps: list[StepCost] = []
    growth: list[Growth] = []
    readers: list[Readers] = []
    sse: list[Sse] = []
    sse_delay_ms: tuple[float, float] = (0.0, 0.0)
    listing: list[Listing] = []
    failed: list[str] = []
    """The parts that could not be measured."""


def step_costs(contestants: Sequence[Contestant], postgres: str, *, steps: int, rounds: int) -> list[StepCost]:
    """Measure a step with one and three tools, without a database, on SQLite, and on the Postgres server at a URL."""
    return [
        StepCost(tools, database, _stepping(able, tools, steps, rounds, database, postgres))
        for database in (None, SQLITE, POSTGRES)
        if (able := [each for each in contestants if _can_store(each, database)])
        for tools in (1, 3)
    ]


def _can_store(contestant: Contestant, database: str | None) -> bool:
    return not contestant.only_stored if database is None else database in contestant.databases


def _stepping(
    contestants: Sequence[Contestant], tools: int, steps: int, rounds: int, database: str | None, postgres: str
) -> dict[str, float]:
    samples = _Samples()
    for each in in_turns(contestants, rounds):
        with scratch() as folder:
            place = {None: None, SQLITE: str(folder / "x.db"), POSTGRES: postgres}[database]
            figures = ask(each, tools=tools, steps=steps, database=place, session=uuid4().hex)
        samples.add(each.title, median(figures["step_ms"]))
    return samples.medians(contestants)


def growth(contestants: Sequence[Contestant], sizes: Sequence[int], *, rounds: int) -> list[Growth]:
    """Measure sessions of many steps: bytes, the cost of late steps, and continuing in a new process."""
    contestants = [each for each in contestants if not each.only_stored]
    found = []
    for steps in sizes:
        kilobytes, late, resumed = _Samples(), _Samples(), _Samples()
        for each in in_turns(contestants, rounds):
            with scratch() as folder:
                database = str(folder / "x.db")
                figures = ask(each, tools=1, steps=steps, database=database)
                late.add(each.title, median(figures["step_ms"][-max(1, steps // 10) :]))
                kilobytes.add(each.title, sum(file.stat().st_size for file in folder.iterdir()) / 1000)
                again = ask(each, tools=1, steps=0, database=database, resume=True)
                resumed.add(each.title, again["first_call_ms"])
        found.append(Growth(steps, *(samples.medians(contestants) for samples in (kilobytes, late, resumed))))
    return found


class _Samples:
    """Samples by name."""

    def __init__(self) -> None:
        self._by_name: dict[str, list[float]] = {}

    def add(self, name: str, value: float) -> None:
        self._by_name.setdefault(name, []).append(value)

    def medians(self, order: Sequence[Contestant] = ()) -> dict[str, float]:
        """Return the median by name, in the order of the contestants."""
        names = [each.title for each in order] or [*self._by_name]
        return {name: median(self._by_name[name]) for name in names}


async def readers(sizes: Sequence[int], urls: dict[str, str], *, rounds: int) -> list[Readers]:
    """Measure how quickly one stream reaches many readers in a process."""
    numbers = count()
    found = []
    for size in sizes:
        samples = _Samples()
        for _ in range(rounds):
            for name, url in urls.items():
                async with open_stores(url) as stores:
                    samples.add(name, await _deliveries(stores, f"stream-{next(numbers)}", size))
        found.append(Readers(size, samples.medians()))
    return found


async def server_versions(urls: dict[str, str]) -> dict[str, str]:
    """Return the versions of the servers behind the streams."""
    database = await asyncpg.connect(urls["postgres"])
    try:
        postgres = str(await database.fetchval("SHOW server_version"))
    finally:
        await database.close()
    async with Redis.from_url(urls["redis"]) as client:
        info = await client.info("server")
    name, version = ("Valkey", "valkey_version") if "valkey_version" in info else ("Redis", "redis_version")
    return {"Postgres": postgres.split()[0], name: str(info[version])}


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


async def sse(sizes: Sequence[int], deliveries_each: int, *, rounds: int) -> list[Sse]:
    """Measure clients of one server, beside a bare app that sends the same bytes."""
    found = []
    for size in sizes:
        events, samples = min(MOST_EVENTS, deliveries_each // size), _Samples()
        for _ in range(rounds):
            for kind in ("ours", "bare"):
                samples.add(kind, await deliveries(kind, size, events))
        medians = samples.medians()
        found.append(Sse(size, medians["ours"], medians["bare"]))
    return found


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
