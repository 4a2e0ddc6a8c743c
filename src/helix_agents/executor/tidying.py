"""Tidying up: what a run that died right after its last commit had left to do.

The session is over and says so; its stream may not be closed, rows may be staged, and the run's record says `running`.
Exactly one process does this, as it does a claim: the stall of another one changes nothing.
"""

from __future__ import annotations

import msgspec

from ..errors import AlreadyRunning, IllegalTransition, RunLost, StreamFenced, VersionConflict
from ..types import RunRecord, SessionState
from .claim import REPLACED
from .recovery import close_stream, fence_for
from .services import Services


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
