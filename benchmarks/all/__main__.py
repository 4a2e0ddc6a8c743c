"""Every published figure: step cost beside other frameworks, long sessions, readers, SSE, listing, resume.

./dev bench all            about half an hour on a quiet machine; writes docs/benchmarks.md and its plots
./dev bench all --quick    minutes, small sizes, into a temporary folder: to see that it works
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import tempfile
from pathlib import Path

import msgspec

from benchmarks import machine
from benchmarks.all import figures as measure
from benchmarks.all.contestants import available, versions
from benchmarks.all.figures import Figures
from benchmarks.all.page import write
from tests.servers.postgres import PostgresServer
from tests.servers.redis_server import RedisServer

DOCS = Path(__file__).parents[2] / "docs"


class Sizes(msgspec.Struct):
    """How much is measured."""

    steps: int = 100
    rounds: int = 7
    sessions: tuple[int, ...] = (50, 300, 1000)
    readers: tuple[int, ...] = (1, 10, 100, 1000)
    clients: tuple[int, ...] = (1, 10, 100, 1000)
    events: int = 100
    listed: tuple[int, ...] = (1_000, 10_000, 100_000, 1_000_000)
    page_rounds: int = 200


QUICK = Sizes(10, 1, (10, 30), (1, 10), (1, 10), 20, (1_000, 10_000), 20)


def run(sizes: Sizes) -> Figures:
    """Measure everything, one after the other."""
    contestants = available()
    today = datetime.datetime.now(datetime.UTC).date()
    found = Figures(machine.describe(), str(today), versions(contestants))
    print("steps ...", flush=True)
    found.steps = measure.step_costs(contestants, steps=sizes.steps, rounds=sizes.rounds)
    print("long sessions ...", flush=True)
    found.growth = measure.growth(contestants, sizes.sessions)
    print("readers ...", flush=True)
    with tempfile.TemporaryDirectory() as folder, PostgresServer() as postgres, RedisServer() as redis:
        urls = {"memory": "memory:", "sqlite": f"sqlite:{folder}/r.db", "postgres": postgres.url, "redis": redis.url}
        found.readers = asyncio.run(measure.readers(sizes.readers, urls))
    print("server-sent events ...", flush=True)
    found.sse = asyncio.run(measure.sse(sizes.clients, sizes.events))
    found.sse_delay_ms = asyncio.run(measure.sse_delay())
    print("listing ...", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        found.listing = asyncio.run(measure.pages(sizes.listed, Path(folder), rounds=sizes.page_rounds))
    return found


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(prog="./dev bench all")
    parser.add_argument("--quick", action="store_true", help="small sizes, into a temporary folder")
    quick = parser.parse_args().quick
    docs = Path(tempfile.mkdtemp()) if quick else DOCS
    (docs / "images").mkdir(exist_ok=True)
    write(run(QUICK if quick else Sizes()), docs)
    print(f"Written to {docs / 'benchmarks.md'}")


if __name__ == "__main__":
    main()
