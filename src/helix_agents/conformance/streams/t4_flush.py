"""T4: buffering is bounded, writes are batched, and after a flush the chunks are stored."""

from __future__ import annotations

import asyncio
from typing import Any

from ...errors import InvalidArgument, NotSerializable, StoreUnavailable, StreamError, StreamNotActive
from ..expect import expect, expect_same, raises
from ..harness import Harness
from .faults import StreamFault, Verb, counting, faulty, wrap
from .harness import STREAM_MANAGER
from .sample import chunk, kept, names, numbered, read_some, reader_of, soon, turns, write_to

check = STREAM_MANAGER.check


@check("T4", "after flush or close, other processes see the chunks")
async def flushed_is_stored(harness: Harness) -> None:
    streams, other = await harness.open_streams(), await harness.open_streams()
    writer = await streams.create_writer("s", "run", "agent")
    await write_to(writer, names("a", 3))
    expect_same(await kept(other, "s"), numbered(names("a", 3)), "after flush")
    await writer.write(chunk("a.3"))
    await writer.close()
    await writer.close()
    expect_same(await kept(other, "s"), numbered(names("a", 4)), "after close")
    with raises(StreamError, "write after close"):
        await writer.write(chunk("late"))


@check("T4", "a chunk arrives without flush or close")
async def leaves_by_itself(harness: Harness) -> None:
    streams, other = await harness.open_streams(), await harness.open_streams()
    writer = await streams.create_writer("s", "run", "agent")
    reader = await reader_of(other, "s")
    for number in range(3):
        await writer.write(chunk(f"a.{number}"))
        expect_same(await read_some(reader, 1), [(number + 1, f"a.{number}")], "the chunk")
    await reader.close()
    await writer.close()


@check("T4", "chunks written quickly share writes")
async def batches_by_itself(harness: Harness) -> None:
    streams = await harness.open_streams()
    calls: list[int] = []
    wrap(streams, "_append", counting(calls))
    async with await streams.create_writer("s", "run", "agent") as writer:
        await write_to(writer, names("a", 2000))
    expect_same(sum(calls), 2000, "chunks in all writes")
    expect(len(calls) <= 100, f"2,000 chunks took {len(calls)} writes")


@check("T4", "a writer whose backend stalls makes its producer wait and loses nothing", kind="faults")
async def back_pressure(harness: Harness) -> None:
    streams = await harness.open_streams(max_chunks=0)
    gate = asyncio.Event()

    def gated(verb: Verb) -> Verb:
        async def call(*args: Any, **kwargs: Any) -> Any:
            await gate.wait()
            return await verb(*args, **kwargs)

        return call

    wrap(streams, "_append", gated)
    writer = await streams.create_writer("s", "run", "agent")
    taken = 0

    async def produce() -> None:
        nonlocal taken
        for name in names("a", 20_000):
            await writer.write(chunk(name))
            taken += 1

    task = asyncio.create_task(produce())
    await turns(200)
    taken_while_closed = taken
    gate.set()
    await soon(task)
    expect(taken_while_closed <= 10_000, f"{taken_while_closed} chunks were accepted while nothing could be stored")
    expect_same(await soon(writer.flush()), 20_000, "the last sequence")
    await writer.close()


@check("T4", "an error surfaces on write, flush or close, and the next flush stores the chunks", kind="faults")
async def errors_surface(harness: Harness) -> None:
    streams = await harness.open_streams()
    down = True

    def choose(_: int) -> StreamFault:
        return "before" if down else "none"

    wrap(streams, "_append", faulty(choose))
    writer = await streams.create_writer("s", "run", "agent")
    await writer.write(chunk("a"))
    with raises(StoreUnavailable, "flush while the backend is down"):
        await soon(writer.flush())
    down = False
    await writer.flush()
    await writer.write(chunk("b"))
    await writer.close()
    expect_same(await kept(streams, "s"), [(1, "a"), (2, "b")], "the chunks")


@check("T4", "writing to a stream that ended elsewhere raises StreamNotActive by flush at the latest")
async def refused_write_surfaces(harness: Harness) -> None:
    streams, other = await harness.open_streams(), await harness.open_streams()
    writer = await streams.create_writer("s", "run", "agent")
    await other.end_stream("s")
    with raises(StreamNotActive, "flush of a rejected chunk"):
        await write_to(writer, ["a"])
    with raises(StreamNotActive, "close with a rejected chunk"):
        await writer.write(chunk("b"))
        await writer.close()
    expect_same(await kept(streams, "s"), [], "the chunks")


@check("T4", "anything that is not a chunk is rejected by write, and nothing is written")
async def bad_chunks(harness: Harness) -> None:
    streams = await harness.open_streams()
    circle: dict[str, Any] = {"type": "a"}
    circle["self"] = circle
    async with await streams.create_writer("s", "run", "agent") as writer:
        for bad in ({"delta": "no type"}, {"type": 1}, "text", None):
            with raises(InvalidArgument, f"write of {bad!r}"):
                await writer.write(bad)  # type: ignore[arg-type]  # the point of the check
        for value in (float("nan"), {1: 2}, object(), b"bytes", (1, 2), circle, {"a": [float("inf")]}):
            with raises(NotSerializable, f"write of a {type(value).__name__}"):
                await writer.write({"type": "a", "value": value})
        await writer.write(chunk("good"))
    expect_same(await kept(streams, "s"), [(1, "good")], "the chunks")


@check("T4", "the writer fills in missing fields of a chunk and changes no others")
async def stamps(harness: Harness) -> None:
    streams = await harness.open_streams(clock=lambda: 1_700_000_000_123, ttl=0)
    own = {"type": "a", "agent_id": "x", "agent_type": "y", "timestamp": 5, "step": 4}
    async with await streams.create_writer("s", "run-1", "writer") as writer:
        await writer.write({"type": "a"})
        await writer.write(own)
    first, second = (row.chunk for row in await streams.get_all_chunks("s"))
    stamped = {"agent_id": "run-1", "agent_type": "writer", "timestamp": 1_700_000_000_123, "step": 0}
    expect_same(first, {"type": "a", **stamped}, "a bare chunk")
    expect_same(second, own, "a chunk with its own fields")


@check("T4", "a task that stops waiting for a flush neither loses nor repeats a chunk", kind="tasks")
async def cancelled_flush(harness: Harness) -> None:
    streams = await harness.open_streams()
    writer = await streams.create_writer("s", "run", "agent")
    for number in range(30):
        await writer.write(chunk(f"a.{number}"))
        task = asyncio.create_task(writer.flush())
        await turns(number % 5)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await writer.close()
    expect_same(await kept(streams, "s"), numbered(names("a", 30)), "the chunks")
