"""Read a session and its latest run, and determine its standing. Reads only: `claim.py` and `closing.py` write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import msgspec

from ...agent import Agent
from ...clock import Clock, system_clock
from ...errors import InvalidArgument, SessionNotFound
from ...messages import Message
from ...stores.state.contract import StateStore
from ...streams.contract import StreamManager
from ...types import Checkpoint, InterruptFlag, RunRecord, SessionState
from ..step.undo import is_undoing
from .questions import all_waiting
from .standing import Intent, Seen, Standing, crashes_of, decide, described, open_run, standing


class Sessions(Protocol):
    """What reading and closing sessions requires. `Services` has it, and so does a cleanup without agents."""

    @property
    def store(self) -> StateStore:
        """Return where sessions are stored."""
        ...

    @property
    def streams(self) -> StreamManager | None:
        """Return where their streams are stored."""
        ...

    @property
    def clock(self) -> Clock:
        """Return the clock that leases are compared with."""
        ...

    @property
    def lease_ms(self) -> int:
        """Return for how long a process owns a run without renewing."""
        ...


class SessionStores(NamedTuple):
    """Stores for operations that do not run agents."""

    store: StateStore
    streams: StreamManager | None
    clock: Clock = system_clock
    lease_ms: int = 10_000
    """How long other processes wait before they close a session, if this one dies while closing it."""


class Found(NamedTuple):
    """A session and its latest run as of `read_at`. `session` is None if it does not exist."""

    session: SessionState | None
    run: RunRecord | None
    seen: Seen
    read_at: int = 0
    checkpoint: Checkpoint | None = None
    """The latest checkpoint, without custom state."""
    messages: Sequence[Message] | None = None
    """The whole conversation, if it was requested."""

    @property
    def existing(self) -> SessionState:
        """The session. Raises `SessionNotFound`."""
        if self.session is None:
            raise SessionNotFound(self.seen.session_id)
        return self.session

    @property
    def commit_id(self) -> str | None:
        """The id of the latest checkpoint; it changes when the conversation continues or is branched."""
        return self.checkpoint.checkpoint_id if self.checkpoint is not None else None

    @property
    def last_commit(self) -> Checkpoint | None:
        """The checkpoint of the last step, if nothing was committed after it."""
        latest = self.checkpoint
        if latest is None or latest.kind != "step" or latest.step_count != self.existing.step_count:
            return None
        return latest

    async def history(self, store: StateStore) -> list[Message]:
        """Return the whole conversation, loaded now unless it was requested before."""
        return list(self.messages) if self.messages is not None else await load_messages(store, self.seen.session_id)


class CanResume(msgspec.Struct, frozen=True):
    """Whether `resume` would continue the session, and why or why not."""

    can_resume: bool
    reason: str


async def find(
    services: Sessions,
    session_id: str,
    *,
    agent: Agent | None = None,
    user_id: str | None = None,
    messages: bool = False,
) -> Found:
    """Read a session, its latest run and its standing in one call. A session of another user counts as missing.

    `messages`: also load the conversation. Raises `InvalidArgument` for a session of another agent.
    """
    now = services.clock()
    read = await services.store.load_conversation(session_id, last=None if messages else 0)
    if read is None or (user_id is not None and read.session.user_id != user_id):
        return Found(None, None, Seen(Standing.MISSING, session_id), now)
    session, run = read.session, read.run
    if agent is not None and session.agent_type != agent.name:
        raise InvalidArgument(
            f"Session {session_id!r} belongs to agent {session.agent_type!r}, not {agent.name!r}: pass that agent."
        )
    seen = await _observe(services, session, run, has_messages=read.message_count > 0)
    return Found(session, run, seen, now, read.checkpoint, read.messages if messages else None)


async def _observe(services: Sessions, session: SessionState, run: RunRecord | None, *, has_messages: bool) -> Seen:
    """Return the session with its standing now."""
    now = services.clock()
    # A run starts with a message, so a message count matters only if there is no run.
    at = standing(session, run, now, has_messages=has_messages or run is not None)
    questions: tuple[str, ...] = ()
    wakes = session.wake_at is not None and session.wake_at <= now
    if at is Standing.READY and not wakes and (waits := await all_waiting(services.store, session, now)):
        at = Standing.WAITING
        questions = tuple(f"{wait.tool_name} ({wait.tool_call_id})" for wait in waits)
    flag, engine = session.interrupt_flag, run.engine if run is not None else None
    return Seen(
        at,
        session.session_id,
        run.run_id if run is not None else None,
        session.status,
        engine,
        queued=engine is not None or (run is not None and run.queued),
        lease_until=run.lease_until if open_run(run) and run else None,
        stop=flag if _stops(flag, session, run) else None,
        questions=questions,
        crashes=crashes_of(session, run) if at is Standing.LEASE_EXPIRED else 0,
    )


def _stops(flag: InterruptFlag | None, session: SessionState, run: RunRecord | None) -> bool:
    """Return whether the latest run was asked to stop. A run that undoes its turn ignores such requests."""
    return flag is not None and run is not None and flag.run_id == run.run_id and not is_undoing(session)


def can_resume(seen: Seen, *, message: bool = False) -> CanResume:
    """Return whether the session can be continued now, with or without a message."""
    decision = decide(seen, Intent.RESUME_WITH_MESSAGE if message else Intent.RESUME)
    return CanResume(not decision.is_refusal, described(seen, decision))


async def load_messages(store: StateStore, session_id: str) -> list[Message]:
    """Return the whole conversation."""
    page = await store.get_messages(session_id, limit=None)
    return list(page.items)
