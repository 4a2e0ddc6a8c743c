"""Tell a session's stream from one that an earlier session of the same id left behind.

A session that the executor creates resets such a stream. A session that only the store creates, as `fork_session` does,
cannot: the stream stays until the first claim. Every claim raises the stream's fence, so a fenced stream never belongs
to a session without an owner epoch, and the first claim deletes it before it raises the epoch.
"""

from __future__ import annotations

from contextlib import suppress

from ...errors import StreamFenced
from ...streams.contract import StreamInfo, StreamManager
from ...types import SessionState


async def stream_of(streams: StreamManager, session: SessionState) -> StreamInfo | None:
    """Return the metadata of the session's stream; None if it has none yet."""
    info = await streams.get_stream_info(session.stream_id)
    return None if info is None or is_leftover(session, info) else info


def is_leftover(session: SessionState, info: StreamInfo) -> bool:
    """Return whether the stream under the session's id is an earlier session's.

    Unfenced streams are written without the executor: such a stream belongs to the session if it was written to since
    the session was created.
    """
    if session.owner_epoch or session.stream_id != session.session_id:
        return False
    return info.fence > 0 or info.updated_at < session.created_at


async def drop_leftover(streams: StreamManager | None, session: SessionState) -> None:
    """Delete the stream that an earlier session left under the id, before the first claim of this one."""
    if streams is None or session.owner_epoch:
        return
    info = await streams.get_stream_info(session.stream_id)
    if info is not None and is_leftover(session, info):
        with suppress(StreamFenced):  # another process has claimed the session since it was read
            await streams.delete_stream(session.stream_id, fence=info.fence)
