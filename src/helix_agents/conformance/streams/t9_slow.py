"""T9: a reader that does not read harms no other."""

from __future__ import annotations

import asyncio

from ..expect import expect, expect_same
from ..harness import Harness
from .harness import STREAM_MANAGER
from .sample import names, numbered, read_all, read_some, reader_of, soon, write

check = STREAM_MANAGER.check


@check("T9", "a reader that stops reading does not slow others, and loses nothing when it continues", kind="tasks")
async def slow_reader(harness: Harness) -> None:
    streams, other = await harness.open_streams(max_chunks=0), await harness.open_streams(max_chunks=0)
    await streams.create_writer("s", "run", "agent")
    slow = [await reader_of(manager, "s") for manager in (streams, other) for _ in range(5)]
    quick = asyncio.create_task(read_all(await reader_of(other, "s")))
    everything = numbered(names("a", 20_001))
    await write(streams, "s", names("a", 1))
    for reader in slow:
        expect_same(await read_some(reader, 1), everything[:1], "the first chunk of a slow reader")
    # Only the quick reader reads while this is written.
    await soon(write(streams, "s", names("a", 20_000, 1)))
    await streams.end_stream("s")
    expect(await soon(quick) == everything, "the quick reader missed something")
    for seen in await soon(asyncio.gather(*(read_all(reader) for reader in slow))):
        expect(seen == everything[1:], "a slow reader missed or repeated something")


@check("T9", "readers that stop at different positions within a page all continue", kind="tasks")
async def readers_at_all_places(harness: Harness) -> None:
    streams = await harness.open_streams(max_chunks=0)
    total = 3000
    await write(streams, "s", names("a", total))
    readers = [await reader_of(streams, "s") for _ in range(30)]
    for place, reader in enumerate(readers):
        await read_some(reader, 100 * place)
    await write(streams, "s", names("a", total, total))
    await streams.end_stream("s")
    everything = numbered(names("a", 2 * total))
    for place, reader in enumerate(readers):
        expect(await read_all(reader) == everything[100 * place :], f"the reader at {100 * place} missed something")
