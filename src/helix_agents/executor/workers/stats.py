"""Count recovered runs per UTC day, in one small stream a day.

The latest sequence of the stream is the count, across all processes; reading it costs the same however many sessions
there are. A failed write is logged and missing from the count.
"""

from __future__ import annotations

from datetime import UTC, datetime

from ...errors import HelixError
from ...safe_text import get_logger
from ...streams.contract import StreamManager

logger = get_logger("helix_agents.executor")


def _stream_of(now: int) -> str:
    return f"helix/recovered/{datetime.fromtimestamp(now / 1000, UTC):%Y-%m-%d}"


async def note_recovered(streams: StreamManager, session_id: str, now: int) -> None:
    """Count a run that was recovered after its process died. Never raises."""
    try:
        async with await streams.create_writer(_stream_of(now), "recover", "recover") as writer:
            await writer.write({"type": "custom", "name": "recovered", "data": {"session_id": session_id}, "step": 0})
    except HelixError as error:
        logger.warning("Could not count the recovery of session %s: %s", session_id, error)


async def recovered_today(streams: StreamManager, now: int) -> int:
    """Return how many runs were recovered since midnight UTC."""
    info = await streams.get_stream_info(_stream_of(now))
    return 0 if info is None else info.latest_sequence
