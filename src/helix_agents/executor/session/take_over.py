"""Claims of an unfinished turn: a take-over, in a new run, and the continuation of a run that was released.

A turn is taken over after a crash, an interrupt or an answer. The chunks of a step that was never committed are taken
back from the stream; what is staged for it stays, so that no finished call runs again.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec

from ...errors import SessionNotFound, StreamFenced
from ...ids import step_id
from ...messages import Message, identified, ids_of
from ...safe_text import get_logger
from ...streams.contract import StreamInfo
from ...types import Checkpoint, RunRecord, SessionState
from ..services import Services
from ..step.decisions import abandoned, step_id_of, turn_checkpoint
from ..stream.leftover import stream_of
from ..stream.prepare import drop_orphan, ready_stream
from .branching import announce_start
from .claim import Claim, NewRun, ended_run, leased_run, placed, start_stream, take
from .observe import Found
from .queued_messages import queued_in
from .standing import UNOWNED, crashes_of, open_run

logger = get_logger("helix_agents.executor")


async def take_over(services: Services, found: Found, new: NewRun, *, message: Message | None = None) -> Claim:
    """Continue a turn that was interrupted, crashed or waits, in a new run. The caller has decided that it may.

    Raises `AlreadyRunning` if another process was faster, and `RunLost` if one took the session from this claim.
    """
    session, run, now = found.existing, found.run, services.clock()
    earlier = await _run_of_turn(services, session, run)
    # What was put aside was shown completely; only what was never committed has to be taken back.
    crashed = session.status == "active" or run is None
    stream = await stream_of(services.streams, session)
    unshown = crashed and _is_unshown(session, run, stream)
    history = await found.history(services.store)
    step = step_id_of(session, run.run_id if run is not None else new.run_id)
    said = _said_since(run, session)
    is_open = bool(abandoned(history, ""))
    if not is_open and (said or message or session.queued_messages):
        is_open = bool(await services.store.list_staged(session.session_id, step))
    # While a step is open, queued messages stay queued: the commit of that step takes them.
    said = [*said, *([] if is_open else queued_in(session)), *([] if message is None else [message])]
    then = said if is_open else []
    record = new.record(
        session.session_id,
        earlier.turn if earlier is not None else 1,
        earlier,
        first_step=earlier.first_step if earlier is not None else session.step_count,
        first_message=earlier.first_message if earlier is not None else len(history),
        claimed_step=session.step_count,
        crashes=_crashes_with(session, run, stream) if crashed else 0,
        follow_up=list(then),
        open_step=session.step_count + 1 if then else None,
        # A stream that shows nothing of the turn is going to be reset, which appends a chunk.
        start_sequence=stream.latest_sequence + unshown if stream else 0,
        lease_until=(new.not_before or UNOWNED) if new.released else now + services.lease_ms,
        started_at=now,
    )
    wanted = msgspec.structs.replace(
        session,
        status="active",
        resume_count=session.resume_count + 1,
        suspended_step_id=step,
        error=None,
        failure_reason=None,
        interrupt_context=None,
        wake_at=None,
        queued_messages=session.queued_messages if is_open else [],
    )
    checkpoint = turn_checkpoint(new.run_id, session.step_count)
    written = [] if is_open else identified(said, ids_of(history), checkpoint.step_id)
    start, ended = checkpoint if written else None, ended_run(session, run, now)
    mine = await take(services, session, wanted, written, start, run=record, change=ended)
    if (run := open_run(run)) is not None:
        logger.warning("Session %s was recovered: its run %s had stopped without an end.", run.session_id, run.run_id)
    claim = Claim(mine, [*history, *written], record, claimed_at=now, resumed=True, then=then)
    if new.released and crashed:
        return claim  # the worker that continues the run takes back what was not committed
    if unshown:
        return await _begin_again(services, claim, stream, step)
    claim = await _open_stream(services, claim, stream, step, found.last_commit, crashed=crashed)
    # It may have been interrupted from outside, after a crash.
    return await _with_gap(services, claim) if session.status == "interrupted" else claim


async def _begin_again(services: Services, claim: Claim, stream: StreamInfo | None, step: str) -> Claim:
    """Make the stream of a turn ready of which it shows nothing. Raises `RunLost`."""
    claim = await announce_start(services, await start_stream(services, claim, stream))
    return replace(claim, staged=await services.store.list_staged(claim.session.session_id, step), rewound=True)


def _is_unshown(session: SessionState, run: RunRecord | None, stream: StreamInfo | None) -> bool:
    """Return whether a turn has committed nothing and its stream shows nothing of it.

    The stream may still be that of the turn before, or of the branch that this turn has left; or a reset announces
    itself in it, and nothing follows.
    """
    run = open_run(run)
    if run is None or stream is None or session.step_count != run.first_step:
        return False
    ahead = run.start_sequence - stream.latest_sequence
    return ahead > 0 or (ahead == 0 and stream.total_chunks <= 1)


async def _open_stream(
    services: Services, claim: Claim, seen: StreamInfo | None, step: str, committed: Checkpoint | None, *, crashed: bool
) -> Claim:
    """Make the stream of an unfinished turn ready, back to its last commit after a crash. Raises `RunLost`."""
    session = claim.session
    try:
        ready = await ready_stream(
            services.streams,
            session.stream_id,
            claim.fence,
            seen=seen,
            rewind_to=session.step_count if crashed else None,
            committed=committed,
        )
        # Read after the claim: the owner before can stage nothing any more.
        staged = await services.store.list_staged(session.session_id, step)
    except StreamFenced as error:
        raise claim.lost() from error
    except SessionNotFound as error:
        await drop_orphan(services.store, services.streams, session, claim.fence)
        raise claim.lost("the session was deleted") from error
    return replace(await placed(services, claim, ready), staged=staged, rewound=ready.rewound)


async def _with_gap(services: Services, claim: Claim) -> Claim:
    """Return the claim with `rewound` set if the stream shows nothing of a step that has staged rows.

    A process that stopped the session from outside, or took it over and released it, has dropped those chunks.
    """
    if claim.rewound or not claim.staged:
        return claim
    open_step = claim.session.step_count + 1
    shown = await services.streams.get_chunks_from_step(claim.session.stream_id, open_step)
    return replace(claim, rewound=not any(stored.chunk.get("step", 0) >= open_step for stored in shown))


def _crashes_with(session: SessionState, run: RunRecord | None, stream: StreamInfo | None) -> int:
    """Return how many runs in a row died without a commit, the latest included if it had got to work.

    A run that wrote no chunk had only been claimed: whatever killed its process, it was not this session.
    """
    began = run is not None and stream is not None and stream.latest_sequence > run.start_sequence
    return crashes_of(session, run) + (1 if began and open_run(run) else 0)


async def _run_of_turn(services: Services, session: SessionState, run: RunRecord | None) -> RunRecord | None:
    """Return the last run of the turn that the session is in: an earlier one than its latest run's after a restore."""
    if run is None or run.first_step <= session.step_count:
        return run
    runs = await services.store.list_runs(session.session_id)
    return next((each for each in reversed(runs) if each.first_step <= session.step_count), None)


def _said_since(run: RunRecord | None, session: SessionState) -> list[Message]:
    """Return what the user said to runs that never committed it."""
    return [] if run is None or run.open_step != session.step_count + 1 else list(run.follow_up)


# -- a released run


async def continue_run(services: Services, found: Found, *, worker: str | None = None, known: bool = False) -> Claim:
    """Continue a run that was released. Raises `AlreadyRunning` if another process was faster.

    `known`: this process did the last step, so the stream is ready.
    """
    session, run, now = found.existing, found.run, services.clock()
    assert run is not None
    stream = None if known else await stream_of(services.streams, session)
    begins = session.suspended_step_id is not None or session.step_count == run.first_step
    claimed = {"claimed_step": session.step_count, "worker": worker or run.worker, "not_before": None, "crashes": 0}
    change = leased_run(run, now + services.lease_ms, **claimed)
    step = session.suspended_step_id or step_id(run.run_id, session.step_count + 1)
    wanted = msgspec.structs.replace(session, suspended_step_id=step)
    mine = await take(services, session, wanted, change=change)
    resumes = run.resumes is not None
    claim = Claim(
        mine,
        await found.history(services.store),
        change.wanted,
        claimed_at=now,
        # Committed steps leave nothing staged; only a run that took another over starts with an open step.
        staged=await services.store.list_staged(session.session_id, step_id_of(mine, run.run_id)) if resumes else [],
        starts=run.attempt == 1 and session.step_count == run.first_step,
        resumed=resumes,
        announce=begins,
        then=_said_since(run, session),
    )
    if known:
        return claim  # the writer raises the fence
    if stream is None or stream.status in ("ended", "failed") or stream.latest_sequence < run.start_sequence:
        # The process that queued the run died before its stream was ready.
        return await announce_start(services, await start_stream(services, claim, stream))
    # Nothing but a crash leaves a stream active that the run's claim has not touched.
    crashed = resumes and begins and stream.status == "active" and stream.fence < session.owner_epoch
    try:
        # The process that did the last step may also have died before it announced the commit.
        if crashed or session.step_count > run.claimed_step:
            ready = await ready_stream(
                services.streams,
                session.stream_id,
                claim.fence,
                seen=stream,
                rewind_to=session.step_count,
                committed=found.last_commit,
            )
            return replace(claim, rewound=ready.rewound)
        if stream.status == "paused":
            await services.streams.resume_stream(session.stream_id, fence=claim.fence)
    except StreamFenced as error:
        raise claim.lost() from error
    return await _with_gap(services, claim)
