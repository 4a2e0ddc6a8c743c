"""Taking over a session whose turn is not finished: it was interrupted, it crashed, or it waits.

The steps are those of `claim.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import msgspec

from ...codec import Json
from ...errors import AlreadyRunning, IllegalTransition, RunNotFound, SessionNotFound, StreamFenced, VersionConflict
from ...ids import step_id
from ...messages import Message
from ...streams.contract import StreamInfo
from ...types import RunRecord, SessionState, StagedChanges
from ..services import Services
from ..step.decisions import abandoned, step_id_of, turn_checkpoint
from ..step.queued_messages import queued_in
from ..stream.prepare import ReadyStream, fence_for, last_commit, ready_stream
from .claim import DIED, Claim, close_record
from .idempotency import claimed_run
from .resumable import load_messages

MAX_TRIES = 50


@dataclass(frozen=True)
class _Found:
    """What there is to take over, and under which name."""

    session: SessionState
    run: RunRecord | None
    run_id: str
    claimed_at: int
    crashed: bool
    """Whether chunks were shown that were never written down."""
    last_commit: str | None
    stream: StreamInfo | None
    staged: list[StagedChanges]
    history: list[Message]
    then: list[Message]
    """What the user has said meanwhile."""

    @property
    def step_id(self) -> str:
        """The step that the new run is going to work on."""
        return step_id(self.run_id, self.session.step_count + 1)

    @property
    def is_unnoticed(self) -> bool:
        """Whether no record tells a search for lost runs of this session: then the new one begins with the claim."""
        return self.run is None or self.run.status != "running"

    @property
    def step_is_open(self) -> bool:
        """Whether that step has been begun."""
        return bool(self.staged) or bool(abandoned(self.history, ""))


async def claim_unfinished(
    services: Services,
    session: SessionState,
    run: RunRecord | None,
    *,
    message: Message | None = None,
    run_metadata: Mapping[str, Json] | None = None,
    run_id: str | None = None,
) -> Claim:
    """Take over a session whose turn is not finished. The caller has made sure that it may be taken.

    Raises `AlreadyRunning` if somebody else was faster, and `RunLost` if somebody took the session from this claim.
    """
    found = await _look(services, session, run, message, run_id or f"run-{services.ids()}")
    claim = await _take(services, found, run_metadata or {})
    try:
        ready = await _fence(services, found, claim)
        return await _record(services, found, claim, ready, run_metadata or {})
    except StreamFenced as error:
        raise claim.lost() from error


# -- step 1: look


async def _look(
    services: Services, session: SessionState, run: RunRecord | None, message: Message | None, run_id: str
) -> _Found:
    """What is there, with what is staged copied under the new run's name."""
    claimed_at = services.clock()
    # What was put aside was shown whole before; only what was never written down has to be taken back.
    left_open = session.status == "interrupted" and run is not None and run.status == "running"
    crashed = session.status == "active" or run is None or left_open
    committed = await last_commit(services.store, session) if crashed else None
    stream = await services.streams.get_stream_info(session.stream_id)
    new_step_id = step_id(run_id, session.step_count + 1)
    try:
        staged = await _adopt_staged(services, session, run, new_step_id)
    except VersionConflict as error:
        await services.store.discard_staging(session.session_id, new_step_id)
        raise AlreadyRunning(session.session_id) from error
    history = await load_messages(services, session.session_id)
    found = _Found(session, run, run_id, claimed_at, crashed, committed, stream, staged, history, then=[])
    # While a step is open, what is queued stays so: the commit of that step takes it over.
    queued = [] if found.step_is_open else queued_in(session)
    return replace(found, then=_said_meanwhile(run, session, queued, message))


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


# -- step 2: take


async def _take(services: Services, found: _Found, run_metadata: Mapping[str, Json]) -> Claim:
    """The one write that wins the session. Raises `AlreadyRunning`."""
    session, store = found.session, services.store
    history, then = found.history, found.then
    writes_then = bool(then) and not found.step_is_open
    begun: RunRecord | None = None
    if found.is_unnoticed:
        fence = fence_for(found.stream, session.version + 1)
        metadata = _metadata(found, [] if writes_then else then, fence, run_metadata)
        until = services.clock() + services.lease_ms
        begun = RunRecord(found.run_id, session.session_id, 0, metadata=metadata, lease_until=until)
    wanted = msgspec.structs.replace(
        session,
        custom_state=None,
        status="active",
        suspended_step_id=found.step_id,
        error=None,
        failure_reason=None,
        interrupt_context=None,
        resume_count=session.resume_count + 1,
        queued_messages=session.queued_messages if found.step_is_open else [],
    )
    try:
        if writes_then:
            meta = turn_checkpoint(found.run_id, session.step_count)
            done = await store.save_state_and_promote_staging(
                session.session_id, wanted, then, meta, expected_version=session.version, run=begun
            )
            version, history, then = done.new_version, [*history, *then], []
        else:
            version = await _saved(services, wanted, session.version, begun)
    except VersionConflict as error:
        await store.discard_staging(session.session_id, found.step_id)
        raise AlreadyRunning(session.session_id) from error
    return Claim(
        msgspec.structs.replace(wanted, custom_state=session.custom_state, version=version),
        history,
        begun or RunRecord(found.run_id, session.session_id, 0),
        fence=fence_for(found.stream, version),
        claimed_at=found.claimed_at,
        staged=found.staged,
        resumed=True,
        then=then,
    )


async def _saved(services: Services, wanted: SessionState, expected_version: int, begun: RunRecord | None) -> int:
    """Take the session by a save; the version it then has."""
    try:
        return await services.store.save_state(wanted.session_id, wanted, expected_version=expected_version, run=begun)
    except VersionConflict:
        # Perhaps by ourselves, and the reply was lost: nobody else knows the name of the new step.
        stored = await services.store.load_state(wanted.session_id)
        if stored is None or not _is_same_claim(stored, wanted):
            raise
        return stored.version


def _is_same_claim(stored: SessionState, claimed: SessionState) -> bool:
    return (stored.status, stored.resume_count, stored.suspended_step_id) == (
        claimed.status,
        claimed.resume_count,
        claimed.suspended_step_id,
    )


# -- step 3: fence


async def _fence(services: Services, found: _Found, claim: Claim) -> ReadyStream:
    """Make the stream ready, back to the last commit after a crash. Raises `StreamFenced`."""
    return await ready_stream(
        services.streams,
        found.session.stream_id,
        claim.fence,
        seen=found.stream,
        rewind_to=found.session.step_count if found.crashed else None,
        checkpoint_id=found.last_commit,
    )


# -- step 4: record


async def _record(
    services: Services, found: _Found, claim: Claim, ready: ReadyStream, run_metadata: Mapping[str, Json]
) -> Claim:
    """Begin the new run's record, then close the old ones: until there is a new one, they are what a search finds."""
    earlier = await _earlier(services, claim, found.run)
    if found.is_unnoticed:
        record = await _complete_record(services, claim, ready.latest_sequence)
    else:
        metadata = _metadata(found, claim.then, claim.fence, run_metadata)
        record = await _begin_record(services, claim, ready.latest_sequence, metadata)
    for each in earlier:
        await close_record(services, each, found.session.status)
        await _close_before(services, each)
    return replace(claim, run=record, rewound=ready.rewound)


def _metadata(found: _Found, then: Sequence[Message], fence: int, run_metadata: Mapping[str, Json]) -> dict[str, Json]:
    """What the record of the new run says."""
    session, run = found.session, found.run
    inherited = {k: v for k, v in (run.metadata if run else {}).items() if k not in ("then", "open_step")}
    said = {"then": list(then), "open_step": session.step_count + 1} if then else {}
    return {
        "first_step": session.step_count,
        **inherited,
        **run_metadata,
        **said,
        **_began_as(session, run),
        "resumes": run and run.run_id,
        "fence": fence,
    }


def _began_as(session: SessionState, run: RunRecord | None) -> dict[str, Json]:
    """The claims of this turn that never got a record: whoever asks for such a run by its key gets this one."""
    before = list(run.metadata.get("began_as", ())) if run is not None else []
    claimed = claimed_run(session)
    if session.status == "active" and claimed is not None and (run is None or claimed != run.run_id):
        before.append(claimed)
    return {"began_as": before} if before else {}


async def _earlier(services: Services, claim: Claim, old: RunRecord | None) -> list[RunRecord]:
    """The runs to close: the one taken over, and that of a claim which stalled and wrote it after this one had looked.

    The session is this claim's own by now, so none can come later.
    """
    found = {} if old is None else {old.run_id: old}
    if (late := await services.store.get_current_run(claim.session.session_id)) is not None:
        found.setdefault(late.run_id, late)
    return [run for run in found.values() if run.status == "running" and run.run_id != claim.run.run_id]


async def _close_before(services: Services, old: RunRecord) -> None:
    """Close the record of the run that `old` took over, if it died before it came to that."""
    before = old.metadata.get("resumes")
    if before is not None:
        with suppress(IllegalTransition, RunNotFound):
            await services.store.update_run_status(before, "interrupted", error=DIED, expected_status="running")


async def _complete_record(services: Services, claim: Claim, start_sequence: int) -> RunRecord:
    """Say in a record that began with the claim where the run begins in the stream."""
    try:
        return await services.store.update_run_status(
            claim.run.run_id, "running", start_sequence=start_sequence, expected_status="running"
        )
    except IllegalTransition as error:
        raise claim.lost() from error
    except RunNotFound:
        raise claim.lost("the session was deleted") from None


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
