"""Writers that batch chunks: fewer writes, the first chunk is sent immediately, and a flush never waits."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from helix_agents.clock import system_clock
from helix_agents.streams.records import NewChunk
from helix_agents.streams.writer import BatchingWriter


class Log:
    """What was appended, batch by batch."""

    def __init__(self, gather_seconds: float) -> None:
        self.batches: list[int] = []
        self.grew = asyncio.Event()
        self.writer = BatchingWriter(
            self.append,
            stream_id="s",
            run_id="r",
            agent_type="a",
            producer_id="p",
            clock=system_clock,
            gather_seconds=gather_seconds,
        )

    async def append(self, producer_id: str, counter: int, chunks: Sequence[NewChunk]) -> int:
        self.batches.append(len(chunks))
        self.grew.set()
        return counter

    async def write(self, count: int) -> None:
        for _ in range(count):
            await self.writer.write({"type": "text_delta", "delta": "x"})
            await asyncio.sleep(0)


async def test_the_first_chunk_leaves_at_once_and_the_others_together() -> None:
    log = Log(3600)
    await log.write(1)
    await asyncio.wait_for(log.grew.wait(), 10)
    await log.write(50)
    assert log.batches == [1]
    assert await asyncio.wait_for(log.writer.flush(), 10) == 51
    assert log.batches == [1, 50]


async def test_a_full_buffer_does_not_wait() -> None:
    log = Log(3600)
    await asyncio.wait_for(log.write(2000), 10)
    await asyncio.wait_for(log.writer.close(), 10)
    assert sum(log.batches) == 2000
    assert len(log.batches) < 10


async def test_chunks_leave_by_themselves_when_the_time_has_come() -> None:
    log = Log(0.01)
    await log.write(1)
    await asyncio.wait_for(log.grew.wait(), 10)
    log.grew.clear()
    await log.write(5)
    await asyncio.wait_for(log.grew.wait(), 10)
    await log.writer.close()
    assert sum(log.batches) == 6


async def test_without_a_window_nothing_waits() -> None:
    log = Log(0)
    await log.write(5)
    await log.writer.close()
    assert sum(log.batches) == 5


async def test_a_flush_waits_for_nothing_and_chunks_gather_again_after_it() -> None:
    log = Log(3600)
    for count in (1, 2, 3):
        await log.writer.write({"type": "text_delta", "delta": "x"})  # and the flush comes before it is sent
        assert await asyncio.wait_for(log.writer.flush(), 30) == count
    await log.write(50)
    assert log.batches == [1, 1, 1]
    await asyncio.wait_for(log.writer.close(), 30)
    assert log.batches == [1, 1, 1, 50]
