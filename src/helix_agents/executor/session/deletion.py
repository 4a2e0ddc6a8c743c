"""What goes when a session is deleted: the one rule, for the executor, the server and the command line.

The session and all below it, each one's stream, and what they spent. A stream that bears the name of another session
belongs to that one and stays. Knows only the contracts; whoever calls has seen to it that nothing runs any more.
"""

from __future__ import annotations

from ...stores.state.contract import StateStore
from ...stores.state.tree import session_tree
from ...stores.usage.contract import UsageStore
from ...streams.contract import StreamManager

DELETING = "the session is being deleted"
"""Why its runs and streams stop first. Whoever reads a stream that fails so has seen the end of the session."""


async def delete_tree(
    store: StateStore, streams: StreamManager, usage: UsageStore | None, session_id: str, *, keep_usage: bool = False
) -> bool:
    """Delete a session and all that hangs on it; False if there was none. Cut short, it can be called again."""
    sessions = await session_tree(store, session_id)
    deleted = await store.delete_session(session_id)
    for session in sessions:
        if not await store.session_exists(session.stream_id):
            await streams.delete_stream(session.stream_id)
        if usage is not None and not keep_usage:
            await usage.delete_entries(session.session_id, include_sub_sessions=False)
    return deleted
