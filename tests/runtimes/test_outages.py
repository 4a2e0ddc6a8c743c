"""The store is unavailable during runs, for longer than a lease and any retry limit: all runs finish."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from dbos import DBOSConfig
from temporalio.client import Client

from helix_agents import Agent, AgentExecutor, ScriptedLLM, Stores, ToolContext, open_stores, tool
from helix_agents.errors import StoreUnavailable
from helix_agents.executor import RunHandle, WorkerPool
from helix_agents.llm.scripted import Call
from helix_agents.runtimes.dbos import DBOSRuntime
from helix_agents.runtimes.temporal import TemporalRuntime
from tests.servers.postgres import PostgresServer
from tests.servers.process import ServerProcess, children_of
from tests.servers.redis_server import RedisServer
from tests.servers.temporal import TemporalServer

STEPS = 5
SESSIONS = 4
LEASE_SECONDS = 1.5
LIMIT_SECONDS = 120
AWAY_SHORTLY, AWAY_LONG = 2.0, 10.0

Submit = Callable[..., Any]
Opener = Callable[[AgentExecutor], AbstractAsyncContextManager[Submit]]


class Crew:
    """Agents whose runs report when they are in the middle."""

    def __init__(self, *, steps: int = STEPS, step_seconds: float = 0.1) -> None:
        self.steps = steps
        self.in_the_middle = asyncio.Event()
        self.done: Counter[tuple[str, int]] = Counter()

        @tool
        async def work(n: int, ctx: ToolContext) -> str:
            """Work."""
            self.done[ctx.session_id, n] += 1
            if n == steps // 2:
                self.in_the_middle.set()
            await asyncio.sleep(step_seconds)
            ctx.update_state(lambda draft: draft["done"].append(n))
            return f"did {n}"

        self.agent = Agent("worker", tools=[work], state={"done": []})

    def executor(self, stores: Stores) -> AgentExecutor:
        script = ScriptedLLM([*([Call("work", {"n": n})] for n in range(self.steps)), "Done."])
        return AgentExecutor(stores, script, agents=[self.agent], lease_seconds=LEASE_SECONDS)


@asynccontextmanager
async def by_pool(executor: AgentExecutor) -> AsyncIterator[Submit]:
    async with WorkerPool(executor):
        yield executor.submit


@asynccontextmanager
async def by_dbos(executor: AgentExecutor, url: str) -> AsyncIterator[Submit]:
    config: DBOSConfig = {"name": "tests", "system_database_url": url, "console_log_level": "CRITICAL"}
    async with DBOSRuntime(executor, config) as runtime:
        yield runtime.submit


@asynccontextmanager
async def by_temporal(executor: AgentExecutor, address: str, queue: str) -> AsyncIterator[Submit]:
    async with TemporalRuntime(executor, await Client.connect(address), task_queue=queue) as runtime:
        yield runtime.submit


@pytest.fixture(params=["pool", "dbos", "temporal"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    """Return a function that makes this process work for an engine and yields how to submit to it."""
    if request.param == "pool":
        return by_pool
    if request.param == "dbos":
        return lambda executor: by_dbos(executor, f"sqlite:///{tmp_path / 'dbos.db'}")
    address = request.getfixturevalue("temporal_server").address
    return lambda executor: by_temporal(executor, address, str(tmp_path))


async def away(server: ServerProcess, seconds: float, how: str) -> None:
    """Let a server respond to no request for a while."""
    if how == "killed":
        await asyncio.to_thread(server.kill9)
        await asyncio.sleep(seconds)
        await asyncio.to_thread(server.start)
        return
    family = [server.pid, *children_of(server.pid)]
    for pid in family:
        os.kill(pid, signal.SIGSTOP)
    await asyncio.sleep(seconds)
    for pid in family:
        os.kill(pid, signal.SIGCONT)


async def completed(stores: Stores, handle: RunHandle) -> None:
    """Wait until a session and its run have ended, whatever the store raises until then."""
    while True:
        try:
            state = await stores.state.load_state(handle.session_id)
            run = await stores.state.get_current_run(handle.session_id)
            assert state is not None
            assert run is not None
            assert state.status in ("active", "completed"), (state.status, state.error)
            if state.status == "completed" and run.status != "running":
                return
        except StoreUnavailable:
            pass
        await asyncio.sleep(0.05)


async def expect_all_done(stores: Stores, handles: list[RunHandle], *, steps: int = STEPS) -> None:
    for handle in handles:
        await completed(stores, handle)
        state = await stores.state.load_state(handle.session_id)
        assert state is not None
        assert state.custom_state == {"done": list(range(steps))}
        roles = [message["role"] for message in (await stores.state.get_messages(handle.session_id)).items]
        assert roles == ["user", *["assistant", "tool"] * steps, "assistant"]
        statuses = [run.status for run in await stores.state.list_runs(handle.session_id)]
        assert (statuses[-1], "running" in statuses) == ("completed", False)
        told = [stored.chunk for stored in await stores.streams.get_all_chunks(handle.session_id)]
        committed = [chunk["step_count"] for chunk in told if chunk["type"] == "step_committed"]
        assert committed == list(range(1, steps + 2))
        assert told[-1]["type"] == "output"


async def ride_out(opened: Opener, server: ServerProcess, url: str, seconds: float, how: str) -> None:
    crew = Crew()
    async with asyncio.timeout(LIMIT_SECONDS), open_stores(url) as stores, crew.executor(stores) as executor:
        async with opened(executor) as submit:
            handles = [await submit(crew.agent, "Go", session_id=f"s{n}") for n in range(SESSIONS)]
            await crew.in_the_middle.wait()
            await away(server, seconds, how)
            await expect_all_done(stores, handles)
            await expect_all_done(stores, [await submit(crew.agent, "Go", session_id="afterwards")])


def outages(short: str) -> list[Any]:
    """For how long, and how: one of them in every run of the suite, all that last longer than any patience if asked."""
    long = [pytest.param(AWAY_LONG, how, id=f"{how}-for-long", marks=pytest.mark.soak) for how in ("killed", "frozen")]
    return [pytest.param(AWAY_SHORTLY, short, id=f"{short}-shortly"), *long]


@pytest.mark.soak  # Postgres covers the short form: there an unavailable store is detected immediately
@pytest.mark.parametrize(("seconds", "how"), outages("frozen"))
async def test_redis_is_away(opened: Opener, private_redis: RedisServer, seconds: float, how: str) -> None:
    await ride_out(opened, private_redis, private_redis.url, seconds, how)


@pytest.mark.parametrize(("seconds", "how"), outages("killed"))
async def test_postgres_is_away(opened: Opener, private_postgres: PostgresServer, seconds: float, how: str) -> None:
    await ride_out(opened, private_postgres, private_postgres.url, seconds, how)


@pytest.mark.parametrize(("seconds", "how"), outages("frozen"))
async def test_postgres_is_away_and_dbos_is_on_it(private_postgres: PostgresServer, seconds: float, how: str) -> None:
    await ride_out(
        lambda executor: by_dbos(executor, private_postgres.url), private_postgres, private_postgres.url, seconds, how
    )


@pytest.mark.parametrize(("seconds", "how"), outages("frozen"))
async def test_temporal_is_away(tmp_path: Path, seconds: float, how: str) -> None:
    with TemporalServer() as server:
        await ride_out(
            lambda executor: by_temporal(executor, server.address, str(tmp_path)),
            server,
            f"sqlite:{tmp_path / 'agents.db'}",
            seconds,
            how,
        )


async def test_a_lease_that_is_shorter_than_a_step(opened: Opener, tmp_path: Path) -> None:
    """The worker renews its lease: no other takes over the run, although others constantly poll for lost ones."""
    crew = Crew(steps=1, step_seconds=2.5 * LEASE_SECONDS)
    url = f"sqlite:{tmp_path / 'agents.db'}"
    async with asyncio.timeout(LIMIT_SECONDS), open_stores(url) as stores, open_stores(url) as others:
        async with crew.executor(stores) as executor, crew.executor(others) as rival:
            async with opened(executor) as submit, WorkerPool(rival):
                handles = [await submit(crew.agent, "Go", session_id=f"s{n}") for n in range(SESSIONS)]
                await expect_all_done(stores, handles, steps=1)
        assert set(crew.done.values()) == {1}
        for handle in handles:
            assert len(await stores.state.list_runs(handle.session_id)) == 1
