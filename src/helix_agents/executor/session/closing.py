"""Close sessions from outside their run: after their process died, or to stop or fail them.

The first step is a claim (`claim.commit_claim`), so exactly one process closes, and a stalled one is rejected. Then it
closes the stream under a fence, discards staged data, and last closes the run record: until then another process finds
something to close.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Literal, NamedTuple

import msgspec

from ...agent import Agent
from ...codec import Json
from ...errors import (
    AlreadyRunning,
    EpochConflict,
    IllegalTransition,
    InvalidArgument,
    RunLost,
    RunNotFound,
    SessionNotFound,
    StreamFenced,
    StreamNotActive,
    VersionConflict,
)
from ...failures import ABORTED, ERROR, POISONED
from ...lifecycle import SESSION_TERMINAL, SUSPENDED
from ...messages import Message, identified, ids_of
from ...retry import CLOSING
from ...streams.contract import StreamManager
from ...types import Owner, SessionState
from ..step.decisions import step_id_of, unanswered_calls
from ..step.open_step import OpenStep
from ..step.undo import is_undoing
from ..stream.prepare import close_stream, drop_orphan, is_behind, pause_stopped, replace_stream, revert_patches
from .claim import REPLACED, commit_claim, leased_run
from .left_behind import left_at_failure
from .observe import Found, Sessions, find
from .standing import POISONED_AFTER, Action, Decision, Intent, Standing, decide, ended_as, open_run, refusal

LOST = (EpochConflict, IllegalTransition, RunNotFound, SessionNotFound, StreamFenced, StreamNotActive, VersionConflict)
"""Errors of a write by a process that no longer owns the session it closes."""

OwnerCheck = Callable[[], Awaitable[object]]
"""Raises if the caller no longer owns the session whose descendants it ends."""


class Ending(NamedTuple):
    """How to end a session from outside."""

    status: Literal["interrupted", "failed"]
    reason: str | None
    """The caller's reason; also the error of a failed session."""
    failure_reason: str | None = None

    @property
    def aborts(self) -> bool:
        """Whether a caller aborts the session."""
        return self.failure_reason == ABORTED


async def close(services: Sessions, found: Found) -> None:
    """Close the stream and the record of a dead run. Raises `AlreadyRunning` and `RunLost`.

    Also ends a run that must end (`Seen.must_end`).
    """
    session, run = found.existing, found.run
    assert run is not None
    if session.status == "active":
        why = f"{POISONED_AFTER} processes in a row died in this run without a commit."
        ending = Ending("failed", why, POISONED)
        if (flag := found.seen.stop) is not None:
            failed = Ending("failed", flag.reason or ABORTED, ABORTED)
            ending = failed if flag.abort else Ending("interrupted", flag.reason)
        return await end(services, found, ending)
    change = leased_run(run, services.clock() + services.lease_ms)
    await _finish(services, found, await commit_claim(services, session, session, change=change))


async def end(services: Sessions, found: Found, ending: Ending) -> None:
    """Stop or fail a session from outside, and close it. Raises `AlreadyRunning` if it has changed, and `RunLost`."""
    session, run = found.existing, found.run
    if found.seen.standing in (Standing.LEASE_EXPIRED, Standing.RELEASED) and ending.aborts and is_undoing(session):
        return  # it has failed, and a worker undoes what it did
    context: Json = session.interrupt_context
    if ending.status == "interrupted":
        now = services.clock()
        context = {"reason": ending.reason, "run_id": run.run_id if run else None, "interrupted_at": now}
    failed = ending.status == "failed"
    if failed:
        history, failure = await found.history(services.store), (ending.reason or "failed", ending.failure_reason)
        undo = ending.aborts and session.parent_session_id is None
        left, open_step = await left_at_failure(services, session, run, history, failure, undo=undo)
        if open_step is not None:
            return await _leave_to_undo(services, found, left, open_step)
    wanted = msgspec.structs.replace(
        session,
        status=ending.status,
        error=(ending.reason or "failed") if failed else None,
        failure_reason=ending.failure_reason,
        interrupt_context=context,
        # A failed session accepts no responses: one that still arrives is late.
        pending_client_tool_calls={} if failed else session.pending_client_tool_calls,
    )
    change = leased_run(still, services.clock() + services.lease_ms) if (still := open_run(run)) is not None else None
    claimed = await commit_claim(services, session, wanted, left if failed else (), change=change)
    await _finish(services, found, claimed)


async def _leave_to_undo(services: Sessions, found: Found, plan: Sequence[Message], open_step: str) -> None:
    """Leave an aborted session to a worker that undoes what its turn did. Raises `AlreadyRunning`."""
    session = found.existing
    wanted = msgspec.structs.replace(
        session,
        # A suspended session without open questions is due, and so is a run without a process.
        status="suspended_client_tool" if open_run(found.run) is None else "active",
        suspended_step_id=open_step,
        suspended_awaiting_children={},
        pending_client_tool_calls={},
        wake_at=None,
    )
    identified_plan = identified(plan, ids_of(await found.history(services.store)), open_step)
    claimed = await commit_claim(services, session, wanted, identified_plan)
    if services.streams is not None and claimed.status != "active":
        with suppress(StreamFenced):  # the worker that undoes it was faster
            await pause_stopped(services.streams, claimed, claimed.owner_epoch)
    await _fail_children(services, found, claimed, Ending("failed", ABORTED, ABORTED))


async def _finish(services: Sessions, found: Found, session: SessionState) -> None:
    """Close everything that belongs to a stopped session that this process has claimed. Raises `RunLost`.

    `found`: the session and its run before the claim.
    """
    run = found.run
    store, streams, fence = services.store, services.streams, session.owner_epoch
    owner = Owner(session.incarnation, fence)
    is_open = open_run(run) is not None
    failed, ended = session.status == "failed", session.status in SESSION_TERMINAL

    if failed:
        ending = Ending("failed", session.error or "failed", session.failure_reason or ERROR)
        await _fail_children(services, found, session, ending)
    try:
        if streams is not None:
            await _finish_stream(services, streams, found, session)
        if ended:
            await store.discard_staging(session.session_id, owner=owner)
        if run is not None and (is_open or (failed and run.status in SUSPENDED)):
            await store.update_run_status(
                run.run_id,
                ended_as(session),
                error=session.error,
                output=session.output,
                completed_at=services.clock(),
                expected_status=run.status,
                owner=owner,
            )
    except LOST as error:
        if streams is not None:
            await drop_orphan(store, streams, session, fence)
        raise RunLost(session.session_id, run.run_id if run else "", REPLACED) from error


async def _finish_stream(services: Sessions, streams: StreamManager, found: Found, session: SessionState) -> None:
    """Close or pause the stream of a stopped session. `found`: the session and its run before the claim."""
    fence, is_open = session.owner_epoch, open_run(found.run) is not None
    info = await streams.get_stream_info(session.stream_id)
    if info is not None and is_behind(info, found.existing, open_run(found.run)):
        return await replace_stream(streams, session, fence)
    is_waiting = info is not None and info.status == "paused"  # its run died before it continued the stream
    if not is_open or (is_waiting and session.status == "interrupted"):
        await revert_patches(streams, await _suspended_step(services, found), session, fence)
    if session.status in SESSION_TERMINAL:
        latest = found.checkpoint if is_open else None
        return await close_stream(streams, session, latest, fence, rewind=is_open)
    await pause_stopped(streams, session, fence)


async def _fail_children(services: Sessions, found: Found, session: SessionState, ending: Ending) -> None:
    """Fail the descendants of a session, as long as this process owns it."""
    store, owner = services.store, Owner(session.incarnation, session.owner_epoch)

    async def check() -> None:
        seen = await store.load_conversation(session.session_id, last=0, custom_state=False)
        if seen is None or Owner(seen.session.incarnation, seen.session.owner_epoch) != owner:
            raise RunLost(session.session_id, found.seen.run_id or "", REPLACED)

    for ref in await store.list_sub_session_refs(session.session_id):
        await fail_session(services, ref.sub_session_id, ending, check)


async def _suspended_step(services: Sessions, found: Found) -> OpenStep | None:
    """Return the step that a suspension left open, with its staged results; None if there is none."""
    session, run = found.existing, found.run
    answer, calls = unanswered_calls(await found.history(services.store))
    if run is None or answer is None or not calls:
        return None
    step = OpenStep(step_id_of(session, run.run_id), session.step_count + 1, answer, session.custom_state or {})
    step.load_staged(await services.store.list_staged(session.session_id, step.step_id))
    return step


async def fail_session(
    services: Sessions,
    session_id: str,
    ending: Ending,
    check: OwnerCheck | None = None,
    *,
    expired: SessionState | None = None,
) -> bool:
    """Fail a session and its descendants, no matter which process owns it; return whether this call did.

    `check` is called between reading and ending the session; a later owner changes its version, so the end is rejected.
    `expired`: the session as the caller read it. If it was created again or extended since then, it stays.
    """
    for _ in CLOSING.attempts():
        found = await find(services, session_id)
        if check is not None:
            await check()
        action = decide(found.seen, Intent.FAIL).action
        if action is Action.RETURN or (expired is not None and not _is_same(expired, found.session)):
            return False
        try:
            if action is Action.END:
                await end(services, found, ending)
                await _mark_ref_failed(services, found.existing)
                return True
            await close(services, found)
            if action is Action.CLOSE:
                return False
        except (AlreadyRunning, RunLost):
            await asyncio.sleep(CLOSING.first_seconds)  # it has changed: read it again
    return False


def _is_same(expired: SessionState, stored: SessionState | None) -> bool:
    """Return whether the stored session is the expired one, with the same expiry time."""
    return stored is not None and (stored.incarnation, stored.expires_at) == (expired.incarnation, expired.expires_at)


async def _mark_ref_failed(services: Sessions, session: SessionState) -> None:
    """Record in the parent's ref that the session has failed, if the parent still exists."""
    if session.parent_session_id is None:
        return
    with suppress(SessionNotFound, InvalidArgument):
        await services.store.update_sub_session_ref(
            session.parent_session_id, session.session_id, status="failed", completed_at=services.clock()
        )


# -- deciding, after closing what must be closed first


async def decided(
    services: Sessions,
    intent: Intent,
    session_id: str,
    *,
    agent: Agent | None = None,
    user_id: str | None = None,
    engine: str | None = None,
    messages: bool = False,
) -> tuple[Found, Action]:
    """Return a session and the action to take now. Waits for a run that is closing, and closes a dead run first.

    `messages`: also load the conversation, for a claim. Raises the error of the decision table.
    """
    loop = asyncio.get_running_loop()
    until, waited = loop.time() + wait_seconds(services), False
    while True:
        found = await find(services, session_id, agent=agent, user_id=user_id, messages=messages and not waited)
        decision = decide(found.seen, intent, engine=engine)
        if decision.is_refusal:
            raise _stalled(services, found) or refusal(found.seen, decision)
        if await _is_settled(services, found, decision):
            return found, decision.action
        if loop.time() >= until:
            raise AlreadyRunning(session_id, found.seen.run_id)
        waited = True
        if decision.action is Action.WAIT:
            await asyncio.sleep(CLOSING.first_seconds)


def wait_seconds(services: Sessions) -> float:
    """Return how long to wait for a stopped run to close its stream, at most a lease."""
    return min(services.lease_ms / 1000, CLOSING.within_seconds)


def _stalled(services: Sessions, found: Found) -> RunLost | None:
    """Return the error if this process stalled for longer than a lease while it read the session."""
    if found.session is None or services.clock() - found.read_at <= services.lease_ms:
        return None
    return RunLost(found.seen.session_id, found.seen.run_id or "", f"{REPLACED} while this one stalled")


async def _is_settled(services: Sessions, found: Found, decision: Decision) -> bool:
    """Close the session first if necessary; return False if it must be read again."""
    if decision.action is Action.CLOSE_FIRST:
        with suppress(AlreadyRunning, RunLost):
            await close(services, found)
    return decision.action not in (Action.CLOSE_FIRST, Action.WAIT)
