"""Restore and delete sessions, for the executor, the server and the command line.

Both pass what they read as a guard: a session that was continued or created again since then stays unchanged.
"""

from __future__ import annotations

import msgspec

from ...errors import AlreadyRunning, RunLost, SessionNotFound, StreamFenced
from ...failures import PARENT_RESTORED
from ...lifecycle import SESSION_TERMINAL
from ...retry import CLOSING
from ...stores.state.commit import RunChange
from ...stores.state.contract import StateStore
from ...stores.state.tree import session_tree
from ...stores.usage.contract import UsageStore
from ...streams.contract import StreamManager
from ...types import Owner, SessionState
from ..stream.leftover import drop_leftover
from ..stream.prepare import replace_stream
from .claim import REPLACED, next_epoch
from .closing import Ending, decided, fail_session
from .left_behind import abandoned_effects_message
from .observe import Sessions, load_messages
from .standing import Intent, open_run


async def restore_session(
    services: Sessions, session_id: str, checkpoint_id: str, *, user_id: str | None = None
) -> SessionState:
    """Restore a session and its stream to one of its checkpoints. Raises `AlreadyRunning` if it is running.

    Ends an open run in the same write.
    """
    found, _ = await decided(services, Intent.RESTORE, session_id, user_id=user_id)
    session, run = found.existing, found.run
    now = services.clock()
    epoch = next_epoch(session, now)
    undone = None
    if (undoes := open_run(run)) is not None:
        why = "The session was restored."
        undone = RunChange(undoes, msgspec.structs.replace(undoes, status="interrupted", error=why, completed_at=now))
    await drop_leftover(services.streams, session)
    version = await services.store.restore_checkpoint(
        session_id,
        checkpoint_id,
        append_messages=await abandoned_effects_message(services, session, run, checkpoint_id),
        expected_version=session.version,
        change_run=undone,
        owner=Owner(session.incarnation),
        new_epoch=epoch,
    )
    restored = await services.store.load_state(session_id)
    if restored is None:
        raise SessionNotFound(session_id)
    if restored.version != version:
        raise AlreadyRunning(session_id)
    if services.streams is not None:
        try:
            if await services.streams.get_stream_info(restored.stream_id) is not None:
                await replace_stream(services.streams, restored, epoch)
        except StreamFenced as error:
            raise RunLost(session_id, run.run_id if run else "", REPLACED) from error
    await _end_undone_children(services, restored)
    return restored


async def _end_undone_children(services: Sessions, restored: SessionState) -> None:
    """End the sub-agents of calls that the restored conversation does not contain: no run will continue them."""
    refs = await services.store.list_sub_session_refs(restored.session_id)
    open_refs = [ref for ref in refs if ref.status not in SESSION_TERMINAL and ref.remote is None]
    if not open_refs:
        return
    messages = await load_messages(services.store, restored.session_id)
    called = {call["id"] for message in messages for call in message.get("tool_calls", ())}
    undone = [ref.sub_session_id for ref in open_refs if ref.parent_tool_call_id not in called]

    async def check() -> None:
        stored = await services.store.load_state(restored.session_id)
        if stored is None or stored.version != restored.version:
            raise AlreadyRunning(restored.session_id)

    ending = Ending("failed", "The session was restored to an earlier step.", PARENT_RESTORED)
    for session_id in undone:
        await fail_session(services, session_id, ending, check)


async def delete_tree(
    services: Sessions, usage: UsageStore | None, session: SessionState, *, keep_usage: bool = False
) -> bool:
    """Delete a session, its descendants, their streams and their usage. If it is interrupted, call it again.

    A session that was created again since the caller read `session` stays, with its stream. A stream that also has
    another session's id belongs to that session and stays.
    """
    store, streams = services.store, services.streams
    sessions = await session_tree(store, session.session_id)
    if not any(each.incarnation == session.incarnation for each in sessions):
        return False
    deleted = await store.delete_session(session.session_id, owner=Owner(session.incarnation))
    for each in sessions:
        if streams is not None:
            await _delete_stream(store, streams, each)
        if usage is not None and not keep_usage:
            await usage.delete_entries(each.session_id, incarnation=each.incarnation)
    return deleted


async def _delete_stream(store: StateStore, streams: StreamManager, deleted: SessionState) -> None:
    """Delete the stream of a deleted session, under the fence of its last owner.

    A session that is created again claims the stream with a larger fence. So does a run that claimed the session
    just before it was deleted: then no session exists, and the deletion uses that fence.
    """
    fence = deleted.owner_epoch
    for _ in CLOSING.attempts():
        if await store.session_exists(deleted.session_id) or await store.session_exists(deleted.stream_id):
            return
        try:
            return await streams.delete_stream(deleted.stream_id, fence=fence)
        except StreamFenced as error:
            fence = error.current_fence
