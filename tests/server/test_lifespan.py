"""An app is complete under any ASGI server: it opens its executor, recovers lost runs, and ends streams on shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from helix_agents import Agent, AgentExecutor, InvalidArgument, ScriptedLLM, Stores, open_stores
from helix_agents.server import HelixApp, User, create_app
from tests.server.running import LAST_WORDS, PATIENCE_SECONDS, ROOT, execute, result, streaming
from tests.server.test_access import client_of

agent = Agent("a")


@contextlib.asynccontextmanager
async def lived(app: HelixApp) -> AsyncIterator[httpx.AsyncClient]:
    """The app with its lifespan, as a server runs it."""
    async with app.router.lifespan_context(app), client_of(app) as client:
        yield client


def make(stores: Stores) -> AgentExecutor:
    return AgentExecutor(stores, ScriptedLLM(["Hi."] * 9), agents=[agent])


@contextlib.asynccontextmanager
async def opened() -> AsyncIterator[AgentExecutor]:
    async with open_stores("memory:") as stores:
        yield make(stores)


class Factories:
    """Each way to configure an executor; all record that it was closed."""

    def __init__(self, stores: Stores) -> None:
        self.executor = make(stores)

    def context_manager_function(self) -> Any:
        return self.context

    def context_manager(self) -> Any:
        return self.context()

    def function(self) -> Any:
        return lambda: self.executor

    def async_function(self) -> Any:
        async def made() -> AgentExecutor:
            return self.executor

        return made

    @contextlib.asynccontextmanager
    async def context(self) -> AsyncIterator[AgentExecutor]:
        async with self.executor:
            yield self.executor


@pytest.mark.parametrize("kind", ["context_manager_function", "context_manager", "function", "async_function"])
async def test_a_factory_is_opened_and_closed_with_the_app(kind: str) -> None:
    async with open_stores("memory:") as stores:
        factories = Factories(stores)
        app = create_app(getattr(factories, kind)(), authenticate=lambda _: User("ann"))
        async with lived(app) as client:
            assert (await client.get("/agents")).json()["items"][0]["name"] == "a"
            body = {"agent_type": "a", "message": "hi", "session_id": "s"}
            assert (await client.post("/execute", json=body)).status_code == 202
            assert (await client.get("/result/s?wait=10")).json()["output"] == "Hi."
        with pytest.raises(InvalidArgument, match="closed"):
            await factories.executor.execute(agent, "more")


async def test_an_executor_stays_the_callers() -> None:
    async with open_stores("memory:") as stores:
        executor = make(stores)
        async with lived(create_app(executor, authenticate=lambda _: User("ann"))):
            pass
        assert (await executor.run(agent, "hi")).output == "Hi."


@pytest.mark.parametrize("bad", [None, 7, lambda: "nothing", "my_app:app"])
async def test_what_is_not_an_executor_is_rejected(bad: Any) -> None:
    with pytest.raises(InvalidArgument, match="AgentExecutor"):
        async with lived(create_app(bad, authenticate=lambda _: User("ann"))):
            pass


async def test_a_factory_that_fails_fails_the_startup() -> None:
    @contextlib.asynccontextmanager
    async def broken() -> AsyncIterator[AgentExecutor]:
        raise RuntimeError("no database")
        yield

    app = create_app(broken, authenticate=lambda _: User("ann"))
    with pytest.raises(RuntimeError, match="no database"):
        async with lived(app):
            pass


async def lost_run(stores: Stores) -> None:
    """Submit a run that no worker has started."""
    handle = await make(stores).submit(agent, "hi", session_id="lost", user_id="ann")
    assert handle.run_id


@pytest.mark.parametrize("recover", [True, False])
async def test_the_lifespan_recovers_runs_unless_told_not_to(recover: bool) -> None:
    async with open_stores("memory:") as stores, make(stores) as executor:
        await lost_run(stores)
        async with lived(create_app(executor, authenticate=lambda _: User("ann"), recover=recover)) as client:
            status = (await client.get("/result/lost", params={"wait": 30 if recover else 0})).json()["status"]
    assert status == ("completed" if recover else "active")


# -- under uvicorn itself, in a process of its own


@contextlib.contextmanager
def uvicorn(folder: Path, name: str, *, url: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """`uvicorn tests.server.apps:<name>` on a free port."""
    log = folder / f"{name}.log"
    command = [sys.executable, "-m", "uvicorn", f"tests.server.apps:{name}", "--port", "0"]
    environment = {**os.environ, "TEST_URL": url, "PYTHONPATH": str(ROOT)}
    with log.open("wb") as stderr:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=stderr, stderr=stderr)
    try:
        yield process, _address(process, log)
    finally:
        process.kill()
        process.wait(PATIENCE_SECONDS)


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    while "running on http" not in (text := log.read_text()):
        assert process.poll() is None, text
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.05)
    return text.partition("running on ")[2].split()[0]


@pytest.mark.parametrize(("name", "prefix"), [("app", ""), ("mounted", "/agents")])
async def test_plain_uvicorn_stops_at_once_and_hands_its_runs_over(
    tmp_path: Path, sid: str, name: str, prefix: str
) -> None:
    url = f"sqlite:{tmp_path / 'h.db'}"
    options: dict[str, Any] = {"headers": {"Authorization": "Bearer alice-token"}, "timeout": PATIENCE_SECONDS}
    with uvicorn(tmp_path, name, url=url) as (process, address):
        async with httpx.AsyncClient(base_url=address + prefix, **options) as alice:
            await execute(alice, "nap 30", sid)
            async with streaming(alice, f"/stream/{sid}?follow=true") as frames:
                async for frame in frames:
                    if frame.event == "chunk" and frame.data["type"] == "tool_start":
                        break
                process.send_signal(signal.SIGTERM)
                rest = [frame.event async for frame in frames]  # a protocol error here would be a dirty cut
        assert not LAST_WORDS & set(rest)
        await asyncio.to_thread(process.wait, PATIENCE_SECONDS)
    with uvicorn(tmp_path, name, url=url) as (_, address):
        async with httpx.AsyncClient(base_url=address + prefix, **options) as alice:
            await alice.get("/agents")  # a mounted app starts with its first request
            assert (await alice.post(f"/sessions/{sid}/abort", json={"reason": "enough"})).status_code == 202
            assert (await result(alice, sid))["status"] == "failed"
