"""A storm: processes that share sessions are killed and frozen, their connections cut, and replies lost.

At the end every session must equal an undisturbed one: the same conversations, states and streams,
nothing staged, nothing resumable. The seed decides which faults occur, not what they hit. The long form is
`HELIX_STORM_SECONDS=600 pytest -m soak tests/executor/test_storm.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import secrets
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from helix_agents import open_stores
from helix_agents.backends.registry import Stores
from helix_agents.conformance.executor.cast import make_author, make_llm
from helix_agents.conformance.executor.harness import executing, family
from helix_agents.conformance.executor.play import (
    Remains,
    answer_all,
    begin_or_go_on,
    expect_same_remains,
    is_over,
    remains_of,
)
from helix_agents.conformance.executor.view import View, follow
from tests.executor.storm_worker import WINDOW
from tests.servers.fixtures import started
from tests.servers.postgres import PostgresServer
from tests.servers.process import HOST
from tests.servers.proxy import Proxy
from tests.servers.redis_server import VALKEY_9, RedisServer

WORKERS = 3
SHORT_SECONDS = 8.0
LONG_SECONDS = float(os.environ.get("HELIX_STORM_SECONDS", "120"))
SETTLE_SECONDS = 240.0
FEWEST_SESSIONS = 2

ProxyTo = Callable[[int], Awaitable[Proxy]]


class Storm:
    """Injects faults into some processes and their connections to the server."""

    def __init__(self, url: str, folder: Path, proxy: Proxy | None, seed: int) -> None:
        self._proxy = proxy
        self._rng = random.Random(seed)
        self._workers: list[int] = []
        path = os.pathsep.join(entry or os.curdir for entry in sys.path)
        command = [sys.executable, "-m", "tests.executor.storm_worker", url, str(folder)]
        self._nursery = subprocess.Popen(
            command, env={**os.environ, "PYTHONPATH": path}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.blows = 0

    def start(self) -> None:
        """Start the processes, without faults."""
        self._workers = [self._fork() for _ in range(WORKERS)]

    def end(self) -> None:
        """End all processes."""
        for worker in self._workers:
            _send(worker, signal.SIGKILL)
        self._nursery.communicate()

    async def rage(self, seconds: float) -> None:
        """Inject faults for a while; afterwards all processes run and connections work."""
        deadline = asyncio.get_running_loop().time() + seconds
        blows = [self._kill, self._kill, self._freeze, *([self._cut, self._away, self._lose] if self._proxy else [])]
        while asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(self._rng.uniform(0.05, 0.7))
            await self._rng.choice(blows)()
            self.blows += 1
        if self._proxy is not None:
            self._proxy.heal()

    def _fork(self) -> int:
        assert self._nursery.stdin is not None
        assert self._nursery.stdout is not None
        self._nursery.stdin.write("\n")
        self._nursery.stdin.flush()
        return int(self._nursery.stdout.readline())

    async def _kill(self) -> None:
        place = self._rng.randrange(WORKERS)
        _send(self._workers[place], signal.SIGKILL)
        self._workers[place] = self._fork()

    async def _freeze(self) -> None:
        worker = self._rng.choice(self._workers)
        _send(worker, signal.SIGSTOP)
        await asyncio.sleep(self._rng.uniform(0.2, 2.5))
        _send(worker, signal.SIGCONT)

    async def _cut(self) -> None:
        assert self._proxy is not None
        self._proxy.cut()

    async def _away(self) -> None:
        assert self._proxy is not None
        self._proxy.cut(refuse=True)
        await asyncio.sleep(self._rng.uniform(0.1, 1.0))
        self._proxy.heal()

    async def _lose(self) -> None:
        assert self._proxy is not None
        self._proxy.lose_reply(after=self._rng.randrange(20))


def _send(process: int, what: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, what)


async def _undisturbed(stores: Stores) -> Remains:
    view = View()
    reading = asyncio.create_task(follow(stores.streams, "calm", view))
    async with executing(stores, make_llm(), agents=[make_author(lambda line: None)]) as executor:
        while not await is_over(stores, "calm"):
            await answer_all(executor, "calm")
            await begin_or_go_on(executor, "calm")
    await reading
    return await remains_of(stores, "calm", view)


async def _begun(stores: Stores) -> list[str]:
    begun: list[str] = []
    missing = number = 0
    while missing <= WINDOW:
        session_id = f"storm-{number}"
        number += 1
        if await stores.state.session_exists(session_id):
            begun.append(session_id)
            missing = 0
        else:
            missing += 1
    return begun


async def _settled(stores: Stores) -> list[str]:
    """Wait until all sessions have ended; return their names."""
    async with asyncio.timeout(SETTLE_SECONDS):
        while True:
            begun = await _begun(stores)
            if all([await is_over(stores, session_id) for session_id in begun]):
                return begun
            await asyncio.sleep(0.2)


async def _judge(stores: Stores, session_id: str, expected: Remains) -> None:
    ended = await stores.state.load_state(session_id)
    tries = [(run.status, run.attempt, run.resumes) for run in await stores.state.list_runs(session_id)]
    assert ended is not None
    why = f"{ended.failure_reason}, {ended.error}; status, attempt and resumes of its runs: {tries}"
    assert ended.status == "completed", f"{session_id} ended as {ended.status}: {why}"
    view = View()
    await follow(stores.streams, session_id, view)
    expect_same_remains(await remains_of(stores, session_id, view), expected, session_id)
    async with executing(stores, make_llm()) as executor:
        for member in await family(stores, session_id):
            runs = await stores.state.list_runs(member)
            assert [run.run_id for run in runs if run.status == "running"] == [], f"{member}: runs without an end"
            assert not (await executor.can_resume(member)).can_resume, f"{member} is over, but can be resumed"
            assert await stores.state.discard_staging(member) == 0, f"{member}: staged rows were left behind"


def _faults(folder: Path) -> list[str]:
    return [file.read_text() for file in folder.glob("fault-*")]


async def _storm(url: str, folder: Path, *, seconds: float, stormy_url: str | None = None, proxy: Proxy | None) -> None:
    seed = int(os.environ.get("HELIX_STORM_SEED", "0")) or secrets.randbits(32)
    print(f"seed {seed}")
    async with open_stores(url) as stores:
        expected = await _undisturbed(stores)
        storm = Storm(stormy_url or url, folder, proxy, seed)
        storm.start()
        try:
            await storm.rage(seconds)
            (folder / "calm").touch()
            sessions = await _settled(stores)
        finally:
            storm.end()
        faults = _faults(folder)
        print(f"{storm.blows} blows, {len(sessions)} sessions, {len(faults)} faults")
        assert faults == [], "\n".join(faults)
        assert len(sessions) >= FEWEST_SESSIONS, "hardly anything ran: the storm shows nothing"
        for session_id in sessions:
            await _judge(stores, session_id, expected)


LENGTHS = [SHORT_SECONDS, pytest.param(LONG_SECONDS, marks=pytest.mark.soak)]


@pytest.fixture
def valkey() -> Iterator[RedisServer]:
    with contextlib.ExitStack() as stack:
        yield started(stack, lambda: RedisServer(VALKEY_9))


@pytest.mark.parametrize("seconds", LENGTHS)
async def test_a_storm_over_sqlite(seconds: float, tmp_path: Path) -> None:
    await _storm(f"sqlite:{tmp_path}/storm.db?synchronous=OFF", tmp_path, seconds=seconds, proxy=None)


@pytest.mark.parametrize("seconds", LENGTHS)
async def test_a_storm_over_postgres(
    seconds: float, tmp_path: Path, postgres_server: PostgresServer, postgres_url: str, proxy_to: ProxyTo
) -> None:
    proxy = await proxy_to(postgres_server.port)
    stormy_url = postgres_url.replace(f"{HOST}:{postgres_server.port}", f"{HOST}:{proxy.port}")
    assert stormy_url != postgres_url
    await _storm(postgres_url, tmp_path, seconds=seconds, stormy_url=stormy_url, proxy=proxy)


@pytest.mark.parametrize("seconds", LENGTHS[1:])
async def test_a_storm_over_redis(seconds: float, tmp_path: Path, valkey: RedisServer, proxy_to: ProxyTo) -> None:
    proxy = await proxy_to(valkey.port)
    stormy_url = valkey.url.replace(f"{HOST}:{valkey.port}", f"{HOST}:{proxy.port}")
    assert stormy_url != valkey.url
    await _storm(valkey.url, tmp_path, seconds=seconds, stormy_url=stormy_url, proxy=proxy)
