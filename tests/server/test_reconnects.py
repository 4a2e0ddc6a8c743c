"""Clients that come and go while servers die: each sees every stored chunk once, in order."""

from __future__ import annotations

import asyncio
import random
import signal
from pathlib import Path

import httpx
import pytest

from helix_agents.backends.registry import open_stores
from tests.server.running import LAST_WORDS, Running, execute, read_stream, streaming, text_of

DELAY_SECONDS = 0.004
PATIENCE_SECONDS = 1200
"""For the long form on a busy machine; nothing is measured."""


class Fleet:
    """One server after the other on the same stores."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url = url
        self._folder = folder
        self.server = Running(url, folder, DELAY_SECONDS)

    async def kill(self) -> None:
        """Kill the server and start another."""
        await asyncio.to_thread(self.server.stop, signal.SIGKILL)
        self.server = await asyncio.to_thread(Running, self._url, self._folder, DELAY_SECONDS)


async def visit(fleet: Fleet, session_id: str, choose: random.Random, visits: list[int]) -> list[int]:
    """Follow a session to its end, leaving and coming back at random; return the sequences seen."""
    seen: list[int] = []
    while True:
        visits[0] += 1
        stay = choose.randrange(1, 40)
        headers = {"Last-Event-ID": str(seen[-1])} if seen else {}
        try:
            async with fleet.server.client() as client:
                async with streaming(client, f"/stream/{session_id}", headers=headers) as frames:
                    async for frame in frames:
                        if frame.id is not None:
                            seen.append(frame.id)
                            stay -= 1
                        if frame.event in LAST_WORDS:
                            return seen
                        if not stay:
                            break
        except httpx.HTTPError:
            await asyncio.sleep(0.05)  # the server died; another is starting


async def disturb(url: str, folder: Path, *, clients: int, kills: int, words: int, seed: int) -> int:
    """Let clients come and go, and servers die; return how often a client connected."""
    fleet = Fleet(url, folder)
    choose = random.Random(seed)
    visits = [0]
    sessions = [f"s{number}" for number in range(4)]
    try:
        async with fleet.server.client() as alice:
            for session_id in sessions:
                await execute(alice, f"talk {words}", session_id)
        readers = [
            asyncio.create_task(visit(fleet, sessions[number % 4], random.Random(choose.random()), visits))
            for number in range(clients)
        ]
        for _ in range(kills):
            await asyncio.sleep(choose.uniform(0.3, 1.0))
            await fleet.kill()
        async with asyncio.timeout(PATIENCE_SECONDS):
            seen = await asyncio.gather(*readers)
    finally:
        fleet.server.stop(signal.SIGKILL)
    async with open_stores(url) as stores:
        for number, numbers in enumerate(seen):
            assert numbers == sorted(set(numbers)), f"client {number} saw a chunk twice (seed {seed})"
            kept = {stored.sequence for stored in await stores.streams.get_all_chunks(sessions[number % 4])}
            assert kept <= set(numbers), f"client {number} missed a chunk (seed {seed})"
    return visits[0]


async def test_clients_that_come_and_go_see_every_chunk_once(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'h.db'}"
    assert await disturb(url, tmp_path, clients=6, kills=1, words=150, seed=11) > 12


@pytest.mark.soak
async def test_thousands_of_visits_and_five_kills_on_sqlite(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'h.db'}"
    assert await disturb(url, tmp_path, clients=100, kills=5, words=600, seed=12) > 2000


@pytest.mark.soak
async def test_thousands_of_visits_and_five_kills_on_postgres(tmp_path: Path, postgres_url: str) -> None:
    assert await disturb(postgres_url, tmp_path, clients=100, kills=5, words=600, seed=13) > 2000


@pytest.mark.soak
async def test_thousands_of_visits_and_five_kills_on_redis(tmp_path: Path, redis_url: str) -> None:
    assert await disturb(redis_url, tmp_path, clients=100, kills=5, words=600, seed=14) > 2000


async def test_a_reconnect_after_the_end_stops_an_event_source(alice: httpx.AsyncClient, sid: str) -> None:
    await execute(alice, "hello", sid)
    lines = (await alice.get(f"/stream/{sid}")).text.splitlines()
    (end_id,) = [line.removeprefix("id: ") for line in lines if line.endswith("-end")]
    last_chunk = end_id.removesuffix("-end")
    finished = await alice.get(f"/stream/{sid}", headers={"Last-Event-ID": end_id})
    assert (finished.status_code, finished.content) == (204, b"")
    cut = await read_stream(alice, f"/stream/{sid}", headers={"Last-Event-ID": last_chunk})
    assert [frame.event for frame in cut] == ["open", "end"], "a client that was cut before the end gets it"
    await execute(alice, "again", sid)
    rest = await read_stream(alice, f"/stream/{sid}", headers={"Last-Event-ID": end_id})
    assert text_of(rest) == "You said: again"


async def test_a_reconnect_after_a_failure_stops_an_event_source(alice: httpx.AsyncClient, sid: str) -> None:
    begun = await execute(alice, "nap 30", sid)
    await alice.post(f"/sessions/{sid}/abort")
    lines = (await alice.get(begun["stream_url"])).text.splitlines()
    (end_id,) = [line.removeprefix("id: ") for line in lines if line.endswith("-end")]
    assert (await alice.get(f"/stream/{sid}", headers={"Last-Event-ID": end_id})).status_code == 204


@pytest.mark.parametrize("given", ["1" * 20, "1" * 5_000, "1-END", "-end", "1-end-end", "x-end"])
async def test_an_odd_last_event_id_is_rejected(alice: httpx.AsyncClient, sid: str, given: str) -> None:
    await execute(alice, "hello", sid)
    response = await alice.get(f"/stream/{sid}", headers={"Last-Event-ID": given})
    assert (response.status_code, response.json()["code"]) == (400, "invalid_argument")
