"""Tidying up: what a run that died right after its last commit had left to do, and what hangs on a session that failed.

The session is over and says so; its stream may not be closed, rows may be staged, and the run's record says `running`.
Exactly one process does this, as it does a claim: the stall of another one changes nothing. Nobody goes on with what is
below a session that failed: it ends, too.
"""

from __future__ import annotations

from contextlib import suppress

import msgspec

from ...errors import (
    AlreadyRunning,
    IllegalTransition,
    InvalidArgument,
    RunLost,
    SessionNotFound,
    StreamFenced,
    VersionConflict,
)
from ...lifecycle import SESSION_TERMINAL
from ...types import RunRecord, SessionState
from ..services import Services
from ..stream.prepare import close_stream, fence_for
from .claim import REPLACED
from .failing import close_given_up, give_up
from .resumable import has_crashed


async def tidy_up(services: Services, session: SessionState, run: RunRecord) -> None:
    """Close the stream and the record of a run that ended its session. Raises `AlreadyRunning` and `RunLost`."""
    store = services.store
    seen = await services.streams.get_stream_info(session.stream_id)
    try:
        # The lease comes first: who reads the session as this claim leaves it finds a run that lives, and waits until
        # it is done (`load_settled`). Of those who have read it before, one wins.
        lease_until = services.clock() + services.lease_ms
        await store.update_run_status(run.run_id, "running", lease_until=lease_until, expected_status="running")
        version = await store.save_state(
            session.session_id,
            msgspec.structs.replace(session, custom_state=None, resume_count=session.resume_count + 1),
            expected_version=session.version,
        )
    except (IllegalTransition, VersionConflict) as error:
        raise AlreadyRunning(session.session_id, run.run_id) from error
    latest = await store.get_latest_checkpoint(session.session_id)
    if session.status == "failed":
        below = [ref.sub_session_id for ref in await store.list_sub_session_refs(session.session_id)]
        await fail_children(services, below, session.error or "failed", session.failure_reason or "error")
    try:
        fence = fence_for(seen, version)
        await close_stream(services.streams, session, latest.checkpoint_id if latest else None, fence)
        await store.discard_staging(session.session_id, expected_version=version)
        await store.update_run_status(
            run.run_id,
            "completed" if session.status == "completed" else "failed",
            error=session.error,
            output=session.output,
            completed_at=services.clock(),
            expected_status="running",
        )
    except (IllegalTransition, StreamFenced, VersionConflict) as error:
        raise RunLost(session.session_id, run.run_id, REPLACED) from error


async def fail_children(services: Services, session_ids: list[str], error: str, reason: str) -> None:
    """End sessions that nobody will go on with, and those below them, with the reason of the cascade."""
    for session_id in session_ids:
        session = await services.store.load_state(session_id)
        if session is None:
            continue
        if session.status in SESSION_TERMINAL:
            await _tidy_up_crashed(services, session)
            continue
        given_up = await give_up(services.store, session, error, reason)
        if given_up is None:
            continue
        await _note_failed(services, session)
        below = [ref.sub_session_id for ref in await services.store.list_sub_session_refs(session_id)]
        await fail_children(services, below, error, reason)
        await close_given_up(services.store, services.streams, given_up, clock=services.clock)


async def _tidy_up_crashed(services: Services, session: SessionState) -> None:
    run = await services.store.get_current_run(session.session_id)
    if run is not None and has_crashed(run, services.clock()):
        with suppress(AlreadyRunning, RunLost):  # another process was faster
            await tidy_up(services, session, run)


async def _note_failed(services: Services, session: SessionState) -> None:
    """Let the ref of the session above say it, too, if that is still there."""
    if session.parent_session_id is None:
        return
    with suppress(SessionNotFound, InvalidArgument):
        await services.store.update_sub_session_ref(
            session.parent_session_id, session.session_id, status="failed", completed_at=services.clock()
        )
