"""Taking a session: a new one, the next turn of a finished one, or one whose run stopped, crashed or waits.

A claim has four steps. It may stall after any of them for longer than a lease; then another process takes over, and
what this one does after it wakes up is refused.

1. *Look*: load the session, its latest run and the fence of its stream. What is staged for an open step is copied under
   the new run's name (an old run that wakes up writes to the old one), guarded by the version.
2. *Take*: the one write that wins the session, guarded by the version. It holds what the user said, and names the step
   that the new run is going to work on (`suspended_step_id`), so that everybody can tell whose session it is.
3. *Fence*: make the stream ready under a fence that is larger than that of every earlier claim.
4. *Record*: begin the new run's record with its lease, guarded by the version again, and close the old one.

A turn needs no step 4: its record begins in the write that takes the session, so that a crash at any point leaves a run
whose lease lapses, which `list_claimable` finds. Who loses step 2 gets `AlreadyRunning`, who loses a later one
`RunLost`. A take-over that dies before step 4 leaves the old record; the session can be claimed again once it has been
still for the length of a lease.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import msgspec

from ..agent import Agent
from ..codec import Json
from ..errors import (
    AlreadyRunning,
    IllegalTransition,
    InvalidArgument,
    NotResumable,
    RunLost,
    RunNotFound,
    SessionExists,
    SessionNotFound,
    StreamFenced,
    VersionConflict,
)
from ..lifecycle import SESSION_TERMINAL
from ..messages import Message
from ..streams.contract import StreamInfo
from ..types import CheckpointMeta, RunRecord, RunStatus, SessionState, StagedChanges
from .idempotency import claimed_run
from .queueing import queued_in
from .recovery import ReadyStream, fence_for, fresh_stream, ready_stream
from .services import Services
from .step import abandoned, is_step_of, step_id, step_id_of, turn_checkpoint
from .suspension import all_waiting

logger = logging.getLogger("helix_agents.executor")

NOBODY = 0
"""The lease of a run that nobody has, in good order: between two steps, or before the first. Any worker may go on."""

WIND_UP_POLL_SECONDS = 0.02
MAX_TRIES = 50

RUNNING = "it is running"
ABOUT_TO_RUN = "it is about to run"
REPLACED = "another process has taken the session over"


@dataclass(frozen=True)
class Claim:
    """A session taken, with all that its new run has to know."""

    session: SessionState
    messages: Sequence[Message]
    run: RunRecord
    fence: int
    """What the run passes with every change of its stream."""
    claimed_at: int
    staged: Sequence[StagedChanges] = ()
    rewound: bool = False
    resumed: bool = False
    announce: bool = True
    """Whether the run tells its stream that it begins; one that only goes on elsewhere does not."""
    then: Sequence[Message] = ()
    """What the user said while a step was open; it follows that step."""

    def lost(self, why: str = REPLACED) -> RunLost:
        """The error for whoever believed to have the session."""
        return RunLost(self.session.session_id, self.run.run_id, why)


class Seen(NamedTuple):
    """A session and its latest run as somebody saw them; None if there were none."""

    session: SessionState | None
    run: RunRecord | None


class CanResume(msgspec.Struct, frozen=True):
    """Whether `resume` has something to do, and why or why not."""

    can_resume: bool
    reason: str


def is_live(run: RunRecord | None, now: int) -> bool:
    """Whether a run is believed to be executing somewhere."""
    return run is not None and run.status == "running" and (run.lease_until or 0) > now


def has_crashed(run: RunRecord | None, now: int) -> bool:
    """Whether a run stopped without saying so."""
    return run is not None and run.status == "running" and not is_live(run, now)


def waits_for_worker(run: RunRecord | None) -> bool:
    """Whether a run was submitted or handed over, and nobody has taken it yet."""
    return run is not None and run.status == "running" and run.lease_until == NOBODY


def is_untouched(session: SessionState, run: RunRecord | None) -> bool:
    """Whether nobody has begun a turn yet: a session made by hand, or by a process that died right then."""
    return session.status == "active" and run is None and session.suspended_step_id is None


async def can_resume(
    services: Services, session: SessionState, run: RunRecord | None, *, message: bool = False
) -> CanResume:
    """Whether the session can be taken up again now, with a message or without."""
    now = services.clock()
    if session.status in SESSION_TERMINAL:
        if has_crashed(run, now):
            return CanResume(True, f"{session.status}, but its process died before it could close the stream")
        return CanResume(False, f"it is {session.status}; execute() begins the next turn")
    if session.status == "active":
        if is_live(run, now):
            return CanResume(False, RUNNING)
        if session.updated_at + services.lease_ms > now and await _is_claimed(services, session, run):
            return CanResume(False, ABOUT_TO_RUN)
    if not message and await _has_no_message(services, session):
        return CanResume(False, "it has no message to go on from; execute() begins its first turn")
    if session.status == "active":
        if waits_for_worker(run):
            return CanResume(True, "it waits for a worker")
        return CanResume(True, "its process died" if has_crashed(run, now) else "nothing runs it")
    if session.status in ("interrupted", "paused"):
        return CanResume(True, f"it is {session.status}")
    waits = await all_waiting(services.store, session, now)
    if waits and not message:
        names = ", ".join(f"{wait.tool_name} ({wait.tool_call_id})" for wait in waits)
        return CanResume(False, f"it waits for an answer to {names}")
    return CanResume(True, "every answer is in" if not waits else "a message frees it")


async def _is_claimed(services: Services, session: SessionState, run: RunRecord | None) -> bool:
    """Whether somebody has taken the session and is about to begin its record.

    Each claim names the step that it is going to work on after its own run, in the very write that wins the session.
    A session that was restored names a run that has a record; one that was forked has never been written to.
    """
    noted = session.suspended_step_id
    if noted is None or session.version == 1:
        return False
    if run is None:
        return True
    if is_step_of(noted, run.run_id):
        return False
    runs = await services.store.list_runs(session.session_id)
    return not any(is_step_of(noted, each.run_id) for each in runs)


async def _has_no_message(services: Services, session: SessionState) -> bool:
    return session.step_count == 0 and await services.store.get_message_count(session.session_id) == 0


async def claim_turn(
    services: Services,
    agent: Agent,
    session_id: str,
    messages: list[Message],
    *,
    session_options: Mapping[str, Any] | None = None,
    run_metadata: Mapping[str, Json] | None = None,
    run_id: str | None = None,
    seen: Seen | None = None,
    waits: bool = False,
) -> Claim:
    """Begin a turn in a new or a finished session. Raises `AlreadyRunning` if somebody else was faster.

    `seen`: the session as the caller saw it, where only that may be taken; otherwise it is looked at again. `waits`:
    nobody has the run yet, it waits for a worker (`handover.py`).
    """
    claimed_at = services.clock()
    run_id = run_id or f"run-{services.ids()}"
    lease_until = NOBODY if waits else claimed_at + services.lease_ms
    wanted = NewTurn(run_id, lease_until, messages, run_metadata or {}, claimed_at)
    if seen is None or seen.session is None:
        try:
            return await _claim_new(services, agent, session_id, session_options or {}, wanted)
        except SessionExists as error:
            if seen is not None:
                raise AlreadyRunning(session_id) from error
        session, run = await load(services, agent, session_id)
        if session.status not in SESSION_TERMINAL and not is_untouched(session, run):
            raise AlreadyRunning(session_id, run.run_id if run else None)
    else:
        session, run = seen.session, seen.run
    return await _claim_next(services, session, run, wanted)


class NewTurn(NamedTuple):
    """A turn that is about to begin: its run, and what the user says."""

    run_id: str
    lease_until: int
    messages: Sequence[Message]
    metadata: Mapping[str, Json]
    claimed_at: int

    def record(self, session_id: str, first_step: int, turn: int, stream: StreamInfo | None, fence: int) -> RunRecord:
        """The record that the taking write begins; it expects the stream to be as it was seen."""
        return RunRecord(
            self.run_id,
            session_id,
            turn,
            # A stream that is there is going to be reset, of which a chunk tells.
            start_sequence=stream.latest_sequence + 1 if stream else 0,
            metadata={**self.metadata, "first_step": first_step, "fence": fence},
            lease_until=self.lease_until,
            started_at=self.claimed_at,
        )

    def checkpoint(self, first_step: int) -> CheckpointMeta:
        """What marks the beginning of the turn."""
        return turn_checkpoint(self.run_id, first_step)


async def _claim_new(
    services: Services, agent: Agent, session_id: str, session_options: Mapping[str, Any], turn: NewTurn
) -> Claim:
    """Make a session with its first turn. Raises `SessionExists`."""
    options = dict(session_options)
    custom_state = options.pop("custom_state", None)
    stream = await services.streams.get_stream_info(options.get("stream_id") or session_id)
    fence = fence_for(stream, 1)
    record = turn.record(session_id, 0, 1, stream, fence)
    session = await services.store.create_session(
        session_id,
        agent_type=agent.name,
        custom_state=agent.initial_state() if custom_state is None else custom_state,
        messages=turn.messages,
        checkpoint=turn.checkpoint(0),
        run=record,
        **options,
    )
    claim = Claim(session, list(turn.messages), record, fence=fence, claimed_at=turn.claimed_at)
    return await _freshened(services, claim, None, seen=stream, old_status=session.status)


async def _claim_next(services: Services, session: SessionState, run: RunRecord | None, turn: NewTurn) -> Claim:
    """Begin the next turn of a session. Raises `AlreadyRunning` if somebody else was faster."""
    session_id, first_step = session.session_id, session.step_count
    history = await load_messages(services, session_id)
    given = [
        *abandoned(history, "The run ended before this call was executed."),
        *queued_in(session),
        *turn.messages,
    ]
    stream = await services.streams.get_stream_info(session.stream_id)
    fence = fence_for(stream, session.version + 1)
    record = turn.record(session_id, first_step, run.turn + 1 if run else 1, stream, fence)
    wanted = msgspec.structs.replace(
        session,
        custom_state=None,
        status="active",
        output=None,
        error=None,
        failure_reason=None,
        suspended_step_id=step_id(turn.run_id, first_step + 1),
        suspended_awaiting_children={},
        pending_client_tool_calls={},
        queued_messages=[],
        interrupt_context=None,
        # A run that never ended may wake up: it must find that the session is no longer its own.
        resume_count=session.resume_count + (1 if run is not None and run.status == "running" else 0),
    )
    try:
        done = await services.store.save_state_and_promote_staging(
            session_id, wanted, given, turn.checkpoint(first_step), expected_version=session.version, run=record
        )
    except VersionConflict as error:
        raise AlreadyRunning(session_id) from error
    taken = msgspec.structs.replace(wanted, custom_state=session.custom_state, version=done.new_version)
    claim = Claim(taken, [*history, *given], record, fence=fence, claimed_at=turn.claimed_at)
    return await _freshened(services, claim, run, seen=stream, old_status=session.status)


async def _freshened(
    services: Services, claim: Claim, old: RunRecord | None, *, seen: StreamInfo | None, old_status: str
) -> Claim:
    """Step 3 of the claim of a turn, whose record begins in step 2. Raises `RunLost`."""
    try:
        ready = await fresh_stream(services.streams, claim.session.stream_id, claim.fence, seen=seen)
    except StreamFenced as error:
        raise claim.lost() from error
    if old is not None and old.status == "running":
        await _close_record(services, old, old_status)
    record = claim.run
    if ready.latest_sequence != record.start_sequence:  # a stream that had expired comes back with its counter
        try:
            record = await services.store.update_run_status(
                record.run_id, "running", start_sequence=ready.latest_sequence, expected_status="running"
            )
        except IllegalTransition as error:
            raise claim.lost() from error
    return replace(claim, run=record)


async def claim_unfinished(
    services: Services,
    session: SessionState,
    run: RunRecord | None,
    *,
    message: Message | None = None,
    run_metadata: Mapping[str, Json] | None = None,
    run_id: str | None = None,
) -> Claim:
    """Take over a session whose turn is not finished. The caller has made sure that it may be taken."""
    store = services.store
    claimed_at = services.clock()
    session_id = session.session_id
    run_id = run_id or f"run-{services.ids()}"
    new_step_id = step_id(run_id, session.step_count + 1)
    # What was put aside was shown whole before; only what was never written down has to be taken back.
    left_open = session.status == "interrupted" and run is not None and run.status == "running"
    crashed = session.status == "active" or run is None or left_open
    last_commit = await _last_commit(services, session) if crashed else None
    seen = await services.streams.get_stream_info(session.stream_id)
    try:
        staged = await _adopt_staged(services, session, run, new_step_id)
    except VersionConflict as error:
        await store.discard_staging(session_id, new_step_id)
        raise AlreadyRunning(session_id) from error
    history = await load_messages(services, session_id)
    step_is_open = bool(staged) or bool(abandoned(history, ""))
    # While a step is open, what is queued stays so: the commit of that step takes it over.
    queued = [] if step_is_open else queued_in(session)
    then = _said_meanwhile(run, session, queued, message)
    wanted = msgspec.structs.replace(
        session,
        custom_state=None,
        status="active",
        suspended_step_id=new_step_id,
        error=None,
        failure_reason=None,
        interrupt_context=None,
        resume_count=session.resume_count + 1,
        queued_messages=session.queued_messages if step_is_open else [],
    )
    try:
        if then and not step_is_open:
            meta = turn_checkpoint(run_id, session.step_count)
            done = await store.save_state_and_promote_staging(
                session_id, wanted, then, meta, expected_version=session.version
            )
            version, history, then = done.new_version, [*history, *then], []
        else:
            version = await _taken(services, wanted, session.version)
    except VersionConflict as error:
        await store.discard_staging(session_id, new_step_id)
        raise AlreadyRunning(session_id) from error
    claim = Claim(
        msgspec.structs.replace(wanted, custom_state=session.custom_state, version=version),
        history,
        RunRecord(run_id, session_id, 0),
        fence=fence_for(seen, version),
        claimed_at=claimed_at,
        staged=staged,
        resumed=True,
        then=then,
    )
    inherited = {k: v for k, v in (run.metadata if run else {}).items() if k not in ("then", "open_step")}
    said = {"then": then, "open_step": session.step_count + 1} if then else {}
    return await _complete(
        services,
        claim,
        run,
        stream=lambda: ready_stream(
            services.streams,
            session.stream_id,
            claim.fence,
            seen=seen,
            rewind_to=session.step_count if crashed else None,
            checkpoint_id=last_commit,
        ),
        old_status=session.status,
        metadata={
            "first_step": session.step_count,
            **inherited,
            **(run_metadata or {}),
            **said,
            **_began_as(session, run),
            "resumes": run and run.run_id,
        },
    )


async def _taken(services: Services, wanted: SessionState, expected_version: int) -> int:
    """Take the session by a save; the version it then has."""
    try:
        return await services.store.save_state(wanted.session_id, wanted, expected_version=expected_version)
    except VersionConflict:
        # Perhaps by ourselves, and the reply was lost: nobody else knows the name of the new step.
        stored = await services.store.load_state(wanted.session_id)
        if stored is None or not _is_same_claim(stored, wanted):
            raise
        return stored.version


def _began_as(session: SessionState, run: RunRecord | None) -> dict[str, Json]:
    """The claims of this turn that never got a record: whoever asks for such a run by its key gets this one."""
    before = list(run.metadata.get("began_as", ())) if run is not None else []
    claimed = claimed_run(session)
    if session.status == "active" and claimed is not None and (run is None or claimed != run.run_id):
        before.append(claimed)
    return {"began_as": before} if before else {}


async def _complete(
    services: Services,
    claim: Claim,
    old: RunRecord | None,
    *,
    stream: Callable[[], Awaitable[ReadyStream]],
    old_status: str,
    metadata: Mapping[str, Json],
) -> Claim:
    """Steps 3 and 4 of a claim. Raises `RunLost` if somebody else has taken the session since."""
    try:
        ready = await stream()
        earlier = await _earlier(services, claim, old)
        # Old records are closed last: until there is a new one, they are what a search for lost runs finds.
        record = await _begin_record(services, claim, ready.latest_sequence, {**metadata, "fence": claim.fence})
        for each in earlier:
            await _close_record(services, each, old_status)
            await _close_before(services, each)
    except StreamFenced as error:
        raise claim.lost() from error
    return replace(claim, run=record, rewound=ready.rewound)


async def _earlier(services: Services, claim: Claim, old: RunRecord | None) -> list[RunRecord]:
    """The runs to close: the one taken over, and that of a claim which stalled and wrote it after this one had looked.

    The session is this claim's own by now, so none can come later.
    """
    found = {} if old is None else {old.run_id: old}
    if claim.resumed and (late := await services.store.get_current_run(claim.session.session_id)) is not None:
        found.setdefault(late.run_id, late)
    return [run for run in found.values() if run.status == "running"]


async def _close_record(services: Services, old: RunRecord, old_status: str) -> None:
    """Let the record of a run that died say so; whoever comes first does it, in the same words as anybody would."""
    status: RunStatus = "interrupted"
    if old_status in SESSION_TERMINAL:
        status = "completed" if old_status == "completed" else "failed"
    error = None if status == "completed" else "Its process died; another run went on."
    try:
        await services.store.update_run_status(old.run_id, status, error=error, expected_status="running")
    except IllegalTransition:
        return
    logger.warning("Session %s was recovered: its run %s had stopped without an end.", old.session_id, old.run_id)


async def _close_before(services: Services, old: RunRecord) -> None:
    """Close the record of the run that `old` took over, if it died before it came to that."""
    before = old.metadata.get("resumes")
    if before is not None:
        with suppress(IllegalTransition, RunNotFound):
            note = "Its process died; another run went on."
            await services.store.update_run_status(before, "interrupted", error=note, expected_status="running")


async def _begin_record(
    services: Services, claim: Claim, start_sequence: int, metadata: Mapping[str, Json]
) -> RunRecord:
    """The run's record, if the session is still the claim's own: others may write to it, but not take it."""
    session_id, version = claim.session.session_id, claim.session.version
    for _ in range(MAX_TRIES):
        try:
            return await services.store.create_run(
                session_id,
                claim.run.run_id,
                start_sequence=start_sequence,
                metadata=metadata,
                lease_until=services.clock() + services.lease_ms,
                expected_version=version,
            )
        except VersionConflict as error:
            stored = await services.store.load_state(session_id)
            if stored is None or not _is_same_claim(stored, claim.session):
                raise claim.lost() from error
            version = stored.version
        except SessionNotFound:
            raise claim.lost("the session was deleted") from None
    raise claim.lost("others keep writing to the session")


def _is_same_claim(stored: SessionState, claimed: SessionState) -> bool:
    return (stored.status, stored.resume_count, stored.suspended_step_id) == (
        claimed.status,
        claimed.resume_count,
        claimed.suspended_step_id,
    )


async def _last_commit(services: Services, session: SessionState) -> str | None:
    """The checkpoint of the last step, if that is the last thing that was committed."""
    latest = await services.store.get_latest_checkpoint(session.session_id)
    if latest is None or latest.step_count != session.step_count or latest.kind != "step":
        return None
    return latest.checkpoint_id


async def _adopt_staged(
    services: Services, session: SessionState, run: RunRecord | None, new_step_id: str
) -> list[StagedChanges]:
    """Copy what is staged for the open step to the new run's name; the old name may still be written to."""
    if run is None and session.suspended_step_id is None:
        return []
    old_step_id = step_id_of(session, run.run_id if run is not None else "")
    staged = await services.store.list_staged(session.session_id, old_step_id)
    await services.store.stage_calls(session.session_id, new_step_id, staged, expected_version=session.version)
    return staged


def _said_meanwhile(
    run: RunRecord | None, session: SessionState, queued: Sequence[Message], message: Message | None
) -> list[Message]:
    """What the user said to runs that never got to write it down, and now."""
    said: list[Message] = []
    if run is not None and run.metadata.get("open_step") == session.step_count + 1:
        said = list(run.metadata.get("then", []))
    return [*said, *queued] if message is None else [*said, *queued, message]


async def load(services: Services, agent: Agent, session_id: str) -> tuple[SessionState, RunRecord | None]:
    """The session and its latest run. Raises `SessionNotFound`, and `InvalidArgument` for another agent's session."""
    session = await services.store.load_state(session_id)
    if session is None:
        raise SessionNotFound(session_id)
    if session.agent_type != agent.name:
        raise InvalidArgument(
            f"Session {session_id!r} belongs to agent {session.agent_type!r}, not to {agent.name!r}: pass that agent."
        )
    return session, await services.store.get_current_run(session_id)


async def load_settled(services: Services, agent: Agent, session_id: str) -> tuple[SessionState, RunRecord | None]:
    """Like `load`, but waits while a run that has ended or suspended its session is still closing its stream."""
    for _ in range(int(services.lease_seconds / WIND_UP_POLL_SECONDS) + 1):
        session, run = await load(services, agent, session_id)
        if session.status == "active" or not is_live(run, services.clock()):
            return session, run
        await asyncio.sleep(WIND_UP_POLL_SECONDS)
    raise AlreadyRunning(session_id, run.run_id if run else None)


async def load_messages(services: Services, session_id: str) -> list[Message]:
    """The whole conversation."""
    page = await services.store.get_messages(session_id, limit=None)
    return list(page.items)


async def ensure_resumable(services: Services, session: SessionState, run: RunRecord | None, *, message: bool) -> None:
    """Raise `AlreadyRunning` or `NotResumable`, unless the session may be taken. A message frees a waiting one."""
    verdict = await can_resume(services, session, run, message=message)
    if verdict.can_resume:
        return
    live = is_live(run, services.clock())
    # By the verdict, not by a second look: the run may have got its record since.
    if session.status == "active" and (live or verdict.reason in (RUNNING, ABOUT_TO_RUN)):
        raise AlreadyRunning(session.session_id, run.run_id if run is not None and live else None)
    raise NotResumable(session.session_id, verdict.reason)
