"""What an idle pool costs that watches over many schedules.

    python -m benchmarks.schedules [url] [--schedules 10000] [--idle 20]

None of them is due while it is measured. The pool is a process of its own (`benchmarks.workers`); its processor time is
compared with that of a pool without schedules, on the same stores.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path

from benchmarks import machine
from benchmarks.workers import executing, pool_process, used_seconds
from helix_agents.backends.registry import open_stores

DAY_SECONDS = 86_400
AT_ONCE = 32


async def idle_share(url: str, seconds: float) -> float:
    """Return the share of a core that a pool uses while nothing is due."""
    async with pool_process(url) as child:
        await asyncio.sleep(1)  # its start is not what is measured
        before, began = await used_seconds(child), time.perf_counter()
        await asyncio.sleep(seconds)
        return (await used_seconds(child) - before) / (time.perf_counter() - began)


async def add_schedules(url: str, count: int) -> float:
    """Store so many schedules, the first one due in a day; return how long each took, in milliseconds."""
    began = time.perf_counter()
    async with open_stores(url) as stores, executing(stores) as executor:
        for first in range(0, count, AT_ONCE):
            numbers = range(first, min(first + AT_ONCE, count))
            await asyncio.gather(*(executor.schedule("bench", "Go", every_seconds=DAY_SECONDS + n) for n in numbers))
    return (time.perf_counter() - began) * 1000 / count


async def main(url: str, count: int, seconds: float) -> None:
    """Measure a pool without schedules, then one with them."""
    print(machine.describe())
    print(f"idle      {await idle_share(url, seconds):.2%} of a core without schedules, over {seconds:g} s")
    print(f"schedule  {await add_schedules(url, count):.2f} ms each, {AT_ONCE} at a time")
    print(f"idle      {await idle_share(url, seconds):.2%} of a core with {count:,} (goal: under 1 %)")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", nargs="?")
    parser.add_argument("--schedules", type=int, default=10_000)
    parser.add_argument("--idle", type=float, default=20)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        asyncio.run(main(given.url or f"sqlite:{Path(place) / 'schedules.db'}", given.schedules, given.idle))
