"""T7: rewind and reset drop chunks, write a marker, and leave readers attached."""

from __future__ import annotations

import asyncio

from ..expect import expect, expect_same
from ..harness import Harness
from .harness import STREAM_MANAGER
from .sample import chunk, kept, names, numbered, read_all, read_some, reader_of, soon, write

check = STREAM_MANAGER.check


@check("T7", "rewind drops the chunks of later steps wherever they are, and appends the marker")
async def rewind(harness: Harness) -> None:
    streams, other = await harness.open_streams(), await harness.open_streams()
    for step in (0, 1, 2, 1, 3, 2):
        await write(streams, "s", [f"step {step}"], step=step)
    expect_same(await streams.cleanup_to_step("s", 1), 3, "chunks dropped")
    expected = [(1, "step 0"), (2, "step 1"), (4, "step 1"), (7, "stream_rewound")]
    expect_same(await kept(other, "s"), expected, "what is retained")
    info = await other.get_stream_info("s")
    assert info is not None
    expect_same(
        [info.total_chunks, info.latest_sequence, info.first_sequence, info.status], [4, 7, 1, "active"], "info"
    )
    marker = (await other.get_all_chunks("s"))[-1].chunk
    expect_same([marker["type"], marker["step_count"]], ["stream_rewound", 1], "the marker")
    expect_same(await streams.cleanup_to_step("s", 9), 0, "a rewind that drops nothing")
    for cursor in (0, 2, 3, 5, 6):
        reader = await reader_of(other, "s", cursor)
        wanted = [*(each for each in expected if each[0] > cursor), (8, "stream_rewound")]
        expect_same(await read_some(reader, len(wanted)), wanted, f"a reader from {cursor}, in or beside the gap")
        await reader.close()


@check("T7", "live readers see the marker and continue, in this process and others")
async def live_readers_go_on(harness: Harness) -> None:
    streams, other = await harness.open_streams(), await harness.open_streams()
    await write(streams, "s", names("a", 2), step=1)
    readers = [await reader_of(streams, "s"), await reader_of(other, "s")]
    seen = [[*await read_some(reader, 2)] for reader in readers]

    async def keep_up(count: int) -> None:
        for reader, chunks in zip(readers, seen, strict=True):
            chunks += await read_some(reader, count)

    await write(streams, "s", names("b", 2), step=2)
    await keep_up(2)
    await streams.cleanup_to_step("s", 1)
    await keep_up(1)
    await streams.reset_stream("s")
    await keep_up(1)
    await write(streams, "s", ["c"])
    await streams.end_stream("s")
    markers = [(5, "stream_rewound"), (6, "stream_resync"), (7, "c")]
    expected = [*numbered([*names("a", 2), *names("b", 2)]), *markers]
    for reader, chunks in zip(readers, seen, strict=True):
        expect_same([*chunks, *await read_all(reader)], expected, "a reader that kept up")
    expect_same(await read_all(await reader_of(other, "s", 0)), markers[1:], "a late reader")


@check("T7", "reset drops all chunks, leaves a marker and makes the stream active again")
async def reset(harness: Harness) -> None:
    streams, other = await harness.open_streams(), await harness.open_streams()
    for stream_id in ("ended", "failed", "paused"):
        await write(streams, stream_id, names("a", 3))
    await streams.end_stream("ended", "output")
    await streams.fail_stream("failed", "error")
    await streams.pause_stream("paused")
    for stream_id in ("ended", "failed", "paused"):
        await streams.reset_stream(stream_id)
        info = await other.get_stream_info(stream_id)
        assert info is not None
        expect_same([info.status, info.final_output, info.error], ["active", None, None], f"{stream_id}: info")
        expect_same([info.total_chunks, info.first_sequence, info.latest_sequence], [1, 4, 4], f"{stream_id}: counts")
        await write(other, stream_id, ["b"])
        await other.end_stream(stream_id)
        for cursor in (0, 2, 3):
            seen = await read_all(await reader_of(streams, stream_id, cursor))
            expect_same(seen, [(4, "stream_resync"), (5, "b")], f"{stream_id}: a reader from {cursor}")


@check("T7", "after retention and a reset, an old cursor is no longer truncated: it starts with the marker")
async def reset_after_retention(harness: Harness) -> None:
    streams = await harness.open_streams(max_chunks=5)
    await write(streams, "s", names("a", 30))
    await streams.reset_stream("s")
    await write(streams, "s", ["b"])
    await streams.end_stream("s")
    for cursor in (0, 7, 30):
        seen = await read_all(await reader_of(streams, "s", cursor))
        expect_same(seen, [(31, "stream_resync"), (32, "b")], f"from {cursor}")


@check(
    "T7",
    "with many writers and readers, rewinds and resets preserve order, and all readers see the markers",
    kind="tasks",
)
async def under_load(harness: Harness) -> None:
    streams, other = await harness.open_streams(max_chunks=0), await harness.open_streams(max_chunks=0)
    await streams.create_writer("s", "run", "agent")
    readers = [await reader_of(manager, "s") for manager in (streams, other, streams, other)]
    tasks = [asyncio.create_task(read_all(reader)) for reader in readers]

    async def produce(manager: object, prefix: str) -> None:
        writer = await streams.create_writer("s", prefix, "agent")
        for number in range(200):
            await writer.write(chunk(f"{prefix}.{number}", step=number % 5))
            if number % 20 == 0:
                await asyncio.sleep(0)
        await writer.close()

    async def disturb() -> None:
        for number in range(10):
            await asyncio.sleep(0.002)
            if number % 3 == 2:
                await other.reset_stream("s")
            else:
                await other.cleanup_to_step("s", 2)

    await soon(asyncio.gather(produce(streams, "x"), produce(other, "y"), disturb()))
    await streams.reset_stream("s")
    await write(streams, "s", ["last"])
    await streams.end_stream("s")
    stored = await kept(other, "s")
    for task in tasks:
        seen = await soon(task)
        sequences = [sequence for sequence, _ in seen]
        expect(sequences == sorted(set(sequences)), "a reader saw a sequence twice or out of order")
        expect_same(seen[-2:], stored, "the end of the stream as a live reader saw it")
        for prefix in "xy":
            own = [int(name[2:]) for _, name in seen if name.startswith(prefix + ".")]
            expect(own == sorted(set(own)), f"the chunks of {prefix} are out of order or repeated")
