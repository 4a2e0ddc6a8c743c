"""Looking at a session: whether its run is alive, and whether somebody may take it. Reads only; `claim.py` takes."""

from __future__ import annotations

import asyncio

import msgspec

from ...agent import Agent
from ...errors import AlreadyRunning, InvalidArgument, NotResumable, SessionNotFound
from ...ids import is_step_of
from ...lifecycle import SESSION_TERMINAL
from ...messages import Message
from ...types import RunRecord, SessionState
from ..services import Services
from ..step.questions import all_waiting

NOBODY = 0
"""The lease of a run that nobody has, in good order: between two steps, or before the first. Any worker may go on."""

WIND_UP_POLL_SECONDS = 0.02
WIND_UP_SECONDS = 10.0
"""How long to wait for a run that has ended its session and is closing its stream, however long its lease is."""

RUNNING = "it is running"
ABOUT_TO_RUN = "it is about to run"


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


async def ensure_resumable(services: Services, session: SessionState, run: RunRecord | None, *, message: bool) -> None:
    """Raise `AlreadyRunning` or `NotResumable`, unless the session may be taken. A message frees a waiting one."""
    verdict = await can_resume(services, session, run, message=message)
    if verdict.can_resume:
        return
    live = is_live(run, services.clock())
    # By the verdict, not by a second look: the run may have got its record since.
    if session.status == "active" and (live or verdict.reason in (RUNNING, ABOUT_TO_RUN)):
        if run is None or not live:
            raise AlreadyRunning(session.session_id)
        raise AlreadyRunning(session.session_id, run.run_id, lease_until=run.lease_until)
    raise NotResumable(session.session_id, verdict.reason)


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
    loop = asyncio.get_running_loop()
    until = loop.time() + min(services.lease_seconds, WIND_UP_SECONDS)
    while True:
        session, run = await load(services, agent, session_id)
        if session.status == "active" or not is_live(run, services.clock()):
            return session, run
        if loop.time() >= until:
            raise AlreadyRunning(session_id, run.run_id if run else None)
        await asyncio.sleep(WIND_UP_POLL_SECONDS)


async def load_messages(services: Services, session_id: str) -> list[Message]:
    """The whole conversation."""
    page = await services.store.get_messages(session_id, limit=None)
    return list(page.items)
