"""Telling a session's stream from one that an earlier session of the same id left behind.

A session that the executor creates resets such a stream. One that the store creates alone, as `fork_session` does,
cannot: the stream lies there until the first claim. Every claim raises the stream's fence, so a fenced stream
is never that of a session without an owner epoch, and the first claim deletes it before it raises the epoch.
"""

from __future__ import annotations

from contextlib import suppress

from ...errors import StreamFenced
from ...streams.contract import StreamInfo, StreamManager
from ...types import SessionState


async def stream_of(streams: StreamManager, session: SessionState) -> StreamInfo | None:
    """Return what is known about the session's stream; None if it has none yet."""
    info = await streams.get_stream_info(session.stream_id)
    return None if info is None or is_leftover(session, info) else info


def is_leftover(session: SessionState, info: StreamInfo) -> bool:
    """Return whether the stream under the session's id is an earlier session's.

    Unfenced streams are written without the executor: such a stream is the session's once it has been written to.
    """
    if session.owner_epoch or session.stream_id != session.session_id:
        return False
    return info.fence > 0 or info.updated_at < session.created_at


async def drop_leftover(streams: StreamManager | None, session: SessionState) -> None:
    """Delete what an earlier session left under the id, before the first claim of this one."""
    if streams is None or session.owner_epoch:
        return
    info = await streams.get_stream_info(session.stream_id)
    if info is not None and is_leftover(session, info):
        with suppress(StreamFenced):  # another process has claimed the session since it was read
            await streams.delete_stream(session.stream_id, fence=info.fence)
