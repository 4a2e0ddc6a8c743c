"""T2: readers attach, detach and resume at thousands of random moments while a stream is being written."""

from __future__ import annotations

import asyncio
import random

from ...streams.contract import StreamManager
from ..expect import expect
from ..harness import Harness
from .harness import STREAM_MANAGER
from .sample import Seen, chunk, name_of, names, numbered, reader_of, soon

check = STREAM_MANAGER.check


@check(
    "T2",
    "readers that attach, detach and resume at random see each chunk of a running stream exactly once",
    kind="random",
)
async def random_attachments(harness: Harness) -> None:
    print(f"seed {harness.options.seed}")
    rng = random.Random(harness.options.seed)
    managers = [await harness.open_streams(max_chunks=0), await harness.open_streams(max_chunks=0)]
    total = 8 * harness.options.steps
    await managers[0].create_writer("s", "run", "agent")
    readers = [_wander(managers[number % 2], rng.randrange(total), random.Random(rng.random())) for number in range(40)]
    attached, _ = await soon(asyncio.gather(asyncio.gather(*readers), _produce(managers[0], total, rng)))
    for begin, seen in (each[:2] for each in attached):
        expect(seen == numbered(names("a", total))[begin:], f"a reader from {begin} on missed or repeated something")
    print(f"{sum(count for _, _, count in attached)} attachments")


async def _produce(manager: StreamManager, total: int, rng: random.Random) -> None:
    writer = await manager.create_writer("s", "run", "agent")
    for name in names("a", total):
        await writer.write(chunk(name))
        match rng.randrange(20):
            case 0:
                await writer.flush()
            case 1 | 2 | 3:
                await asyncio.sleep(0)
            case 4:
                await asyncio.sleep(rng.random() / 1000)
    await writer.close()
    await manager.end_stream("s")


async def _wander(manager: StreamManager, wait_for: int, rng: random.Random) -> tuple[int, Seen, int]:
    """Start at a random moment and cursor, then read a few chunks at a time, each with another reader."""
    while True:
        info = await manager.get_stream_info("s")
        assert info is not None
        if info.latest_sequence >= wait_for or info.status == "ended":
            break
        await asyncio.sleep(0.003)
    begin = cursor = rng.randrange(info.latest_sequence + 1)
    seen: Seen = []
    attachments = 0
    while True:
        attachments += 1
        reader = await reader_of(manager, "s", cursor)
        stretch = rng.choice([1, 2, 5, 30, 100])
        async for stored in reader.stored():
            seen.append((stored.sequence, name_of(stored.chunk)))
            stretch -= 1
            if stretch == 0:
                break
            if rng.random() < 0.02:
                await asyncio.sleep(0.003)
        cursor = reader.current_sequence
        if reader.outcome is not None:
            return begin, seen, attachments
        await reader.close()
