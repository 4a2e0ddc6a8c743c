"""What a step costs by each engine: plain executor, `Stepper`, pool, DBOS on SQLite and Postgres, Temporal.

    python -m benchmarks.engines [--steps 60] [--rounds 5]

The same steps each time: a model that takes no time and one tool that counts. All engines take turns in every round, so
that the load of the machine meets them alike; the figure is the time from the end of a step to the end of the next.
`processor` is the processor time of this process for a step; servers have theirs.
Stores on SQLite, except where it says Postgres.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from dbos import DBOSConfig
from temporalio.client import Client

from benchmarks import machine
from benchmarks.executor_overhead import ConstantLLM, StepTimes, no_op
from helix_agents.agent import Agent
from helix_agents.backends.registry import Stores, open_stores
from helix_agents.executor import AgentExecutor, Stepper, WorkerPool
from helix_agents.runtimes.dbos import DBOSRuntime
from helix_agents.runtimes.temporal import TemporalRuntime
from tests.servers.postgres import DURABLE, PostgresServer
from tests.servers.temporal import TemporalServer

TOOLS = 1
Go = Callable[[Agent, str], Awaitable[object]]


@contextlib.asynccontextmanager
async def plain(executor: AgentExecutor) -> AsyncIterator[Go]:
    """`execute`."""

    async def go(agent: Agent, session_id: str) -> None:
        await (await executor.execute(agent, "Go", session_id=session_id)).result()

    yield go


@contextlib.asynccontextmanager
async def stepping(executor: AgentExecutor) -> AsyncIterator[Go]:
    """`Stepper`, in one process."""
    stepper = Stepper(executor)

    async def go(agent: Agent, session_id: str) -> None:
        ticket = await stepper.begin(agent, "Go", session_id=session_id)
        while not ticket.done:
            ticket = await stepper.step(agent, ticket)

    yield go


@contextlib.asynccontextmanager
async def pooled(executor: AgentExecutor) -> AsyncIterator[Go]:
    """`WorkerPool`, in one process."""
    async with WorkerPool(executor):

        async def go(agent: Agent, session_id: str) -> None:
            await (await executor.submit(agent, "Go", session_id=session_id)).result()

        yield go


@contextlib.asynccontextmanager
async def by_dbos(executor: AgentExecutor, url: str) -> AsyncIterator[Go]:
    """`DBOSRuntime`."""
    config: DBOSConfig = {"name": "bench", "system_database_url": url, "console_log_level": "CRITICAL"}
    async with DBOSRuntime(executor, config) as runtime:

        async def go(agent: Agent, session_id: str) -> None:
            await (await runtime.submit(agent, "Go", session_id=session_id)).result()

        yield go


@contextlib.asynccontextmanager
async def by_temporal(executor: AgentExecutor, address: str) -> AsyncIterator[Go]:
    """`TemporalRuntime`, worker and submitter in one process."""
    async with TemporalRuntime(executor, await Client.connect(address)) as runtime:

        async def go(agent: Agent, session_id: str) -> None:
            await (await runtime.submit(agent, "Go", session_id=session_id)).result()

        yield go


Engine = Callable[[AgentExecutor], contextlib.AbstractAsyncContextManager[Go]]


async def measure(stores: Stores, engine: Engine, session_id: str, steps: int) -> tuple[list[float], float]:
    """The times of the steps of one run without the first two, and the processor time of each, in milliseconds."""
    times = StepTimes()
    agent = Agent("bench", tools=[no_op], state={"n": 0}, max_steps=steps + 2)
    async with AgentExecutor(stores, ConstantLLM(steps, TOOLS), hooks=[times], agents=[agent]) as executor:
        async with engine(executor) as go:
            busy = time.process_time()
            await go(agent, session_id)
            busy = (time.process_time() - busy) * 1000 / (steps + 1)
    ends = times.ends[1:]
    return [(after - before) * 1000 for before, after in itertools.pairwise(ends)], busy


async def compare(folder: Path, postgres_url: str, address: str, steps: int, rounds: int) -> None:
    """All engines, round by round."""
    async with open_stores(f"sqlite:{folder / 'agents.db'}") as sqlite, open_stores(postgres_url) as postgres:
        engines: list[tuple[str, Stores, Engine]] = [
            ("executor", sqlite, plain),
            ("stepper", sqlite, stepping),
            ("pool", sqlite, pooled),
            ("DBOS on SQLite", sqlite, lambda executor: by_dbos(executor, f"sqlite:///{folder / 'dbos.db'}")),
            ("Temporal", sqlite, lambda executor: by_temporal(executor, address)),
            ("executor, Postgres", postgres, plain),
            ("stepper, Postgres", postgres, stepping),
            ("DBOS on Postgres", postgres, lambda executor: by_dbos(executor, postgres_url)),
        ]
        times: dict[str, list[float]] = {name: [] for name, _, _ in engines}
        medians: dict[str, list[float]] = {name: [] for name, _, _ in engines}
        processor: dict[str, list[float]] = {name: [] for name, _, _ in engines}
        for number in range(rounds + 1):
            for name, stores, engine in engines:
                found, busy = await measure(stores, engine, f"{name}-{number}", steps)
                if number:  # the first round warms up
                    times[name] += found
                    medians[name].append(statistics.median(found))
                    processor[name].append(busy)
    for name, found in times.items():
        base = medians["executor, Postgres" if "Postgres" in name else "executor"]
        more = statistics.median(each - plain_one for each, plain_one in zip(medians[name], base, strict=True))
        ratio = statistics.median(each / plain_one for each, plain_one in zip(medians[name], base, strict=True))
        p95 = sorted(found)[int(len(found) * 0.95)]
        print(f"{name:20} median {statistics.median(found):7.2f} ms   p95 {p95:7.2f} ms   "
              f"{ratio:5.2f} x the executor, {more:+7.2f} ms   "
              f"processor {statistics.median(processor[name]):6.2f} ms")  # fmt: skip
    print("goals: stepper at most 1.35 x, DBOS at most +15 ms")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    print(machine.describe())
    with (
        tempfile.TemporaryDirectory() as place,
        PostgresServer(options=DURABLE) as server,
        TemporalServer() as temporal,
    ):
        asyncio.run(compare(Path(place), server.url, temporal.address, given.steps, given.rounds))
