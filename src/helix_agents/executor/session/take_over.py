"""Claims of an unfinished turn: a takeover in a new run, and the continuation of a released run.

A turn is taken over after a crash, an interrupt or a response. The stream drops chunks of a step that was never
committed; what is staged for the step stays, so that no finished call runs again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial

import msgspec

from ...errors import SessionNotFound, StreamError, StreamFenced
from ...ids import step_id
from ...messages import Message, identified, ids_of
from ...safe_text import get_logger
from ...streams.contract import StreamInfo
from ...types import Checkpoint, RunRecord, SessionState
from ..services import Services
from ..step.decisions import abandoned, step_id_of, turn_checkpoint
from ..stream.leftover import stream_of
from ..stream.prepare import drop_orphan, is_behind, ready_stream
from .branching import announce_start
from .claim import (
    Claim,
    NewRun,
    can_start_stream,
    commit_claim,
    ended_run,
    leased_run,
    next_epoch,
    start_stream,
    with_start_position,
)
from .observe import Found
from .queued_messages import queued_in
from .standing import UNOWNED, crashes_of, open_run

logger = get_logger("helix_agents.executor")


async def take_over(services: Services, found: Found, new: NewRun, *, message: Message | None = None) -> Claim:
    """Continue a turn that was interrupted, crashed or waits, in a new run. The caller has decided that it may.

    Raises `AlreadyRunning` if another process was faster, and `RunLost` if one took the session over from this claim.
    """
    session, run, now = found.existing, found.run, services.clock()
    earlier = await _run_of_turn(services, session, run)
    # A suspended step was shown completely; only a step that was never committed must be dropped from the stream.
    crashed = session.status == "active" or run is None
    stream = await stream_of(services.streams, session)
    shows_nothing = _shows_nothing(session, run, stream)
    history = await found.history(services.store)
    step = step_id_of(session, run.run_id if run is not None else new.run_id)
    given = _uncommitted_messages(run, session)
    is_open = bool(abandoned(history, ""))
    if not is_open and (given or message or session.queued_messages):
        is_open = bool(await services.store.list_staged(session.session_id, step))
    # While a step is open, queued messages stay queued: the commit of that step reads them.
    given = [*given, *([] if is_open else queued_in(session)), *([] if message is None else [message])]
    follow_up = given if is_open else []
    record = new.record(
        session.session_id,
        earlier.turn if earlier is not None else 1,
        earlier,
        first_step=earlier.first_step if earlier is not None else session.step_count,
        first_message=earlier.first_message if earlier is not None else len(history),
        claimed_step=session.step_count,
        crashes=_crashes_with(session, run, stream) if crashed else 0,
        follow_up=list(follow_up),
        open_step=session.step_count + 1 if follow_up else None,
        # A stream that shows nothing of the turn will be reset, which appends a chunk.
        start_sequence=stream.latest_sequence + shows_nothing if stream else 0,
        lease_until=(new.not_before or UNOWNED) if new.released else now + services.lease_ms,
        started_at=now,
    )
    checkpoint = turn_checkpoint(new.run_id, session.step_count)
    written = [] if is_open else identified(given, ids_of(history), checkpoint.step_id)
    wanted = _taken_over(session, step, queued=session.queued_messages if is_open else [])
    ended, start = ended_run(session, run, now), checkpoint if written else None
    commit = partial(commit_claim, services, session, wanted, written, start, run=record, change=ended)
    # A worker that continues a released run drops what was not committed.
    leaves_stream = new.released and crashed
    restarts = shows_nothing and not leaves_stream
    mine = await _claim_with_stream(services, session, stream, commit) if restarts else None
    is_started = mine is not None
    mine = mine or await commit()
    if (run := open_run(run)) is not None:
        logger.warning("Session %s was recovered: its run %s had died.", run.session_id, run.run_id)
    claim = Claim(mine, [*history, *written], record, claimed_at=now, resumed=True, follow_up=follow_up)
    if leaves_stream:
        return claim
    if restarts:
        is_open_now = replace(claim, stream_is_open=True) if is_started else await start_stream(services, claim, stream)
        return await _restarted(services, is_open_now, step)
    claim = await _open_stream(services, claim, stream, step, found, crashed=crashed)
    # Another process may have interrupted it after a crash.
    return await _with_gap(services, claim) if session.status == "interrupted" else claim


def _taken_over(session: SessionState, step: str, *, queued: list[Message]) -> SessionState:
    """Return the session as a takeover stores it."""
    return msgspec.structs.replace(
        session,
        status="active",
        resume_count=session.resume_count + 1,
        suspended_step_id=step,
        error=None,
        failure_reason=None,
        interrupt_context=None,
        wake_at=None,
        queued_messages=queued,
    )


async def _claim_with_stream(
    services: Services,
    session: SessionState,
    stream: StreamInfo | None,
    commit: Callable[..., Awaitable[SessionState]],
) -> SessionState | None:
    """Claim the session and start its stream in one write; None if the stores cannot, or the stream has changed."""
    if not can_start_stream(services, session.session_id, session.stream_id):
        return None
    with suppress(StreamError):
        fence = next_epoch(session, services.clock())
        return await commit(start=services.streams.starting(session.stream_id, fence=fence, seen=stream))
    return None


async def _restarted(services: Services, claim: Claim, step: str) -> Claim:
    """Complete a claim whose stream shows nothing of the turn yet. Raises `RunLost`."""
    claim = await announce_start(services, claim)
    return replace(claim, staged=await services.store.list_staged(claim.session.session_id, step), rewound=True)


def _shows_nothing(session: SessionState, run: RunRecord | None, stream: StreamInfo | None) -> bool:
    """Return whether the stream shows nothing of the session's turn.

    It may still show the previous turn, or the branch or checkpoint that another one has replaced, or only the marker
    of a reset.
    """
    if stream is None:
        return False
    if (run := open_run(run)) is None:
        return is_behind(stream, session, run)
    if session.status != "active" or session.step_count != run.first_step:
        return False
    ahead = run.start_sequence - stream.latest_sequence
    return ahead > 0 or (ahead == 0 and stream.total_chunks <= 1)


async def _open_stream(
    services: Services, claim: Claim, seen: StreamInfo | None, step: str, found: Found, *, crashed: bool
) -> Claim:
    """Prepare the stream of an unfinished turn; after a crash, rewind it to the last commit. Raises `RunLost`."""
    session = claim.session
    try:
        ready = await ready_stream(
            services.streams,
            session.stream_id,
            claim.fence,
            seen=seen,
            rewind_to=session.step_count if crashed else None,
            committed=found.last_commit,
        )
        # Read after the claim: the previous owner can no longer stage anything.
        staged = await services.store.list_staged(session.session_id, step)
    except StreamFenced as error:
        raise claim.lost() from error
    except SessionNotFound as error:
        await drop_orphan(services.store, services.streams, session, claim.fence)
        raise claim.lost("the session was deleted") from error
    is_hidden = bool(abandoned(claim.messages, "")) and _is_reset(found.checkpoint, seen)
    is_rewound = ready.rewound or is_hidden
    return replace(await with_start_position(services, claim, ready), staged=staged, rewound=is_rewound)


def _is_reset(latest: Checkpoint | None, stream: StreamInfo | None) -> bool:
    """Return whether a stream shows nothing of the step that this checkpoint put aside: its branch, or the checkpoint
    itself, has been restored since then."""
    return stream is not None and latest is not None and latest.stream_sequence < stream.first_sequence


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
    """Return how many runs in a row died without a commit, including the latest if it had started working.

    A run that wrote no chunk had only been claimed, so this session did not kill its process.
    """
    has_worked = run is not None and stream is not None and stream.latest_sequence > run.start_sequence
    return crashes_of(session, run) + (1 if has_worked and open_run(run) else 0)


async def _run_of_turn(services: Services, session: SessionState, run: RunRecord | None) -> RunRecord | None:
    """Return the last run of the session's current turn; after a restore, that may not be the latest run."""
    if run is None or run.first_step <= session.step_count:
        return run
    runs = await services.store.list_runs(session.session_id)
    return next((each for each in reversed(runs) if each.first_step <= session.step_count), None)


def _uncommitted_messages(run: RunRecord | None, session: SessionState) -> list[Message]:
    """Return the messages of earlier runs that were never committed."""
    return [] if run is None or run.open_step != session.step_count + 1 else list(run.follow_up)


# -- a released run


async def continue_run(
    services: Services,
    found: Found,
    *,
    worker: str | None = None,
    known: bool = False,
    wrote_at: float | None = None,
) -> Claim:
    """Continue a released run. Raises `AlreadyRunning` if another process was faster.

    `known`: this process did the last step, so the stream is ready. `wrote_at`: when that step wrote to the stream, if
    that was only a moment ago. Then the stream has not expired, and its fence keeps out all but later owners.
    """
    session, run, now = found.existing, found.run, services.clock()
    assert run is not None
    stream = None if known else await stream_of(services.streams, session)
    starts_step = session.suspended_step_id is not None or session.step_count == run.first_step
    claimed = {"claimed_step": session.step_count, "worker": worker or run.worker, "not_before": None, "crashes": 0}
    change = leased_run(run, now + services.lease_ms, **claimed)
    step = session.suspended_step_id or step_id(run.run_id, session.step_count + 1)
    wanted = msgspec.structs.replace(session, suspended_step_id=step)
    mine = await commit_claim(services, session, wanted, change=change)
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
        announce=starts_step,
        follow_up=_uncommitted_messages(run, session),
        stream_is_open=wrote_at is not None,
        wrote_at=wrote_at,
    )
    if known:
        return claim  # the writer raises the fence, if it has to
    return await _with_stream(services, found, claim, stream)


async def _with_stream(services: Services, found: Found, claim: Claim, stream: StreamInfo | None) -> Claim:
    """Prepare the stream of a run that this process continues. `stream`: what was known before the claim."""
    session, run = found.existing, claim.run
    if stream is None or stream.status in ("ended", "failed") or stream.latest_sequence < run.start_sequence:
        # The process that queued the run died before it prepared the stream.
        return await announce_start(services, await start_stream(services, claim, stream))
    # Only a crash leaves a stream active that the run's claim has not touched.
    crashed = claim.resumed and claim.announce and stream.status == "active" and stream.fence < session.owner_epoch
    try:
        # The process that did the last step may also have died before it announced the commit.
        if crashed or (found.run is not None and session.step_count > found.run.claimed_step):
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
