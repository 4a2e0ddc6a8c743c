"""Taking a session: a new one, the next turn of a finished one, or one whose run stopped, crashed or waits.

Exactly one taker wins, because each claim is one write guarded by the version. The order is made for crashes between:

1. what is staged for an open step is copied under the new run's name (an old run that wakes up writes to the old one),
2. the claim itself,
3. the stream is made ready,
4. the run record with its lease.

A crash before 4 leaves a session that is `active` without a living run; it can be claimed again once it has been still
for the length of a lease.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ..agent import Agent
from ..codec import Json
from ..errors import AlreadyRunning, InvalidArgument, NotResumable, SessionExists, SessionNotFound, VersionConflict
from ..messages import Message
from ..types import CheckpointMeta, RunRecord, SessionState, StagedChanges
from .recovery import fresh_stream, ready_stream
from .services import Services
from .step import ASIDE_MARK, TURN_MARK, abandoned, step_id_of
from .suspension import all_waiting

WIND_UP_POLL_SECONDS = 0.02


@dataclass
class Claim:
    """A session taken, with all that its new run has to know."""

    session: SessionState
    messages: list[Message]
    run: RunRecord
    claimed_at: int
    staged: Sequence[StagedChanges] = ()
    rewound: bool = False
    resumed: bool = False
    then: list[Message] = field(default_factory=list)
    """What the user said while a step was open; it follows that step."""


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


def is_untouched(session: SessionState, run: RunRecord | None) -> bool:
    """Whether a session was created but got no message: by hand, or by a process that died right then."""
    return session.status == "active" and session.version == 1 and run is None


async def can_resume(services: Services, session: SessionState, run: RunRecord | None) -> CanResume:
    """Whether the session can be taken up again now."""
    now = services.clock()
    if session.status in ("completed", "failed"):
        if has_crashed(run, now):
            return CanResume(True, f"{session.status}, but its process died before it could close the stream")
        return CanResume(False, f"it is {session.status}; execute() begins the next turn")
    if session.status == "active":
        if is_live(run, now):
            return CanResume(False, "it is running")
        if run is not None and run.status == "running" and not _claimed_since(session, run):
            return CanResume(True, "its process died")
        if session.updated_at + services.lease_ms > now:
            return CanResume(False, "it is about to run")
        return CanResume(True, "its process died before the run began")
    if session.status in ("interrupted", "paused"):
        return CanResume(True, f"it is {session.status}")
    waits = await all_waiting(services.store, session, now)
    if waits:
        names = ", ".join(f"{wait.tool_name} ({wait.tool_call_id})" for wait in waits)
        return CanResume(False, f"it waits for an answer to {names}")
    return CanResume(True, "every answer is in")


def _claimed_since(session: SessionState, run: RunRecord) -> bool:
    """Whether somebody has taken the session after this run, its latest: then that one is about to begin its record.

    Each claim names the step that it is going to work on after its own run, in the very write that wins the session.
    """
    step_id = session.suspended_step_id
    return step_id is not None and not step_id.startswith(f"{run.run_id}-")


async def claim_turn(
    services: Services,
    agent: Agent,
    session_id: str,
    messages: list[Message],
    *,
    session_options: Mapping[str, Any] | None = None,
    run_metadata: Mapping[str, Json] | None = None,
) -> Claim:
    """Begin a turn in a new or a finished session. Raises `AlreadyRunning` if somebody else was faster."""
    store = services.store
    claimed_at = services.clock()
    options = dict(session_options or {})
    custom_state = options.pop("custom_state", None)
    try:
        session = await store.create_session(
            session_id,
            agent_type=agent.name,
            custom_state=agent.initial_state() if custom_state is None else custom_state,
            **options,
        )
        history: list[Message] = []
        run = None
    except SessionExists:
        session, run = await load(services, agent, session_id)
        if session.status not in ("completed", "failed") and not is_untouched(session, run):
            raise AlreadyRunning(session_id, run.run_id if run else None) from None
        history = await load_messages(services, session_id)
    given = [*abandoned(history, "The run ended before this call was executed."), *messages]
    run_id = f"run-{services.ids()}"
    wanted = msgspec.structs.replace(
        session,
        custom_state=None,
        status="active",
        output=None,
        error=None,
        failure_reason=None,
        suspended_step_id=f"{run_id}-{session.step_count + 1}",
        suspended_awaiting_children={},
        pending_client_tool_calls={},
        interrupt_context=None,
        # A run that never ended may wake up: it must find that the session is no longer its own.
        resume_count=session.resume_count + (1 if run is not None and run.status == "running" else 0),
    )
    meta = CheckpointMeta(f"{run_id}{TURN_MARK}", session.step_count, 0)
    try:
        done = await store.save_state_and_promote_staging(
            session_id, wanted, given, meta, expected_version=session.version
        )
    except VersionConflict as error:
        raise AlreadyRunning(session_id) from error
    start_sequence = await fresh_stream(services.streams, session.stream_id)
    record = await store.create_run(
        session_id,
        run_id,
        start_sequence=start_sequence,
        metadata={**(run_metadata or {}), "first_step": session.step_count},
        lease_until=services.clock() + services.lease_ms,
    )
    owned = msgspec.structs.replace(wanted, custom_state=session.custom_state, version=done.new_version)
    return Claim(owned, [*history, *given], record, claimed_at)


async def claim_unfinished(
    services: Services,
    session: SessionState,
    run: RunRecord | None,
    *,
    message: Message | None = None,
    run_metadata: Mapping[str, Json] | None = None,
) -> Claim:
    """Take over a session whose turn is not finished. The caller has made sure that it may be taken."""
    store = services.store
    claimed_at = services.clock()
    session_id = session.session_id
    run_id = f"run-{services.ids()}"
    new_step_id = f"{run_id}-{session.step_count + 1}"
    # What was put aside was shown whole before; only what was never written down has to be taken back.
    left_open = session.status == "interrupted" and run is not None and run.status == "running"
    crashed = session.status == "active" or run is None or left_open
    last_commit = await _last_commit(services, session) if crashed else None
    staged = await _adopt_staged(services, session, run, new_step_id)
    history = await load_messages(services, session_id)
    step_is_open = bool(staged) or bool(abandoned(history, ""))
    then = _said_meanwhile(run, session, message)
    wanted = msgspec.structs.replace(
        session,
        custom_state=None,
        status="active",
        suspended_step_id=new_step_id,
        error=None,
        failure_reason=None,
        interrupt_context=None,
        resume_count=session.resume_count + 1,
    )
    try:
        if then and not step_is_open:
            meta = CheckpointMeta(f"{run_id}{TURN_MARK}", session.step_count, 0)
            done = await store.save_state_and_promote_staging(
                session_id, wanted, then, meta, expected_version=session.version
            )
            version, history, then = done.new_version, [*history, *then], []
        else:
            version = await store.save_state(session_id, wanted, expected_version=session.version)
    except VersionConflict as error:
        await store.discard_staging(session_id, new_step_id)
        raise AlreadyRunning(session_id) from error
    return await _begin_again(
        services,
        Claim(
            msgspec.structs.replace(wanted, custom_state=session.custom_state, version=version),
            history,
            run=RunRecord(run_id, session_id, 0),
            claimed_at=claimed_at,
            staged=staged,
            resumed=True,
            then=then,
        ),
        run,
        metadata=run_metadata or {},
        crashed=crashed,
        last_commit=last_commit,
    )


async def _begin_again(
    services: Services,
    claim: Claim,
    old: RunRecord | None,
    *,
    metadata: Mapping[str, Json],
    crashed: bool,
    last_commit: str | None,
) -> Claim:
    """After the claim: close the old run's record, make the stream ready, begin the new record."""
    store = services.store
    session = claim.session
    if old is not None and old.status == "running":
        await store.update_run_status(
            old.run_id, "interrupted", error=f"Its process died; run {claim.run.run_id} went on."
        )
    claim.rewound, start_sequence = await ready_stream(
        services.streams,
        session.stream_id,
        rewind_to=session.step_count if crashed else None,
        checkpoint_id=last_commit,
    )
    inherited = {key: value for key, value in (old.metadata if old else {}).items() if key not in ("then", "open_step")}
    said = {"then": claim.then, "open_step": session.step_count + 1} if claim.then else {}
    claim.run = await store.create_run(
        session.session_id,
        claim.run.run_id,
        start_sequence=start_sequence,
        metadata={"first_step": session.step_count, **inherited, **metadata, **said, "resumes": old and old.run_id},
        lease_until=services.clock() + services.lease_ms,
    )
    return claim


async def _last_commit(services: Services, session: SessionState) -> str | None:
    """The checkpoint of the last step, if that is the last thing that was committed."""
    latest = await services.store.get_latest_checkpoint(session.session_id)
    if latest is None or latest.step_count != session.step_count or latest.step_id.endswith((TURN_MARK, ASIDE_MARK)):
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
    for row in staged:
        await services.store.stage_changes(
            session.session_id,
            new_step_id,
            row.writes,
            tool_call_id=row.tool_call_id,
            index=row.index,
            result=row.result,
        )
    return staged


def _said_meanwhile(run: RunRecord | None, session: SessionState, message: Message | None) -> list[Message]:
    """What the user said to runs that never got to write it down, and now."""
    said: list[Message] = []
    if run is not None and run.metadata.get("open_step") == session.step_count + 1:
        said = list(run.metadata.get("then", []))
    return [*said, message] if message is not None else said


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
    if session.status == "active" and is_live(run, services.clock()):
        raise AlreadyRunning(session.session_id, run.run_id if run else None)
    verdict = await can_resume(services, session, run)
    if not verdict.can_resume and not (message and session.status.startswith("suspended")):
        if session.status == "active":
            raise AlreadyRunning(session.session_id)
        raise NotResumable(session.session_id, verdict.reason)
