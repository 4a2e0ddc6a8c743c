"""Standing: who owns a session, and what may be done with it now. Pure: no store, no clock, no awaits.

`standing(session, run, now)` classifies a session. `decide(seen, intent)` returns the next action of a caller with
that intent, or its error: one table for every caller. The table is printed in `docs/design.md`.

A decision is never trusted. It becomes a guard of the commit that carries it out (`claim.py`: version and lease as
read), so a session that has changed since then rejects the commit and the caller decides again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from ...errors import AlreadyRunning, HelixError, NotResumable, RunLost, SessionNotFound, StaleTicket
from ...lifecycle import SESSION_TERMINAL, SUSPENDED
from ...types import InterruptFlag, RunRecord, RunStatus, SessionState, SessionStatus

UNOWNED: Final = 0
"""Lease value of a run that was released cleanly: any worker may continue it immediately."""

POISONED_AFTER: Final = 20
"""How many processes in a row may die while working on a session without a commit before it is failed."""


# -- 1. classifying a session


class Standing(Enum):
    """The situation of a session: who owns it, if anyone. Derived from the session, its latest run and a clock."""

    MISSING = "missing"
    """There is no such session."""
    FRESH = "fresh"
    """It has no message and no owner: created directly in the store."""
    ORPHANED = "orphaned"
    """Active, with messages, but no run is open: restored, forked or saved directly in the store."""
    RUNNING = "running"
    """A process owns it."""
    RELEASED = "released"
    """Queued, or handed over between two steps: any worker may continue the same run."""
    LEASE_EXPIRED = "lease expired"
    """Its owner died or stalled: the run is open and its lease has expired."""
    CLOSING = "closing"
    """Stopped. Its owner is still closing the stream and the run record."""
    STOPPED_UNCLOSED = "stopped unclosed"
    """Suspended or interrupted, and its owner died before it closed the stream and the run record."""
    ENDED_UNCLOSED = "ended unclosed"
    """Completed or failed, and its owner died before it closed the stream and the run record."""
    WAITING = "waiting"
    """Suspended. At least one question is open, here or in a descendant."""
    READY = "ready"
    """Suspended. Every question is answered or past its deadline."""
    STOPPED = "stopped"
    """Interrupted or paused."""
    COMPLETED = "completed"
    FAILED = "failed"


UNCLOSED: Final = frozenset({Standing.STOPPED_UNCLOSED, Standing.ENDED_UNCLOSED})
"""Standings of stopped sessions whose dead owner left the stream and the run record open."""


class Seen(NamedTuple):
    """A session as a caller read it: its standing, and the facts that errors and the rules below need."""

    standing: Standing
    session_id: str = ""
    run_id: str | None = None
    status: SessionStatus | None = None
    engine: str | None = None
    """The engine that schedules the run's steps; None: any worker may."""
    queued: bool = False
    """Whether workers continue the run if its process dies, so that callers keep waiting for it."""
    questions: tuple[str, ...] = ()
    """The open questions, as listed in errors."""
    lease_until: int | None = None
    stop: InterruptFlag | None = None
    """An interrupt or abort that was requested and that the run may not have read."""
    crashes: int = 0
    """How many processes in a row died while working on the session without a commit, before its latest owner."""

    @property
    def must_end(self) -> bool:
        """Whether no process may continue the run: it was asked to stop, or it keeps killing its process."""
        return self.stop is not None or self.crashes >= POISONED_AFTER


def standing(
    session: SessionState | None,
    run: RunRecord | None,
    now: int,
    *,
    open_questions: int = 0,
    has_messages: bool = True,
) -> Standing:
    """Return the standing of a session. `run` is its latest run.

    `open_questions`: of the session and its descendants; relevant only if it is suspended. `has_messages`: relevant
    only if no process owns it.
    """
    if session is None:
        return Standing.MISSING
    run = open_run(run)
    is_live = run is not None and (run.lease_until or UNOWNED) > now and not run.is_postponed
    if session.status == "active":
        if is_live:
            return Standing.RUNNING
        if not has_messages:
            return Standing.FRESH
        if run is None:
            return Standing.ORPHANED
        return Standing.RELEASED if run.lease_until == UNOWNED or run.is_postponed else Standing.LEASE_EXPIRED
    if is_live:
        return Standing.CLOSING
    if session.status in SESSION_TERMINAL:
        if run is not None:
            return Standing.ENDED_UNCLOSED
        return Standing.COMPLETED if session.status == "completed" else Standing.FAILED
    if run is not None:
        return Standing.STOPPED_UNCLOSED
    if not has_messages:
        return Standing.FRESH
    if session.status in SUSPENDED:
        return Standing.WAITING if open_questions else Standing.READY
    return Standing.STOPPED


def open_run(run: RunRecord | None) -> RunRecord | None:
    """Return the run if its record is open: its owner is working, closing or dead."""
    return run if run is not None and run.status == "running" else None


def crashes_of(session: SessionState, run: RunRecord | None) -> int:
    """Return how many runs in a row died before an open run that has committed nothing since its claim."""
    run = open_run(run)
    return 0 if run is None or run.claimed_step != session.step_count else run.crashes


def ended_as(session: SessionState) -> RunStatus:
    """Return the status with which the record of a dead run ends. The same for every process that closes one."""
    status = session.status
    if status == "active" or status == "paused":  # narrows the type
        return "interrupted"
    return status


# -- 2. deciding what to do


class Intent(Enum):
    """What a caller wants to do."""

    START = "start"
    """`execute(input)`: start a turn, or continue an unfinished one with this message."""
    SUBMIT = "submit"
    """The same, for a worker to run."""
    ENQUEUE = "enqueue"
    """The same; if a run owns the session, add the message to its queue."""
    RESUME = "resume"
    RESUME_WITH_MESSAGE = "resume with message"
    RETRY = "retry"
    """Run a failed turn again from its last committed step."""
    STEP = "step"
    """One step, for an engine with a current ticket. A ticket that is done uses RESUME."""

    RECOVER = "recover"
    """A worker found the session due: queued, released, lease expired, questions answered or expired."""
    ANSWER = "answer"
    """A person or client responds to a question."""
    CALL_CHILD = "call child"
    """The owner of the parent session runs the call that the child's latest run was started for."""
    CALL_CHILD_ANEW = "call child anew"
    """The same for another call: a persistent child, or a call repeated after a restore."""

    INTERRUPT = "interrupt"
    ABORT = "abort"
    FAIL = "fail"
    """Fail the session, no matter which process owns it: it expired, or it is the child of a session that ended."""
    DELETE = "delete"
    RESTORE = "restore"
    """Go back to a checkpoint permanently."""
    BRANCH = "branch"
    """`regenerate`, `edit` and `switch_branch`: replace the end of the conversation."""
    AWAIT_RESULT = "await result"


class Action(Enum):
    """What the caller does next."""

    # claims: one commit each, see `claim.py`
    CREATE = "create"
    """Create the session together with its first turn."""
    START = "start"
    """Start the next turn: a new run record, an empty stream."""
    TAKE_OVER = "take over"
    """Continue the unfinished turn in a new run record."""
    CONTINUE = "continue"
    """Continue the same run record."""
    CLOSE = "close"
    """Close the stream and the record of a dead run. Nothing else."""
    CLOSE_FIRST = "close first"
    """Close, then read the session again and decide again."""
    END = "end"
    """Stop or fail the session from outside, and close it."""
    REWIND = "rewind"
    """Restore the checkpoint, end an open run in the same commit, rewind the stream."""

    BRANCH = "branch"
    """Store the end of the conversation as a branch, end an open run in the same commit, reset the stream."""

    # not claims
    ENQUEUE = "enqueue"
    """Add the message to the queue of the run that owns the session."""
    FLAG = "flag"
    """Set the interrupt flag. The owner acts on it."""
    RECORD = "record"
    """Store the response. A run that owns the session finds it; otherwise it may make the session due."""
    STOP_FIRST = "stop first"
    """Ask the owner to stop, wait until it has, and decide again."""
    REMOVE = "remove"
    WAIT = "wait"
    """Read again shortly. After the length of a lease: `AlreadyRunning`."""
    RETURN = "return"
    """Nothing to do: return the session's situation."""
    LEAVE = "leave"
    """Not for this caller: workers skip the session."""
    REFUSE = "refuse"
    """Raise the error of the decision."""


CLAIMS: Final = frozenset(
    {
        Action.CREATE,
        Action.START,
        Action.TAKE_OVER,
        Action.CONTINUE,
        Action.CLOSE,
        Action.CLOSE_FIRST,
        Action.END,
        Action.REWIND,
        Action.BRANCH,
    }
)
"""Actions that take the session from its owner."""


@dataclass(frozen=True)
class Decision:
    """One cell of the table. `reason` completes the sentence "Session 's' cannot be resumed: ..."."""

    action: Action
    error: type[HelixError] | None = None
    reason: str = ""

    @property
    def is_refusal(self) -> bool:
        """Whether the caller gets an error."""
        return self.error is not None


def _refuse(error: type[HelixError], reason: str = "") -> Decision:
    return Decision(Action.REFUSE, error, reason)


create = Decision(Action.CREATE)
start = Decision(Action.START)
takeover = Decision(Action.TAKE_OVER)
proceed = Decision(Action.CONTINUE)
close = Decision(Action.CLOSE)
close1st = Decision(Action.CLOSE_FIRST)
end = Decision(Action.END)
rewind = Decision(Action.REWIND)
branch = Decision(Action.BRANCH)
enqueue = Decision(Action.ENQUEUE)
flag = Decision(Action.FLAG)
record = Decision(Action.RECORD)
stop1st = Decision(Action.STOP_FIRST)
remove = Decision(Action.REMOVE)
wait = Decision(Action.WAIT)
report = Decision(Action.RETURN)
leave = Decision(Action.LEAVE)

busy = _refuse(AlreadyRunning)
missing = _refuse(SessionNotFound)
silent = _refuse(NotResumable, "it has no message to continue from; execute() starts its first turn")
asks = _refuse(NotResumable, "it waits for an answer to {questions}")
over = _refuse(NotResumable, "it is {status}; execute() starts the next turn")
sound = _refuse(NotResumable, "it is {status}, not failed")
stale = _refuse(StaleTicket, "its turn is over")
lost = _refuse(RunLost, "its process died")
unrun = _refuse(RunLost, "nothing runs it")
engines = _refuse(NotResumable, "its run belongs to the engine {engine!r}, which continues it")

S = Standing

_Rows = Sequence[tuple[Standing, *tuple[Decision, ...]]]

# fmt: off
_DRIVE: Final = (
    Intent.START, Intent.SUBMIT, Intent.ENQUEUE, Intent.RESUME, Intent.RESUME_WITH_MESSAGE, Intent.RETRY, Intent.STEP,
)
_DRIVE_ROWS: Final[_Rows] = (
    #                    start     submit    enqueue   resume    + message retry     step
    (S.MISSING,          create,   create,   create,   missing,  missing,  missing,  missing),
    (S.FRESH,            start,    start,    start,    silent,   start,    sound,    stale),
    (S.ORPHANED,         takeover, takeover, takeover, takeover, takeover, sound,    takeover),
    (S.RUNNING,          busy,     busy,     enqueue,  busy,     busy,     sound,    busy),
    (S.RELEASED,         busy,     busy,     enqueue,  proceed,  busy,     sound,    proceed),
    (S.LEASE_EXPIRED,    takeover, takeover, takeover, takeover, takeover, sound,    takeover),
    (S.CLOSING,          wait,     wait,     wait,     wait,     wait,     wait,     wait),
    (S.STOPPED_UNCLOSED, close1st, close1st, close1st, close1st, close1st, close1st, close1st),
    (S.ENDED_UNCLOSED,   close1st, close1st, close1st, close,    close1st, close1st, close),
    (S.WAITING,          takeover, takeover, takeover, asks,     takeover, sound,    report),
    (S.READY,            takeover, takeover, takeover, takeover, takeover, sound,    report),
    (S.STOPPED,          takeover, takeover, takeover, takeover, takeover, sound,    report),
    (S.COMPLETED,        start,    start,    start,    over,     over,     sound,    report),
    (S.FAILED,           start,    start,    start,    over,     over,     start,    report),
)

_SCHEDULE: Final = (Intent.RECOVER, Intent.ANSWER, Intent.CALL_CHILD, Intent.CALL_CHILD_ANEW)
_SCHEDULE_ROWS: Final[_Rows] = (
    #                    recover   answer    child     child anew
    (S.MISSING,          leave,    missing,  create,   create),
    (S.FRESH,            leave,    record,   start,    start),
    (S.ORPHANED,         leave,    record,   takeover, takeover),
    (S.RUNNING,          leave,    record,   takeover, takeover),
    (S.RELEASED,         proceed,  record,   takeover, takeover),
    (S.LEASE_EXPIRED,    takeover, record,   takeover, takeover),
    (S.CLOSING,          leave,    record,   close1st, close1st),
    (S.STOPPED_UNCLOSED, close1st, record,   close1st, close1st),
    (S.ENDED_UNCLOSED,   close,    record,   close1st, close1st),
    (S.WAITING,          leave,    record,   report,   takeover),
    (S.READY,            takeover, record,   takeover, takeover),
    (S.STOPPED,          leave,    record,   takeover, takeover),
    (S.COMPLETED,        leave,    record,   report,   start),
    (S.FAILED,           leave,    record,   report,   start),
)

_STEER: Final = (
    Intent.INTERRUPT, Intent.ABORT, Intent.FAIL, Intent.DELETE, Intent.RESTORE, Intent.BRANCH, Intent.AWAIT_RESULT,
)
_STEER_ROWS: Final[_Rows] = (
    #                    interrupt abort     fail      delete    restore   branch    result
    (S.MISSING,          missing,  missing,  report,   report,   missing,  missing,  missing),
    (S.FRESH,            end,      end,      end,      remove,   rewind,   silent,   unrun),
    (S.ORPHANED,         end,      end,      end,      remove,   rewind,   branch,   unrun),
    (S.RUNNING,          flag,     flag,     end,      stop1st,  busy,     busy,     wait),
    (S.RELEASED,         end,      end,      end,      remove,   rewind,   busy,     wait),
    (S.LEASE_EXPIRED,    end,      end,      end,      remove,   rewind,   branch,   lost),
    (S.CLOSING,          wait,     wait,     close1st, wait,     wait,     wait,     report),
    (S.STOPPED_UNCLOSED, close1st, close1st, end,      remove,   close1st, close1st, report),
    (S.ENDED_UNCLOSED,   report,   close,    close,    remove,   close1st, close1st, report),
    (S.WAITING,          end,      end,      end,      remove,   rewind,   branch,   report),
    (S.READY,            end,      end,      end,      remove,   rewind,   branch,   report),
    (S.STOPPED,          report,   end,      end,      remove,   rewind,   branch,   report),
    (S.COMPLETED,        report,   report,   report,   remove,   rewind,   branch,   report),
    (S.FAILED,           report,   report,   report,   remove,   rewind,   branch,   report),
)
# fmt: on


def rows() -> Iterable[tuple[tuple[Standing, Intent], Decision]]:
    """Yield the table cell by cell, as written above."""
    for intents, written in ((_DRIVE, _DRIVE_ROWS), (_SCHEDULE, _SCHEDULE_ROWS), (_STEER, _STEER_ROWS)):
        for at, *cells in written:
            for intent, cell in zip(intents, cells, strict=True):
                yield (at, intent), cell


TABLE: Final[Mapping[tuple[Standing, Intent], Decision]] = dict(rows())


def decide(seen: Seen, intent: Intent, *, engine: str | None = None) -> Decision:
    """Return the decision. `engine`: the engine that asks, if any.

    Four rules override the table. A dead run that must end (it was asked to stop, or too many processes died in it) is
    closed before anything else. A scheduler does not touch runs of another scheduler, except to close them. Until an
    engine's run stops, no one else continues it; once its questions are answered, that engine does. A caller that
    waits for a queued run keeps waiting if its process died: a worker continues it.
    """
    decision = TABLE[seen.standing, intent]
    unowned = seen.standing in (Standing.RELEASED, Standing.LEASE_EXPIRED)
    if unowned and seen.must_end and decision.action in (Action.CONTINUE, Action.TAKE_OVER):
        return close1st
    if intent is Intent.RECOVER and seen.engine != engine and decision.action not in (Action.CLOSE, Action.CLOSE_FIRST):
        return leave
    if seen.engine is not None and seen.engine != engine and decision.action in CLAIMS:
        if unowned and intent in (Intent.START, Intent.SUBMIT, Intent.BRANCH):
            return busy
        if intent in (Intent.RESUME, Intent.RESUME_WITH_MESSAGE) and unowned:
            return engines
        if intent is Intent.RESUME and seen.standing is Standing.READY:
            return engines
    if intent is Intent.AWAIT_RESULT and seen.queued and seen.standing is Standing.LEASE_EXPIRED:
        return wait
    return decision


def reason_of(seen: Seen, decision: Decision) -> str:
    """Return the reason for a rejection as a phrase."""
    return decision.reason.format(status=seen.status, questions=", ".join(seen.questions), engine=seen.engine)


def refusal(seen: Seen, decision: Decision) -> HelixError:
    """Return the error for a rejection."""
    assert decision.error is not None
    if decision.error is SessionNotFound:
        return SessionNotFound(seen.session_id)
    if decision.error is AlreadyRunning:
        return AlreadyRunning(seen.session_id, seen.run_id, lease_until=seen.lease_until or None)
    why = reason_of(seen, decision)
    if decision.error is RunLost:
        return RunLost(seen.session_id, seen.run_id or "", why)
    return StaleTicket(seen.session_id, why) if decision.error is StaleTicket else NotResumable(seen.session_id, why)


_WHY: Final = {
    S.ORPHANED: "nothing runs it",
    S.RUNNING: "it is running",
    S.RELEASED: "it waits for a worker",
    S.LEASE_EXPIRED: "its process died",
    S.CLOSING: "its run is about to end",
    S.STOPPED_UNCLOSED: "it is {status}, but its process died before it could close the stream",
    S.ENDED_UNCLOSED: "{status}, but its process died before it could close the stream",
    S.WAITING: "a message frees it",
    S.READY: "every answer is in",
}


def described(seen: Seen, decision: Decision) -> str:
    """Return the reason for the result of `can_resume` as a phrase."""
    if decision.reason:
        return reason_of(seen, decision)
    return _WHY.get(seen.standing, "it is {status}").format(status=seen.status)
