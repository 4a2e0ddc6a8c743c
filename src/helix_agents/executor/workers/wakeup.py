"""The bell: a small stream that wakes idle workers when a run is submitted or handed over.

It carries no work. What there is to do is in the state store; a ring that is lost costs the time until a worker looks
by itself. Whoever rings does not wait for anybody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ...errors import HelixError, StreamCursorAhead, StreamTruncated
from ...retry import RECONNECT
from ...safe_text import get_logger
from ...streams.contract import StreamManager

logger = get_logger("helix_agents.executor")

BELL = "helix/workers"
"""The id of the stream. It is nobody's session."""


async def ring(streams: StreamManager) -> None:
    """Wake the workers. Never fails: they also look by themselves."""
    try:
        async with await streams.create_writer(BELL, "submit", "bell") as writer:
            await writer.write({"type": "custom", "name": "work", "data": None, "step": 0})
    except HelixError as error:
        logger.warning("Cannot wake the workers now: %s They look by themselves, a little later.", error)


async def listen(streams: StreamManager, wake: Callable[[], None]) -> None:
    """Call `wake` at every ring, for ever."""
    while True:
        try:
            await _follow(streams, wake)
        except (StreamTruncated, StreamCursorAhead):
            wake()
        except HelixError as error:
            logger.warning("Cannot hear of new work now: %s", error)
            wake()
            await asyncio.sleep(RECONNECT.longest_seconds)


async def _follow(streams: StreamManager, wake: Callable[[], None]) -> None:
    info = await streams.get_stream_info(BELL)
    if info is None or info.status != "active":
        await (await streams.create_writer(BELL, "worker", "bell")).close()
        info = await streams.get_stream_info(BELL)
    reader = await streams.create_resumable_reader(BELL, from_sequence=info.latest_sequence if info else 0)
    if reader is None:
        await asyncio.sleep(RECONNECT.longest_seconds)
        return
    wake()  # what was submitted before the reader stood
    try:
        async for _ in reader:
            wake()
    finally:
        await reader.close()
