"""Claims: the one commit by which a process takes a session, and the preparation of its stream.

There are four: a new session with its first turn, the next turn (or one on a new branch), a takeover of an unfinished
turn, and the continuation of a released run. Each is one guarded write (the version and the run's lease as they were
read). It leaves one open run, ends the previous run, raises the owner epoch and stores the user's messages. So a crash
before it leaves nothing, and a crash after it leaves a run whose lease expires, which `list_claimable` finds. Losing
the write raises `AlreadyRunning`.

The stream follows, with the epoch as its fence: in the same write if one backend holds both and a turn starts.
Otherwise a process may stall in between for longer than a lease; then another one takes over, and further writes of the
stalled one raise `RunLost`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from ...agent import Agent
from ...codec import Json
from ...errors import (
    AlreadyRunning,
    EpochConflict,
    IllegalTransition,
    LeaseConflict,
    RunLost,
    RunNotFound,
    SessionNotFound,
    StreamError,
    StreamFenced,
    VersionConflict,
)
from ...ids import step_id
from ...messages import Message, identified, ids_of
from ...safe_text import get_logger
from ...stores.along import Along
from ...stores.state.commit import RunChange
from ...streams.contract import StreamInfo
from ...streams.records import StreamStart
from ...types import BranchPoint, CheckpointMeta, Owner, ParentCall, RunRecord, SessionState, StagedChanges
from ..services import Services
from ..step.decisions import abandoned, turn_checkpoint
from ..stream.leftover import drop_leftover, stream_of
from ..stream.prepare import ReadyStream, drop_orphan, fresh_stream
from .observe import Found, Sessions
from .queued_messages import queued_in
from .standing import UNOWNED, ended_as, open_run

logger = get_logger("helix_agents.executor")

REPLACED = "another process has taken the session over"
DIED = "Its process died; another run continued."

CHUNKS_AFTER_LAST_COMMIT = 2
"""Chunks after the position that the last commit of a completed turn records: `step_committed` and `output`."""


@dataclass(frozen=True)
class Claim:
    """A claimed session, with everything its new run needs."""

    session: SessionState
    messages: Sequence[Message]
    run: RunRecord
    claimed_at: int
    staged: Sequence[StagedChanges] = ()
    rewound: bool = False
    starts: bool = False
    """Whether the claim started the turn, so that its stream is empty."""
    resumed: bool = False
    announce: bool = True
    """Whether the run announces itself on its stream; False for a run that continues in another process."""
    follow_up: Sequence[Message] = ()
    """Messages that the user sent while a step was open; they follow that step."""
    stream_is_open: bool = False
    """Whether the stream is active, and no process has written to it since this one opened it."""
    wrote_at: float | None = None
    """When an earlier step of this process last wrote to the stream, by the event loop's clock."""

    @property
    def fence(self) -> int:
        """The fence that the run passes with every change of its stream: its owner epoch."""
        return self.session.owner_epoch

    def lost(self, why: str = REPLACED) -> RunLost:
        """Return the error for a process that no longer owns the session."""
        return RunLost(self.session.session_id, self.run.run_id, why)


class NewRun(msgspec.Struct, frozen=True):
    """The fields of a run record that a claim is about to create.

    `released`: the claim leaves the run to a worker or an engine. A run that takes another one over inherits that run's
    limits, key and parent call, unless it has its own.
    """

    run_id: str
    released: bool = False
    engine: str | None = None
    worker: str | None = None
    queued: bool = False
    not_before: int | None = None
    limits: Json = None
    idempotency_key: str | None = None
    request_digest: str | None = None
    parent_call: ParentCall | None = None

    def record(self, session_id: str, turn: int, earlier: RunRecord | None = None, **fields: Any) -> RunRecord:
        """Return the run record. `earlier`: the run that this one takes over."""
        given = msgspec.structs.asdict(self)
        del given["released"]
        if earlier is not None:
            inherited = ("queued", "limits", "idempotency_key", "request_digest", "parent_call")
            given |= {name: given[name] or getattr(earlier, name) for name in inherited}
            fields |= {"metadata": earlier.metadata, "resumes": earlier.run_id, "attempt": earlier.attempt + 1}
        return RunRecord(session_id=session_id, turn=turn, **given, **fields)


def next_epoch(session: SessionState | None, now: int) -> int:
    """Return the owner epoch of a claim. It grows with every claim, even after a session was deleted."""
    return now if session is None else max(now, session.owner_epoch + 1)


def ended_run(session: SessionState, run: RunRecord | None, now: int) -> RunChange | None:
    """Return the change that ends an open run, for the commit that replaces it; None if no run is open."""
    if (run := open_run(run)) is None:
        return None
    status = ended_as(session)
    error = DIED if status == "interrupted" else session.error
    ended = msgspec.structs.replace(run, status=status, error=error, output=session.output, completed_at=now)
    return RunChange(run, ended)


def leased_run(run: RunRecord, until: int, **changes: Any) -> RunChange:
    """Return the change that leases a run, for the commit that claims it."""
    return RunChange(run, msgspec.structs.replace(run, lease_until=until, **changes))


# -- a turn


async def create_turn(
    services: Services,
    agent: Agent,
    session_id: str,
    messages: Sequence[Message],
    new: NewRun,
    session_options: Mapping[str, Any],
) -> Claim:
    """Create a session with its first turn. Raises `SessionExists`."""
    now, options = services.clock(), dict(session_options)
    custom_state, stream_id = options.pop("custom_state", None), options.get("stream_id") or session_id
    options["custom_state"] = agent.initial_state() if custom_state is None else custom_state
    checkpoint = turn_checkpoint(new.run_id, 0)
    messages = identified(messages, (), checkpoint.step_id)

    async def create(epoch: int, stream: StreamInfo | None, start: StreamStart | None) -> Claim:
        record = _first_record(services, session_id, new, now, stream, turn=1)
        session = await services.store.create_session(
            session_id,
            agent_type=agent.name,
            messages=messages,
            checkpoint=checkpoint,
            run=record,
            owner_epoch=epoch,
            **carried(start),
            **options,
        )
        return Claim(session, messages, record, claimed_at=now, starts=True, stream_is_open=start is not None)

    epoch = next_epoch(None, now)
    if can_start_stream(services, session_id, stream_id):
        with suppress(StreamError):  # a stream of this id exists: read it first
            return await create(epoch, None, services.streams.starting(stream_id, fence=epoch, seen=None))
    stream = await services.streams.get_stream_info(stream_id)
    claim = await create(max(epoch, stream.fence + 1 if stream else 0), stream, None)
    return await start_stream(services, claim, stream)


@dataclass(frozen=True)
class Start:
    """The start of a turn on a new branch."""

    session: SessionState
    history: Sequence[Message]
    point: BranchPoint


async def start_turn(
    services: Services, found: Found, messages: Sequence[Message], new: NewRun, start: Start | None = None
) -> Claim:
    """Start the next turn of a session, or a turn on a new branch. Raises `AlreadyRunning` if another process was
    faster.

    The same commit stores the end that a new branch replaces; then the error is `VersionConflict`.
    """
    session, run = found.existing, found.run
    source = session if start is None else start.session
    now, first_step = services.clock(), source.step_count
    history = await found.history(services.store) if start is None else start.history
    given = [*abandoned(history, "The run ended before this call was executed."), *queued_in(source), *messages]
    turn = run.turn + 1 if run is not None else 1
    position = {"turn": turn, "first_step": first_step, "first_message": len(history)}
    wanted = msgspec.structs.replace(
        source,
        status="active",
        output=None,
        error=None,
        failure_reason=None,
        suspended_step_id=step_id(new.run_id, first_step + 1),
        suspended_awaiting_children={},
        pending_client_tool_calls={},
        queued_messages=[],
        interrupt_context=None,
        wake_at=None,
    )
    ended, checkpoint = ended_run(session, run, now), turn_checkpoint(new.run_id, first_step)
    given = identified(given, ids_of(history), checkpoint.step_id)
    point = None if start is None else start.point

    async def claim(stream: StreamInfo | None, opens: StreamStart | None) -> Claim:
        record = _first_record(services, session.session_id, new, now, stream, **position)
        options: Any = {"run": record, "change": ended, "point": point, "start": opens}
        mine = await commit_claim(services, session, wanted, given, checkpoint, **options)
        messages = [*history, *given]
        return Claim(mine, messages, record, claimed_at=now, starts=True, stream_is_open=opens is not None)

    async def claim_and_start(stream: StreamInfo | None) -> Claim | None:
        """Claim and start the stream in one write; return None if the stream is not as expected."""
        fence = next_epoch(session, services.clock())
        with suppress(StreamError):
            return await claim(stream, services.streams.starting(session.stream_id, fence=fence, seen=stream))
        return None

    together = point is None and can_start_stream(services, session.session_id, session.stream_id)
    expected = _expected_stream(found) if together else None
    if expected is not None and (mine := await claim_and_start(expected)) is not None:
        return mine
    stream = await stream_of(services.streams, session)
    if together:
        if (mine := await claim_and_start(stream)) is not None:
            return mine
        stream = await stream_of(services.streams, session)
    return await start_stream(services, await claim(stream, None), stream)


def can_start_stream(services: Services, session_id: str, stream_id: str) -> bool:
    """Return whether the write of a claim can also start the stream."""
    return services.carries and services.store.carries_to(session_id, stream_id)


def _expected_stream(found: Found) -> StreamInfo | None:
    """Return the stream as a completed turn leaves it, which saves reading it; None in all other cases.

    The store rejects the claim if the stream is different.
    """
    last = found.last_commit
    if last is None or found.existing.status != "completed":
        return None
    latest = last.stream_sequence + CHUNKS_AFTER_LAST_COMMIT
    return StreamInfo(found.existing.stream_id, "ended", 0, latest + 1, latest)


def carried(start: StreamStart | None) -> dict[str, Any]:
    """Return the option for a claim that starts its stream; stores that carry nothing need not support it."""
    return {} if start is None else {"along": Along(start=start)}


def _first_record(
    services: Services, session_id: str, new: NewRun, now: int, stream: StreamInfo | None, **position: Any
) -> RunRecord:
    """Return the record of a run that starts a turn; assumes that the stream is as it was read."""
    return new.record(
        session_id,
        claimed_step=position.get("first_step", 0),
        # An existing stream will be reset, which appends a chunk.
        start_sequence=stream.latest_sequence + 1 if stream else 0,
        lease_until=(new.not_before or UNOWNED) if new.released else now + services.lease_ms,
        started_at=now,
        **position,
    )


async def start_stream(services: Services, claim: Claim, stream: StreamInfo | None) -> Claim:
    """Prepare the stream of a new turn. Raises `RunLost`."""
    try:
        ready = await fresh_stream(services.streams, claim.session.stream_id, claim.fence, seen=stream)
    except StreamFenced as error:
        raise claim.lost() from error
    if stream is None and await drop_orphan(services.store, services.streams, claim.session, claim.fence):
        raise claim.lost("the session was deleted")
    return await with_start_position(services, claim, ready)


# -- shared by all claims


async def commit_claim(
    services: Sessions,
    seen: SessionState,
    wanted: SessionState,
    messages: Sequence[Message] = (),
    checkpoint: CheckpointMeta | None = None,
    *,
    run: RunRecord | None = None,
    change: RunChange | None = None,
    point: BranchPoint | None = None,
    start: StreamStart | None = None,
) -> SessionState:
    """Commit a claim; return the claimed session. Raises `AlreadyRunning`.

    `start`: start the stream in the same write, with the owner epoch of the claim as its fence.
    Without a `checkpoint`, only append `messages`. With a `point`, start a branch there; then `wanted` has its custom
    state, and the error is `VersionConflict`: another process has changed the conversation that the caller wanted to
    branch.
    """
    await drop_leftover(services.streams, seen)
    store, session_id = services.store, seen.session_id
    epoch = next_epoch(seen, services.clock()) if start is None else start.fence
    guards: Any = {
        "expected_version": seen.version,
        "owner": Owner(seen.incarnation),
        "new_epoch": epoch,
        "run": run,
        "change_run": change,
    }
    custom_state = seen.custom_state if point is None else wanted.custom_state
    wanted = msgspec.structs.replace(wanted, custom_state=None)
    try:
        if point is not None and checkpoint is not None:
            done = await store.branch_session(session_id, point, wanted, messages, checkpoint, **guards)
            new_version = done.new_version
        elif checkpoint is None:
            if messages:
                guards |= {"keep_messages": await store.get_message_count(session_id), "messages": messages}
            new_version = await store.save_state(session_id, wanted, **guards, **carried(start))
        else:
            options = guards | carried(start)
            done = await store.save_state_and_promote_staging(session_id, wanted, messages, checkpoint, **options)
            new_version = done.new_version
    except (EpochConflict, LeaseConflict, VersionConflict) as error:
        latest = await store.get_current_run(session_id)
        stored = await store.load_state(session_id)
        # If the response to this very commit was lost, the run exists.
        if run is None or stored is None or latest is None or latest.run_id != run.run_id:
            if point is not None and stored is not None:
                raise VersionConflict(seen.version, stored.version, stored.status, session_id) from error
            raise AlreadyRunning(session_id, latest.run_id if latest else None) from error
        new_version = stored.version
    return msgspec.structs.replace(wanted, custom_state=custom_state, version=new_version, owner_epoch=epoch)


async def with_start_position(services: Services, claim: Claim, ready: ReadyStream) -> Claim:
    """Correct the run's start position, if the stream had expired or lost chunks of a crashed step."""
    claim = replace(claim, stream_is_open=True)
    if ready.latest_sequence == claim.run.start_sequence:
        return claim
    try:
        updated = await services.store.update_run_status(
            claim.run.run_id,
            "running",
            start_sequence=ready.latest_sequence,
            expected_status="running",
            owner=Owner(claim.session.incarnation, claim.fence),
        )
    except (EpochConflict, IllegalTransition) as error:
        raise claim.lost() from error
    except (RunNotFound, SessionNotFound) as error:
        raise claim.lost("the session was deleted") from error
    return replace(claim, run=updated)
