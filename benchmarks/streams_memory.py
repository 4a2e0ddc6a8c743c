"""Streams in memory against bare append logs: `python -m benchmarks.streams_memory`.

20,000 chunks of about 120 bytes go from one writer to 1, 10, 100 and 1,000 readers of one process. The baselines are a
list and one wake-up event, nothing else: no check that a chunk is JSON, no stamps, no copy, no sequence, no end. The
`live` one gives its readers a turn after every chunk, as a producer that waits for a model does; the `bulk` one only
after every 512, as often as our writer stores a batch. With few readers `bulk` measures what checking, stamping and
copying cost; with many readers it measures delivery.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from typing import Any

from benchmarks.pairing import Report, pair_async
from helix_agents.backends.inmemory.stream_manager import InMemoryStreamManager

CHUNKS = 20_000
BULK = 512


def chunk() -> dict[str, Any]:
    return {"type": "text_delta", "delta": "x" * 24}  # about 120 bytes once stamped


class BareLog:
    """A list and an event."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self.event = asyncio.Event()
        self.ended = False

    async def append(self, item: Any) -> None:
        self.rows.append(item)
        self.event.set()
        self.event.clear()

    def end(self) -> None:
        self.ended = True
        self.event.set()

    async def read(self) -> AsyncIterator[Any]:
        index = 0
        while True:
            while index < len(self.rows):
                yield self.rows[index]
                index += 1
            if self.ended:
                return
            await self.event.wait()


async def count(source: Any) -> None:
    seen = 0
    async for _ in source:
        seen += 1
    if seen != CHUNKS:
        raise AssertionError(f"{seen} chunks arrived, not {CHUNKS}")


async def bare(readers: int, every: int) -> None:
    log = BareLog()
    tasks = [asyncio.create_task(count(log.read())) for _ in range(readers)]
    await asyncio.sleep(0)
    for number in range(CHUNKS):
        await log.append(chunk())
        if number % every == every - 1:
            await asyncio.sleep(0)
    log.end()
    await asyncio.gather(*tasks)


async def ours(readers: int) -> None:
    manager = InMemoryStreamManager(max_chunks=0)
    writer = await manager.create_writer("s", "run", "agent")
    tasks = [asyncio.create_task(count(await manager.create_reader("s"))) for _ in range(readers)]
    await asyncio.sleep(0)
    for _ in range(CHUNKS):
        await writer.write(chunk())
    await writer.close()
    await manager.end_stream("s")
    await asyncio.gather(*tasks)
    if manager.hub.subscriptions != 1:
        raise AssertionError(f"{manager.hub.subscriptions} subscriptions for {readers} readers")
    await manager.close()


async def main() -> int:
    report = Report()
    gc.disable()  # its pauses hit whatever happens to run
    for readers, rounds in ((1, 9), (10, 7), (100, 3), (1000, 3)):

        async def live(readers: int = readers) -> None:
            await bare(readers, 1)

        async def bulk(readers: int = readers) -> None:
            await bare(readers, BULK)

        async def streams(readers: int = readers) -> None:
            await ours(readers)

        contestants = {"streams": streams, "bulk": bulk}
        if readers <= 100:  # at 1,000 it takes minutes
            contestants["live"] = live
        paired = await pair_async(contestants, rounds=rounds, warmup=1)
        gc.collect()
        seconds = paired.median_ns("streams") / 1e9
        label = f"{readers:>5} readers"
        report.line(f"{label}: thousand deliveries a second", CHUNKS * readers / seconds / 1000)
        if "live" in contestants:
            report.line(f"{label}: throughput over a bare live log", paired.ratio("live", "streams"), at_least=0.5)
        bound = 0.5 if readers >= 100 else None
        report.line(f"{label}: throughput over a bare bulk log", paired.ratio("bulk", "streams"), at_least=bound)
    report.line("subscriptions of 1,000 readers", 1, at_most=1)
    return report.exit_code()


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main()))
