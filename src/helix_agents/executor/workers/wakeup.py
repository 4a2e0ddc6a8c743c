"""Wake idle workers through a small stream when a run is submitted or handed over.

The stream carries no work: work is in the state store. Best effort: workers also poll, so a lost wake-up only delays
them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ...errors import HelixError, StreamCursorAhead, StreamTruncated
from ...retry import RECONNECT
from ...safe_text import get_logger
from ...streams.contract import StreamManager

logger = get_logger("helix_agents.executor")

STREAM_ID = "helix/workers"
"""The id of the stream. No session has this id."""


async def wake_workers(streams: StreamManager) -> None:
    """Wake idle workers. Never raises: workers also poll."""
    try:
        async with await streams.create_writer(STREAM_ID, "submit", "wakeup") as writer:
            await writer.write({"type": "custom", "name": "work", "data": None, "step": 0})
    except HelixError as error:
        logger.warning("Could not notify workers; they will pick up work on their next poll: %s", error)


async def listen(streams: StreamManager, wake: Callable[[], None]) -> None:
    """Call `wake` at every wake-up, forever."""
    while True:
        try:
            await _follow(streams, wake)
        except (StreamTruncated, StreamCursorAhead):
            wake()
        except HelixError as error:
            logger.warning("Could not wait for new work; retrying: %s", error)
            wake()
            await asyncio.sleep(RECONNECT.longest_seconds)


async def _follow(streams: StreamManager, wake: Callable[[], None]) -> None:
    info = await streams.get_stream_info(STREAM_ID)
    if info is None or info.status != "active":
        await (await streams.create_writer(STREAM_ID, "worker", "wakeup")).close()
        info = await streams.get_stream_info(STREAM_ID)
    reader = await streams.create_resumable_reader(STREAM_ID, from_sequence=info.latest_sequence if info else 0)
    if reader is None:
        await asyncio.sleep(RECONNECT.longest_seconds)
        return
    wake()  # for runs submitted before the reader was open
    try:
        async for _ in reader:
            wake()
    finally:
        await reader.close()
