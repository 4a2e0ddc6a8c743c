"""How long an interrupt from another process takes to stop a run that is streaming.

    python -m benchmarks.interrupt_latency [url] [--runs 100]

The run is executed by a child process; this one reads its stream, sets the flag and waits for `run_interrupted`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from helix_agents.agent import Agent
from helix_agents.backends.registry import open_stores
from helix_agents.executor import AgentExecutor
from helix_agents.llm import ScriptedLLM

AGENT = Agent("bench")
LLM = ScriptedLLM(["word " * 2000], delay_seconds=0.005, piece=5)


async def work(url: str, runs: int) -> None:
    """The child: one long answer after the other."""
    async with open_stores(url) as stores, AgentExecutor(stores.state, stores.streams, LLM) as executor:
        for number in range(runs):
            await (await executor.execute(AGENT, "Go", session_id=f"s{number}")).result()


async def measure(url: str, runs: int) -> list[float]:
    """The latencies in seconds."""
    latencies = []
    async with open_stores(url) as stores:
        path = os.pathsep.join(entry or os.curdir for entry in sys.path)
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "benchmarks.interrupt_latency", url, "--runs", str(runs), "--work"),
            env={**os.environ, "PYTHONPATH": path},
        )
        async with AgentExecutor(stores.state, stores.streams, LLM) as executor:
            for number in range(runs):
                while (reader := await stores.streams.create_reader(f"s{number}")) is None:  # noqa: ASYNC110
                    await asyncio.sleep(0.005)
                began = 0.0
                async with reader:
                    async for chunk in reader:
                        if chunk["type"] == "text_delta" and not began:
                            began = time.perf_counter()
                            await executor.interrupt(f"s{number}", "measured")
                        if chunk["type"] == "run_interrupted":
                            latencies.append(time.perf_counter() - began)
        await child.wait()
    return latencies


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", nargs="?")
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        asyncio.run(work(given.url, given.runs))
        return
    with tempfile.TemporaryDirectory() as folder:
        found = sorted(asyncio.run(measure(given.url or f"sqlite:{Path(folder) / 'bench.db'}", given.runs)))
    p99 = found[min(len(found) - 1, int(len(found) * 0.99))]
    print(
        f"{len(found)} interrupts: median {statistics.median(found) * 1000:.1f} ms, p99 {p99 * 1000:.1f} ms, ", end=""
    )
    print(f"most {found[-1] * 1000:.1f} ms (goal: p99 at most 250 ms)")


if __name__ == "__main__":
    main()
