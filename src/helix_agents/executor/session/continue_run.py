"""Handing a run over: it waits for a worker, and one of them goes on with it, in the same record and the same stream.

A run waits when it was submitted, when it was driven for some steps only, or when its process was told to stop between
two steps. Its lease is then `NOBODY`, which no clock ever says; a run whose process died has a lease that lapsed, and
must be taken over (`takeover.py`): there may be chunks to take back, and somebody who wakes up.

The lease comes first and the guarded write second. Whoever stalls between the two leaves a lease that lapses, and finds
the version moved when it wakes up; of two who come at the same time one loses the write. That write names the step that
is about to be worked on, and the commit of the step takes the name away again: a run that is stepped through keeps its
lease between two steps, and so tells whether somebody is at work (`is_between_steps`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from ...codec import Json
from ...errors import AlreadyRunning, IllegalTransition, RunLost, StreamFenced, VersionConflict
from ...ids import step_id
from ...messages import Message
from ...streams.contract import StreamInfo
from ...types import RunRecord, SessionState
from ..services import Services
from ..step.decisions import step_id_of
from ..stream.prepare import fence_for, fresh_stream, last_commit, ready_stream
from .claim import REPLACED, Claim
from .resumable import NOBODY, load_messages


async def continue_run(
    services: Services,
    session: SessionState,
    run: RunRecord,
    *,
    messages: Sequence[Message] | None = None,
    fence: int | None = None,
    metadata: Mapping[str, Json] | None = None,
) -> Claim:
    """Go on with a run that nobody has. Raises `AlreadyRunning` if somebody else was faster.

    `messages` and `fence`: the conversation and the fence of its stream, where the caller knows them as of this
    version. `metadata` is added to the record's.
    """
    claimed_at = services.clock()
    session_id = session.session_id
    seen = None if fence is not None else await services.streams.get_stream_info(session.stream_id)
    noted = None if metadata is None else {**run.metadata, **metadata}
    begins = session.suspended_step_id is not None or session.step_count == run.metadata.get("first_step")
    session = msgspec.structs.replace(
        session, suspended_step_id=session.suspended_step_id or step_id(run.run_id, session.step_count + 1)
    )
    try:
        record = run
        if noted is not None or (run.lease_until or NOBODY) - claimed_at < services.lease_ms // 2:
            record = await services.store.update_run_status(
                run.run_id,
                "running",
                lease_until=claimed_at + services.lease_ms,
                metadata=noted,
                expected_status="running",
            )
        wanted = msgspec.structs.replace(session, custom_state=None)
        version = await services.store.save_state(session_id, wanted, expected_version=session.version)
    except VersionConflict as error:
        raise AlreadyRunning(session_id, run.run_id) from error
    except IllegalTransition as error:
        raise RunLost(session_id, run.run_id, REPLACED) from error
    resumes = run.metadata.get("resumes") is not None
    claim = Claim(
        msgspec.structs.replace(session, version=version),
        await load_messages(services, session_id) if messages is None else messages,
        record,
        fence=fence_for(seen, version) if fence is None else fence + version,
        claimed_at=claimed_at,
        # Steps that are done leave nothing staged; only a run that took one over has an open step to begin with.
        staged=await services.store.list_staged(session_id, step_id_of(session, run.run_id)) if resumes else [],
        resumed=resumes,
        announce=begins,
        then=_said(run, session),
    )
    if fence is None:
        await _open_stream(services, claim, seen, told=run.lease_until == NOBODY)
    return claim


def is_between_steps(session: SessionState) -> bool:
    """Whether nobody works on a step of an active session whose run is stepped through."""
    return session.suspended_step_id is None


def _said(run: RunRecord, session: SessionState) -> Sequence[Message]:
    """What the user said while the step was open with which this run begins."""
    if run.metadata.get("open_step") != session.step_count + 1:
        return ()
    said: Sequence[Message] = run.metadata.get("then", ())
    return said


async def _open_stream(services: Services, claim: Claim, seen: StreamInfo | None, *, told: bool) -> None:
    """Most often the stream is open; whoever submitted the run may have died before it came to that.

    `told`: the last commit certainly is. Whoever kept the lease between two steps may have died in between.
    """
    if seen is not None and seen.status == "active" and told:
        return  # the writer raises the fence
    stream_id = claim.session.stream_id
    try:
        if seen is not None and seen.status in ("active", "paused"):
            await ready_stream(
                services.streams,
                stream_id,
                claim.fence,
                seen=seen,
                rewind_to=None if told else claim.session.step_count,
                checkpoint_id=None if told else await last_commit(services.store, claim.session),
            )
        else:
            await fresh_stream(services.streams, stream_id, claim.fence, seen=seen)
    except StreamFenced as error:
        raise claim.lost() from error
