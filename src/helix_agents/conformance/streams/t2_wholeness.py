"""T2: every reader gets every stored chunk exactly once, in order, whenever it attaches."""

from __future__ import annotations

import asyncio
from typing import Any

from ...errors import InvalidArgument, StreamCursorAhead
from ..expect import expect, expect_same, raises
from ..harness import Harness
from .harness import STREAM_MANAGER
from .sample import chunk, kept, names, numbered, read_all, read_some, reader_of, reading, soon, turns, write

check = STREAM_MANAGER.check

STRANGE: list[Any] = [
    "",
    "\x00 nul \x7f",
    "lone \ud800 surrogate",
    "~ / \\ \" ' [ ] { }",
    "🙂 ünïcödé \u2028",
    1.0,
    -0.0,
    2**53,
    None,
    True,
    [],
    {},
    {"a": [{"b": [1, 2.5, {"c": "\n"}]}]},
]


@check("T2", "readers that attach before, during and after writing see the same chunks")
async def whenever_it_comes(harness: Harness) -> None:
    streams = await harness.open_streams()
    other = await harness.open_streams()
    writer = await streams.create_writer("s", "run", "agent")
    early, elsewhere = await reader_of(streams, "s"), await reader_of(other, "s")
    async with reading(early) as first, reading(elsewhere) as second:
        for name in names("a", 5):
            await writer.write(chunk(name))
        await writer.flush()
        midway = await reader_of(other, "s", 0)
        async with reading(midway) as third:
            for name in names("b", 5):
                await writer.write(chunk(name))
            await writer.close()
            await streams.end_stream("s")
            expected = numbered([*names("a", 5), *names("b", 5)])
            for task, what in ((first, "before"), (second, "before, elsewhere"), (third, "during")):
                expect_same(await soon(task), expected, f"a reader that attached {what}")
    expect_same(await read_all(await reader_of(other, "s")), expected, "a reader that attached after")


@check("T2", "both ways to iterate give the chunks as written, and the cursor follows")
async def two_ways_to_iterate(harness: Harness) -> None:
    streams = await harness.open_streams()
    await write(streams, "s", names("a", 4))
    await streams.end_stream("s")
    reader = await reader_of(streams, "s", 1)
    expect_same(reader.current_sequence, 1, "the cursor at the start")
    expect_same([found["delta"] async for found in reader], ["a.1", "a.2", "a.3"], "plain chunks")
    expect_same(reader.current_sequence, 4, "the cursor at the end")


@check("T2", "text and numbers come back exactly as given, unknown members included")
async def values_round_trip(harness: Harness) -> None:
    streams = await harness.open_streams()
    given = [{"type": "custom", "name": str(n), "data": value, "extra": [value]} for n, value in enumerate(STRANGE)]
    writer = await streams.create_writer("s", "run", "agent")
    for each in given:
        await writer.write(each)
    await writer.close()
    await streams.end_stream("s", {"last": STRANGE})
    reader = await reader_of(await harness.open_streams(), "s")
    seen = [found async for found in reader]
    expect_same([{key: found[key] for key in each} for each, found in zip(given, seen, strict=True)], given, "chunks")
    expect(reader.outcome is not None, "the reader has no outcome")
    expect_same(reader.outcome.final_output if reader.outcome else None, {"last": STRANGE}, "the final output")


@check("T2", "a cursor may be at 0, in the middle or at the end; below 0 or beyond the end it is rejected")
async def cursors(harness: Harness) -> None:
    streams = await harness.open_streams()
    await write(streams, "s", names("a", 5))
    await streams.end_stream("s")
    for cursor in range(6):
        seen = await read_all(await reader_of(streams, "s", cursor))
        expect_same(seen, numbered(names("a", 5))[cursor:], f"from {cursor}")
    with raises(StreamCursorAhead, "a cursor ahead") as caught:
        await streams.create_resumable_reader("s", from_sequence=6)
    error = caught.error
    expect_same([error.from_sequence, error.latest_sequence], [6, 5], "the error")  # type: ignore[attr-defined]
    with raises(InvalidArgument, "a negative cursor"):
        await streams.create_resumable_reader("s", from_sequence=-1)


@check("T2", "a reader may attach before the first chunk, at cursor 0 only")
async def before_the_first_chunk(harness: Harness) -> None:
    streams = await harness.open_streams()
    expect(await streams.create_reader("s") is None, "a stream that does not exist has a reader")
    expect(await streams.create_resumable_reader("s") is None, "a stream that does not exist has a resumable reader")
    await streams.create_writer("s", "run", "agent")
    with raises(StreamCursorAhead, "a cursor in an empty stream"):
        await streams.create_resumable_reader("s", from_sequence=1)
    async with reading(await reader_of(streams, "s", 0)) as task:
        await write(await harness.open_streams(), "s", names("a", 3))
        await streams.end_stream("s")
        expect_same(await soon(task), numbered(names("a", 3)), "from the first chunk on")


@check("T2", "a reader that changes a chunk changes it for no other reader")
async def readers_are_apart(harness: Harness) -> None:
    streams = await harness.open_streams()
    flat, deep = {"type": "a", "text": "x"}, {"type": "b", "list": [{"n": 1}]}
    async with await streams.create_writer("s", "run", "agent") as writer:
        await writer.write(flat)
        await writer.write(deep)
        flat["text"], deep["list"][0]["n"] = "changed", 2  # type: ignore[index]
    await streams.end_stream("s")
    for attempt in ("first", "second"):
        async for found in await reader_of(streams, "s"):
            if found["type"] == "a":
                expect_same(found["text"], "x", f"the flat chunk of the {attempt} reader")
                found["text"] = "spoilt"
            else:
                expect_same(found["list"], [{"n": 1}], f"the deep chunk of the {attempt} reader")
                found["list"][0]["n"] = 9


@check("T2", "a reader that is cancelled while it waits continues without loss")
async def cancelled_while_waiting(harness: Harness) -> None:
    streams = await harness.open_streams()
    writer = await streams.create_writer("s", "run", "agent")
    reader = await reader_of(streams, "s")
    for number in range(10):
        task = asyncio.create_task(read_some(reader, 1))
        await turns(number)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        cursor = reader.current_sequence
        await writer.write(chunk(f"a.{number}"))
        await writer.flush()
        expect_same(await read_some(reader, number + 1 - cursor), numbered(names("a", number + 1))[cursor:], "the rest")
    await reader.close()


@check("T2", "close ends a waiting reader, may be repeated, and leaves other readers alone")
async def close_while_waiting(harness: Harness) -> None:
    streams = await harness.open_streams()
    await write(streams, "s", ["a"])
    closed, other = await reader_of(streams, "s"), await reader_of(streams, "s")
    expect_same(await read_some(closed, 1), [(1, "a")], "what the closed reader sees first")
    async with reading(closed) as ended, reading(other) as goes_on:
        await soon(asyncio.gather(closed.close(), closed.close()))
        expect_same(await soon(ended), [], "what the closed reader sees then")
        expect(closed.outcome is None, "a closed reader has an outcome")
        await write(streams, "s", ["b"])
        await streams.end_stream("s")
        expect_same(await soon(goes_on), [(1, "a"), (2, "b")], "the other reader")


@check("T2", "a chunk of 5 MB among small ones is stored and read")
async def large_chunk(harness: Harness) -> None:
    streams = await harness.open_streams()
    text = "0123456789é" * 460_000
    async with reading(await reader_of_new(streams, "s")) as live:
        writer = await streams.create_writer("s", "run", "agent")
        for name in ("small", text, "after", text[::-1], "last"):
            await writer.write(chunk(name))
        await writer.close()
        await streams.end_stream("s")
        expected = numbered(["small", text, "after", text[::-1], "last"])
        expect(await soon(live) == expected, "a live reader got something different")
    expect(
        await read_all(await reader_of(await harness.open_streams(), "s")) == expected,
        "replay returned something different",
    )
    expect(await kept(streams, "s") == expected, "get_all_chunks returned something different")


@check("T2", "chunks of every size are read correctly from every position")
async def chunks_of_every_size(harness: Harness) -> None:
    streams = await harness.open_streams()
    lengths = [245, 246, 255, 256, 257, 333, 511, 1_000, 1_023, 4_095, 4_097, 9_999, 16_385, 65_535, 65_537, 100_000]
    texts = [f"{length:06}".ljust(length, "é") for length in (*lengths, *reversed(lengths))]
    await write(streams, "s", texts)
    await streams.end_stream("s")
    other, expected = await harness.open_streams(), numbered(texts)
    expect(await kept(other, "s") == expected, "get_all_chunks returned something different")
    for place in range(len(texts) + 1):
        got = await read_all(await reader_of(other, "s", place))
        expect(got == expected[place:], f"a reader from sequence {place} got something different")


async def reader_of_new(streams: Any, stream_id: str) -> Any:
    """Return a reader of a stream that its first writer has just created."""
    await streams.create_writer(stream_id, "run", "agent")
    return await reader_of(streams, stream_id)


@check("T2", "100,000 chunks can be read from the start, from the middle and in one call")
async def long_stream(harness: Harness) -> None:
    streams = await harness.open_streams(max_chunks=0)
    wanted = names("n", 100_000)
    await write(streams, "s", wanted)
    await streams.end_stream("s")
    other = await harness.open_streams(max_chunks=0)
    expect(await read_all(await reader_of(other, "s")) == numbered(wanted), "replay is not complete")
    seen = await read_all(await reader_of(other, "s", 77_777))
    expect(seen == numbered(wanted)[77_777:], "resuming in the middle is not complete")
    expect(await kept(other, "s") == numbered(wanted), "get_all_chunks is not complete")


@check("T2", "chunks can be read from a given step on")
async def chunks_from_step(harness: Harness) -> None:
    streams = await harness.open_streams()
    for step in (0, 1, 2, 1, 3):
        await write(streams, "s", [f"step {step}"], step=step)
    found = await streams.get_chunks_from_step("s", 2)
    expect_same([row.sequence for row in found], [3, 5], "chunks of step 2 and later")
    expect_same(await streams.get_chunks_from_step("s", 9), [], "chunks of a later step")
    expect_same(await streams.get_all_chunks("nowhere"), [], "chunks of a missing stream")


@check("T2", "a reader whose wait was cancelled continues where it was")
async def cancelled_wait_loses_nothing(harness: Harness) -> None:
    manager = await harness.open_streams()
    await write(manager, "s", ["a"])
    async with await reader_of(manager, "s") as reader:
        for chunks in (aiter(reader), reader.stored()):
            await write(manager, "s", ["b"])
            await soon(anext(chunks))
            waiting = asyncio.ensure_future(anext(chunks))
            while reader.current_sequence < (await manager.get_all_chunks("s"))[-1].sequence:
                await soon(waiting)
                waiting = asyncio.ensure_future(anext(chunks))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            latest = await write(manager, "s", ["c"])
            await soon(anext(chunks))
            expect_same(reader.current_sequence, latest, "the sequence after a wait that was cancelled")
