"""How much a writer buffers before its callers wait, and how much it sends in one write: by count and by size."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from helix_agents.clock import system_clock
from helix_agents.errors import StreamError
from helix_agents.streams.records import NewChunk
from helix_agents.streams.writer import (
    MAX_BATCH_CHARS,
    MAX_BATCH_CHUNKS,
    MAX_BUFFERED_CHARS,
    MAX_BUFFERED_CHUNKS,
    BatchingWriter,
)


class Gate:
    """A backend that accepts nothing until it is opened."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.reached, self.opened = asyncio.Event(), asyncio.Event()
        self.written = 0
        self.refuses = False
        self.writer = BatchingWriter(
            self.append, stream_id="s", run_id="r", agent_type="a", producer_id="p", clock=system_clock
        )

    async def append(self, producer_id: str, counter: int, chunks: Sequence[NewChunk]) -> int:
        self.reached.set()
        await self.opened.wait()
        if self.refuses:
            self.refuses = False
            raise StreamError("s", "refused")
        self.batches.append([len(chunk.text) for chunk in chunks])
        return counter

    async def write(self, count: int, size: int) -> None:
        for _ in range(count):
            await self.writer.write({"type": "text_delta", "delta": "x" * size})
            self.written += 1


@pytest.mark.parametrize(("count", "size"), [(3 * MAX_BUFFERED_CHUNKS, 1), (48, MAX_BUFFERED_CHARS // 16)])
async def test_a_full_buffer_lets_its_callers_wait_and_leaves_in_batches(count: int, size: int) -> None:
    gate = Gate()
    async with asyncio.timeout(60):
        await gate.write(1, 1)
        await gate.reached.wait()
        writing = asyncio.create_task(gate.write(count, size))
        for _ in range(20):
            await asyncio.sleep(0)
        room = min(MAX_BUFFERED_CHUNKS, MAX_BUFFERED_CHARS // size)
        assert room // 2 <= gate.written - 1 <= room
        gate.opened.set()
        await writing
        assert await gate.writer.flush() == count + 1
    assert sum(len(batch) for batch in gate.batches) == count + 1
    assert all(len(batch) <= MAX_BATCH_CHUNKS and sum(batch) <= MAX_BATCH_CHARS for batch in gate.batches)
    assert len(gate.batches) < count, "chunks that wait leave together"


async def test_who_waits_for_room_hears_of_a_refusal_and_nothing_follows_what_is_lost() -> None:
    gate = Gate()
    gate.refuses = True
    async with asyncio.timeout(60):
        writing = asyncio.create_task(gate.write(4 * MAX_BUFFERED_CHUNKS, 1))
        await gate.reached.wait()
        for _ in range(20):
            await asyncio.sleep(0)
        assert not writing.done()
        gate.opened.set()
        with pytest.raises(StreamError, match="refused"):
            await writing
        await gate.writer.close()
    assert gate.batches == []


async def test_chunks_get_the_step_that_the_writer_is_at() -> None:
    steps: list[int] = []

    async def append(producer_id: str, counter: int, chunks: Sequence[NewChunk]) -> int:
        steps.extend(chunk.step for chunk in chunks)
        return counter

    writer = BatchingWriter(append, stream_id="s", run_id="r", agent_type="a", producer_id="p", clock=system_clock)
    await writer.write({"type": "text_delta", "delta": "x"})
    writer.step = 3
    await writer.write({"type": "text_delta", "delta": "x"})
    await writer.write({"type": "text_delta", "delta": "x", "step": 2})
    await writer.close()
    assert (steps, writer.step) == ([0, 3, 2], 3)
