"""Claiming a turn: of a new session, or the next one of a finished session. The steps are those of `claim.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec

from ...agent import Agent
from ...codec import Json
from ...errors import AlreadyRunning, IllegalTransition, SessionExists, StreamFenced, VersionConflict
from ...ids import step_id
from ...lifecycle import SESSION_TERMINAL
from ...messages import Message
from ...streams.contract import StreamInfo
from ...types import CheckpointMeta, RunRecord, SessionState
from ..services import Services
from ..step.decisions import abandoned, turn_checkpoint
from ..step.queued_messages import queued_in
from ..stream.prepare import fence_for, fresh_stream
from .claim import Claim, close_record
from .resumable import NOBODY, is_untouched, load, load_messages


class Seen(NamedTuple):
    """A session and its latest run as somebody saw them; None if there were none."""

    session: SessionState | None
    run: RunRecord | None


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
    turn = NewTurn(run_id, lease_until, messages, run_metadata or {}, claimed_at)
    taken = None
    if seen is None or seen.session is None:
        try:
            taken = await _take_new(services, agent, session_id, session_options or {}, turn)
        except SessionExists as error:
            if seen is not None:
                raise AlreadyRunning(session_id) from error
    if taken is None:
        session, run = await _look(services, agent, session_id, seen)
        taken = await _take_next(services, session, run, turn)
    return await _fence(services, taken)


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


class Taken(NamedTuple):
    """A turn that is taken but whose stream is not ready: the claim, and what was there before it."""

    claim: Claim
    stream: StreamInfo | None
    run: RunRecord | None
    status: str


# -- step 1: look


async def _look(
    services: Services, agent: Agent, session_id: str, seen: Seen | None
) -> tuple[SessionState, RunRecord | None]:
    """The session whose next turn is to begin, and its latest run. Raises `AlreadyRunning`."""
    if seen is not None and seen.session is not None:
        return seen.session, seen.run
    session, run = await load(services, agent, session_id)
    if session.status not in SESSION_TERMINAL and not is_untouched(session, run):
        raise AlreadyRunning(session_id, run.run_id if run else None)
    return session, run


# -- step 2: take; the run's record begins in the same write


async def _take_new(
    services: Services, agent: Agent, session_id: str, session_options: Mapping[str, Any], turn: NewTurn
) -> Taken:
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
    return Taken(claim, stream, None, session.status)


async def _take_next(services: Services, session: SessionState, run: RunRecord | None, turn: NewTurn) -> Taken:
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
    mine = msgspec.structs.replace(wanted, custom_state=session.custom_state, version=done.new_version)
    claim = Claim(mine, [*history, *given], record, fence=fence, claimed_at=turn.claimed_at)
    return Taken(claim, stream, run, session.status)


# -- step 3: fence; there is no step 4


async def _fence(services: Services, taken: Taken) -> Claim:
    """Make the stream ready, and close the record of a run that never ended. Raises `RunLost`."""
    claim, old = taken.claim, taken.run
    try:
        ready = await fresh_stream(services.streams, claim.session.stream_id, claim.fence, seen=taken.stream)
    except StreamFenced as error:
        raise claim.lost() from error
    if old is not None and old.status == "running":
        await close_record(services, old, taken.status)
    record = claim.run
    if ready.latest_sequence != record.start_sequence:  # a stream that had expired comes back with its counter
        try:
            record = await services.store.update_run_status(
                record.run_id, "running", start_sequence=ready.latest_sequence, expected_status="running"
            )
        except IllegalTransition as error:
            raise claim.lost() from error
    return replace(claim, run=record)
