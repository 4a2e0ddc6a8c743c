"""Going back to a checkpoint: the session, and what those who stream it have to hear of it."""

from __future__ import annotations

from ...clock import Clock
from ...errors import AlreadyRunning, SessionNotFound
from ...stores.state.contract import StateStore
from ...streams.contract import StreamManager
from ...types import SessionState
from .resumable import is_live


async def restore_session(
    store: StateStore, streams: StreamManager, session_id: str, checkpoint_id: str, *, clock: Clock
) -> SessionState:
    """Take a session back to one of its checkpoints, and its stream with it. Raises `AlreadyRunning` if it is at work.

    Whoever streams the session must not go on with what no longer happened.
    """
    session = await store.load_state(session_id)
    if session is None:
        raise SessionNotFound(session_id)
    run = await store.get_current_run(session_id)
    if is_live(run, clock()):
        raise AlreadyRunning(session_id, run.run_id if run else None)
    await store.restore_checkpoint(session_id, checkpoint_id, expected_version=session.version)
    restored = await store.load_state(session_id)
    if restored is None:
        raise SessionNotFound(session_id)
    await streams.cleanup_to_step(restored.stream_id, restored.step_count)
    return restored
