"""Streams on a namespace binding, inside a Worker: the kit's checks, sockets that hibernate, emptied objects."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest

from tests.cloudflare.client import new_session, numbers
from tests.cloudflare.test_kit_inside import EXECUTOR, QUICKLY, SLOW, STREAM_MANAGER, THOROUGHLY, names, run
from tests.cloudflare.workerd import PythonWorkerd

SLOWER = (*SLOW, "T8.a_thousand_readers", "T8.history_is_shared", "T8.many_streams", "T9.slow_reader")


@pytest.mark.parametrize(
    "name", [name for name in names(STREAM_MANAGER, kinds={"example", "tasks"}) if not name.startswith(SLOWER)]
)
def test_stream_checks(python_workers: PythonWorkerd, name: str) -> None:
    run(python_workers, "bound", name, QUICKLY)


@pytest.mark.soak
@pytest.mark.parametrize("name", names(STREAM_MANAGER, EXECUTOR))
def test_all_checks(python_workers: PythonWorkerd, name: str) -> None:
    run(python_workers, "bound", name, THOROUGHLY)


class Streams:
    """A Worker's routes on streams."""

    def __init__(self, server: PythonWorkerd, session: aiohttp.ClientSession) -> None:
        self.url = f"{server.url}/kit_worker/streams"
        self.http = session

    async def ask(self, verb: str, stream_id: str, **query: str | int) -> Any:
        async with self.http.get(f"{self.url}/{verb}/{stream_id}", params=query) as reply:
            assert reply.status == 200, await reply.text()
            return await reply.json(content_type=None)

    async def watch(self, stream_id: str, **query: str) -> list[dict[str, Any]]:
        async with self.http.ws_connect(f"{self.url}/socket/{stream_id}", params=query, max_msg_size=0) as socket:
            return [message.json() async for message in socket]


@pytest.fixture
async def streams(python_workers: PythonWorkerd) -> Any:
    async with new_session() as session:
        yield Streams(python_workers, session)


async def test_a_browser_gets_kept_and_live_chunks_from_the_object(streams: Streams) -> None:
    await streams.ask("pour", "live", n=3)
    watching = asyncio.create_task(streams.watch("live"))
    await streams.ask("pour", "live", n=2)
    await streams.ask("end", "live")
    frames = await watching
    assert frames[0]["event"] == "open"
    assert numbers(frames) == [1, 2, 3, 4, 5]
    assert frames[-1] == {"event": "end", "id": None, "data": {"status": "completed", "output": "done"}}
    assert numbers(await streams.watch("live", **{"from": "4"})) == [5]


async def test_a_cursor_ahead_of_the_stream_is_rejected(streams: Streams) -> None:
    await streams.ask("pour", "ahead", n=1)
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await streams.watch("ahead", **{"from": "7"})
    assert refused.value.status == 416


async def test_reading_what_was_never_written_stores_nothing(streams: Streams) -> None:
    assert await streams.ask("info", "nothing") == {"latest": None, "rows": 0}
    facts = await streams.ask("look", "nothing")
    assert (facts["empty"], facts["alarm"]) == (True, None)


@pytest.mark.parametrize("chunks", [0, 2])
async def test_deleting_a_stream_empties_its_object_and_tells_followers(streams: Streams, chunks: int) -> None:
    """A follower of a deleted stream, even one that was never written, must not see the next stream with that id."""
    stream_id = f"deleted-{chunks}"
    if chunks:
        await streams.ask("pour", stream_id, n=chunks)
    async with streams.http.ws_connect(f"{streams.url}/socket/{stream_id}?follow=true") as socket:
        for _ in range(1 + chunks):
            await socket.receive_json()
        await streams.ask("delete", stream_id)
        assert await socket.receive_json() == {"event": "gone", "id": None, "data": {}}
    facts = await streams.ask("look", stream_id)
    assert (facts["empty"], facts["alarm"], facts["sockets"]) == (True, None, 0)
    await streams.ask("pour", stream_id, n=1)
    await streams.ask("end", stream_id)
    assert numbers(await streams.watch(stream_id)) == [1]


async def test_an_object_empties_itself_after_the_ttl(streams: Streams) -> None:
    for _ in range(2):
        await streams.ask("pour", "expiring", n=1, ttl=1)
        frames = await asyncio.wait_for(streams.watch("expiring", follow="true"), 60)
        assert [frame["event"] for frame in frames] == ["open", "chunk", "gone"]
        assert (await streams.ask("look", "expiring"))["empty"]


@pytest.mark.parametrize("count", [90, pytest.param(10_000, marks=pytest.mark.soak)])
async def test_thirty_browsers_miss_nothing_across_hibernation_and_death(
    python_workers: PythonWorkerd, count: int
) -> None:
    stream_id, part = f"many-streams-{count}", count // 3
    async with new_session() as session:
        streams = Streams(python_workers, session)
        await streams.ask("pour", stream_id, n=part)
        readers = [asyncio.create_task(_come_back(streams, stream_id)) for _ in range(30)]
        before = await streams.ask("look", stream_id)
        after = before
        while after["born"] == before["born"] or after["sockets"] < 30:
            await asyncio.sleep(12)  # workerd lets an object hibernate after 10 s; there is no event to wait for
            after = await streams.ask("look", stream_id)
        await streams.ask("pour", stream_id, n=part)
        python_workers.kill9()
        python_workers.start()
        await streams.ask("pour", stream_id, n=count - 2 * part)
        await streams.ask("end", stream_id)
        for frames in await asyncio.gather(*readers):
            assert numbers(frames) == list(range(1, count + 1))
            assert frames[-1]["event"] == "end"


async def _come_back(streams: Streams, stream_id: str) -> list[dict[str, Any]]:
    """Watch a stream to its end; after a lost connection continue from the last chunk."""
    frames: list[dict[str, Any]] = []
    while not frames or frames[-1]["event"] != "end":
        last = max(numbers(frames), default=0)
        try:
            async with streams.http.ws_connect(
                f"{streams.url}/socket/{stream_id}?from={last}", max_msg_size=0
            ) as socket:
                async for message in socket:
                    frames.append(message.json())
        except (aiohttp.ClientError, OSError):
            await asyncio.sleep(0.1)  # it is not up again yet
    return frames
