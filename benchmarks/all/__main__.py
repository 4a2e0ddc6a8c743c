"""Every published figure: step cost beside other frameworks, long sessions, readers, SSE, listing, resume.

./dev bench all                   about twenty minutes on a quiet machine; writes docs/benchmarks.md and its plots
./dev bench all --quick           minutes, small sizes, into a temporary folder: to see that it works
./dev bench all --part listing    one part at full size, into a temporary folder

A part that fails is named on the page, and the exit code is 1; the others are measured and written all the same.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import resource
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from benchmarks import machine
from benchmarks.all import figures as measure
from benchmarks.all.contestants import Contestant, available, scratch, versions
from benchmarks.all.figures import Figures
from benchmarks.all.page import write
from tests.servers.postgres import DURABLE as DURABLE_POSTGRES
from tests.servers.postgres import PostgresServer
from tests.servers.redis_server import DURABLE as DURABLE_REDIS
from tests.servers.redis_server import RedisServer

DOCS = Path(__file__).parents[2] / "docs"


class Sizes(msgspec.Struct):
    """How much is measured."""

    steps: int = 100
    rounds: int = 7
    sessions: tuple[int, ...] = (50, 300, 1000)
    session_rounds: int = 3
    readers: tuple[int, ...] = (1, 10, 100, 1000)
    clients: tuple[int, ...] = (1, 10, 100, 1000)
    deliveries: int = 100_000
    stream_rounds: int = 5
    listed: tuple[int, ...] = (1_000, 10_000, 100_000, 1_000_000)
    page_rounds: int = 200


QUICK = Sizes(10, 1, (10, 30), 1, (1, 10), (1, 10), 200, 1, (1_000, 10_000), 20)


def _steps(found: Figures, contestants: Sequence[Contestant], sizes: Sizes) -> None:
    with PostgresServer(options=DURABLE_POSTGRES) as postgres:
        found.steps = measure.step_costs(contestants, postgres.url, steps=sizes.steps, rounds=sizes.rounds)


def _sessions(found: Figures, contestants: Sequence[Contestant], sizes: Sizes) -> None:
    found.growth = measure.growth(contestants, sizes.sessions, rounds=sizes.session_rounds)


def _readers(found: Figures, contestants: Sequence[Contestant], sizes: Sizes) -> None:
    with (
        scratch() as folder,
        PostgresServer(options=DURABLE_POSTGRES) as postgres,
        RedisServer(options=DURABLE_REDIS) as redis,
    ):
        urls = {"memory": "memory:", "sqlite": f"sqlite:{folder}/r.db", "postgres": postgres.url, "redis": redis.url}
        found.versions |= asyncio.run(measure.server_versions(urls))
        found.readers = asyncio.run(measure.readers(sizes.readers, urls, rounds=sizes.stream_rounds))


def _sse(found: Figures, contestants: Sequence[Contestant], sizes: Sizes) -> None:
    found.sse = asyncio.run(measure.sse(sizes.clients, sizes.deliveries, rounds=sizes.stream_rounds))
    found.sse_delay_ms = asyncio.run(measure.sse_delay())


def _listing(found: Figures, contestants: Sequence[Contestant], sizes: Sizes) -> None:
    with scratch() as folder:
        found.listing = asyncio.run(measure.pages(sizes.listed, folder, rounds=sizes.page_rounds))


Part = Callable[[Figures, Sequence[Contestant], Sizes], None]
PARTS: Mapping[str, Part] = {
    "steps": _steps,
    "sessions": _sessions,
    "readers": _readers,
    "sse": _sse,
    "listing": _listing,
}


def run(sizes: Sizes, parts: Mapping[str, Part] = PARTS) -> Figures:
    """Measure the parts, one after the other; a part that fails does not cost the others."""
    contestants = available()
    today = datetime.datetime.now(datetime.UTC).date()
    found = Figures(machine.describe(), str(today), versions(contestants))
    with scratch() as folder:
        found.sync_micros = machine.sync_micros(folder)
    for name, part in parts.items():
        started = time.perf_counter()
        print(f"{name} ...", end=" ", flush=True)
        try:
            part(found, contestants, sizes)
        except Exception:
            found.failed.append(name)
            traceback.print_exc()
        print(f"{time.perf_counter() - started:.0f} s", flush=True)
    return found


def main(arguments: list[str]) -> int:
    """Measure and write; return the exit code."""
    parser = argparse.ArgumentParser(prog="./dev bench all")
    parser.add_argument("--quick", action="store_true", help="small sizes, into a temporary folder")
    parser.add_argument("--part", choices=PARTS, help="only this part, into a temporary folder")
    given = parser.parse_args(arguments)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a thousand clients are two thousand sockets
    docs = Path(tempfile.mkdtemp()) if given.quick or given.part else DOCS
    (docs / "images").mkdir(exist_ok=True)
    found = run(QUICK if given.quick else Sizes(), {given.part: PARTS[given.part]} if given.part else PARTS)
    write(found, docs)
    print(f"Written to {docs / 'benchmarks.md'}")
    return 1 if found.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
