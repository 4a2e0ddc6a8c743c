"""T1: dense sequences from 1, never reused."""

from __future__ import annotations

import asyncio

from ..expect import expect_same
from ..harness import Harness
from ..tools.crew import hear
from .child import child
from .harness import STREAM_MANAGER
from .sample import kept, name_of, names, numbered, soon, write, write_to

check = STREAM_MANAGER.check


@check("T1", "chunks get 1, 2, 3, ... and flush returns the last")
async def sequences_are_dense(harness: Harness) -> None:
    streams = await harness.open_streams()
    writer = await streams.create_writer("s", "run", "agent")
    expect_same(await writer.flush(), 0, "flush before the first chunk")
    expect_same(await write_to(writer, names("a", 3)), 3, "the first flush")
    expect_same(await write_to(writer, names("b", 2)), 5, "the second flush")
    await writer.close()
    expect_same(await kept(streams, "s"), numbered([*names("a", 3), *names("b", 2)]), "the chunks")


@check("T1", "each stream has its own sequence")
async def streams_count_apart(harness: Harness) -> None:
    streams = await harness.open_streams()
    await write(streams, "s", names("a", 3))
    expect_same(await write(streams, "t", names("b", 2)), 2, "the other stream")
    expect_same(await kept(streams, "s"), numbered(names("a", 3)), "the first stream")


@check("T1", "reset and rewind reuse no sequence, also as another process sees it")
async def never_reused(harness: Harness) -> None:
    streams = await harness.open_streams()
    await write(streams, "s", names("a", 5))
    await streams.reset_stream("s")
    await write(streams, "s", names("b", 2), step=3)
    await streams.cleanup_to_step("s", 1)
    other = await harness.open_streams()
    await write(other, "s", ["c"])
    expect_same(await kept(other, "s"), [(6, "stream_resync"), (9, "stream_rewound"), (10, "c")], "the chunks")
    await other.reset_stream("s")
    await other.reset_stream("s")
    expect_same(await kept(other, "s"), [(12, "stream_resync")], "after two more resets")


@check("T1", "many concurrent writers get dense sequences, each in its own order", kind="tasks")
async def many_writers(harness: Harness) -> None:
    managers = [await harness.open_streams(), await harness.open_streams()]
    writers = harness.options.tasks

    async def produce(number: int) -> None:
        writer = await managers[number % 2].create_writer("s", f"run {number}", "agent")
        for name in names(f"w{number}", 50):
            await writer.write({"type": "text_delta", "delta": name})
            if int(name.rpartition(".")[2]) % (number + 1) == 0:
                await asyncio.sleep(0)
        await writer.close()

    await soon(asyncio.gather(*(produce(number) for number in range(writers))))
    _expect_interleaved(await kept(managers[0], "s"), [names(f"w{number}", 50) for number in range(writers)])


@check("T1", "writers in many processes get dense sequences, each in its own order", kind="processes")
async def many_writing_processes(harness: Harness) -> None:
    streams = await harness.open_streams()

    async def produce(number: int) -> None:
        async with child(harness, "write", stream_id="s", name=f"p{number}", count=200) as process:
            while await hear(process) != "done":
                pass

    count = harness.options.processes
    await asyncio.gather(*(produce(number) for number in range(count)))
    _expect_interleaved(await kept(streams, "s"), [names(f"p{number}", 200) for number in range(count)])


def _expect_interleaved(seen: list[tuple[int, str]], parts: list[list[str]]) -> None:
    expect_same([sequence for sequence, _ in seen], list(range(1, sum(map(len, parts)) + 1)), "the sequences")
    for part in parts:
        prefix = part[0].partition(".")[0] + "."
        expect_same([name for _, name in seen if name.startswith(prefix)], part, f"the order of {prefix}")


@check("T1", "a batch of several chunks in one millisecond keeps order and differs by sequence")
async def one_millisecond(harness: Harness) -> None:
    streams = await harness.open_streams(clock=lambda: 1_700_000_000_000, ttl=0)
    await write(streams, "s", names("a", 40))
    found = await streams.get_all_chunks("s")
    expect_same({row.chunk["timestamp"] for row in found} == {1_700_000_000_000}, True, "one timestamp for all")
    expect_same([name_of(row.chunk) for row in found], names("a", 40), "the order")
