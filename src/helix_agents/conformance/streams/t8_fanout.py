"""T8: any number of readers, here and in other processes, on one subscription."""

from __future__ import annotations

import asyncio

from ...streams.contract import StreamManager
from ..expect import expect, expect_same
from ..harness import Harness
from ..registry import NotApplicable
from ..tools.crew import hear
from .child import child
from .harness import STREAM_MANAGER
from .sample import chunk, names, numbered, read_all, reader_of, soon, write_to

check = STREAM_MANAGER.check


@check("T8", "1,000 readers of one stream see everything, on one subscription and few reads", kind="tasks")
async def a_thousand_readers(harness: Harness) -> None:
    streams, other = await harness.open_streams(), await harness.open_streams()
    writer = await streams.create_writer("s", "run", "agent")
    await write_to(writer, names("a", 50))
    readers = await asyncio.gather(*(reader_of(other, "s") for _ in range(1000)))
    tasks = [asyncio.create_task(read_all(reader)) for reader in readers]
    for name in names("a", 100, 50):
        await writer.write(chunk(name))
        await asyncio.sleep(0)
    await writer.close()
    await streams.end_stream("s")
    for seen in await soon(asyncio.gather(*tasks)):
        expect(seen == numbered(names("a", 150)), "a reader missed or repeated something")
    hub = getattr(other, "hub", None)
    if hub is not None:
        expect_same(hub.subscriptions, 1, "subscriptions of 1,000 readers")
        expect(0 < hub.reads <= 400, f"{hub.reads} reads for 150 chunks: the readers do not share them")


@check("T8", "readers that attach together share the reads of history", kind="tasks")
async def history_is_shared(harness: Harness) -> None:
    streams, other = await harness.open_streams(max_chunks=0), await harness.open_streams(max_chunks=0)
    async with await streams.create_writer("s", "run", "agent") as writer:
        await write_to(writer, names("a", 5000))
    await streams.end_stream("s")
    hub = getattr(other, "hub", None)
    if hub is None:
        raise NotApplicable("the manager has no hub whose reads could be counted")
    readers = await asyncio.gather(*(reader_of(other, "s", cursor) for cursor in range(0, 1000, 10)))
    everything = numbered(names("a", 5000))
    found = await soon(asyncio.gather(*(read_all(reader) for reader in readers)))
    for cursor, seen in zip(range(0, 1000, 10), found, strict=True):
        expect(seen == everything[cursor:], f"the reader from {cursor} missed or repeated something")
    expect(0 < hub.reads <= 20, f"{hub.reads} reads for 100 readers of the same history")


@check("T8", "many streams with a reader each share the subscription", kind="tasks")
async def many_streams(harness: Harness) -> None:
    streams, other = await harness.open_streams(), await harness.open_streams()

    async def follow(stream_id: str) -> None:
        async with await streams.create_writer(stream_id, "run", "agent") as writer:
            task = asyncio.create_task(read_all(await reader_of(other, stream_id)))
            for name in names(stream_id, 10):
                await writer.write(chunk(name))
                await asyncio.sleep(0)
        await streams.end_stream(stream_id)
        expect_same(await task, numbered(names(stream_id, 10)), stream_id)

    await soon(asyncio.gather(*(follow(f"s{number}") for number in range(50))))
    hub = getattr(other, "hub", None)
    expect_same(hub.subscriptions if hub else 1, 1, "subscriptions")


@check("T8", "readers in other processes see a live stream", kind="processes")
async def other_processes(harness: Harness) -> None:
    streams = await harness.open_streams()
    writer = await streams.create_writer("s", "run", "agent")
    await write_to(writer, ["a.0"])

    async def follow(cursor: int, live: asyncio.Barrier) -> None:
        async with child(harness, "read", stream_id="s", from_sequence=cursor) as process:
            expect_same(await hear(process), "reading", "the child")
            await live.wait()
            for number in range(cursor, 30):
                expect_same(await hear(process), [number + 1, f"a.{number}"], "the next chunk in another process")
                if number > 1:
                    await live.wait()
            expect_same(await hear(process), "ended", "the outcome in another process")

    async def produce(live: asyncio.Barrier) -> None:
        # The next chunk is written only when all readers have the previous one: none catches up only at the end.
        await live.wait()
        await _write_one(writer, 1)
        for number in range(2, 30):
            await _write_one(writer, number)
            await live.wait()
        await streams.end_stream("s")

    live = asyncio.Barrier(4)
    await soon(asyncio.gather(produce(live), *(follow(cursor, live) for cursor in (0, 1, 0))))


async def _write_one(writer: object, number: int) -> None:
    await writer.write(chunk(f"a.{number}"))  # type: ignore[attr-defined]


@check("T8", "a reader whose process is killed leaves nothing behind that hinders others", kind="processes")
async def killed_reader(harness: Harness) -> None:
    streams: StreamManager = await harness.open_streams()
    writer = await streams.create_writer("s", "run", "agent")
    for number in range(3):
        async with child(harness, "read", stream_id="s", from_sequence=0) as process:
            expect_same(await hear(process), "reading", "the child")
            await write_to(writer, [f"a.{number}"])
            await hear(process)
            process.kill()
            await process.wait()
        await write_to(writer, names("b", 3))
    await writer.close()
    await streams.end_stream("s")
    expect_same(len(await read_all(await reader_of(streams, "s"))), 12, "chunks at the end")
