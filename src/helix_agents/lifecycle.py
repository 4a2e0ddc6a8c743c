"""Legal changes of status, as tables. Rules of this file: data only, and the few functions that read it.

A session that has ended may become active again, because a conversation continues with the next turn. A run that has
ended stays so: the next turn is another run. A stream that has ended or failed stays so until it is reset.

The stores reject every change that is not in these tables with `IllegalTransition`. The only exception is
`restore_checkpoint`, which restores the status of its checkpoint from any status.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final, get_args

from .errors import IllegalTransition, InvalidArgument, shown
from .types import RunStatus, SessionStatus, StreamStatus

SESSION_STATUSES: Final[frozenset[str]] = frozenset(get_args(SessionStatus))
RUN_STATUSES: Final[frozenset[str]] = frozenset(get_args(RunStatus))
STREAM_STATUSES: Final[frozenset[str]] = frozenset(get_args(StreamStatus))

SUSPENDED: Final[frozenset[str]] = frozenset(
    {"suspended_client_tool", "suspended_awaiting_children", "suspended_step_partial"}
)
WAITING: Final[frozenset[str]] = SUSPENDED | {"paused"}
"""The statuses in which time alone may make a session due."""
SESSION_TERMINAL: Final[frozenset[str]] = frozenset({"completed", "failed"})
RUN_TERMINAL: Final[frozenset[str]] = frozenset({"completed", "failed", "interrupted"})

SESSION_TRANSITIONS: Final[Mapping[str, frozenset[str]]] = {
    "active": SESSION_STATUSES,
    "paused": frozenset({"paused", "active", "interrupted", "failed", "completed"}),
    "interrupted": frozenset({"interrupted", "active", "failed", "completed"}),
    "completed": frozenset({"completed", "active", "failed"}),
    "failed": frozenset({"failed", "active"}),
    "suspended_client_tool": SESSION_STATUSES,
    "suspended_awaiting_children": SESSION_STATUSES,
    "suspended_step_partial": SESSION_STATUSES,
}

RUN_TRANSITIONS: Final[Mapping[str, frozenset[str]]] = {
    "running": RUN_STATUSES,
    "completed": frozenset({"completed"}),
    "failed": frozenset({"failed"}),
    "interrupted": frozenset({"interrupted"}),
    # A suspended run ends when its session is resumed under another run, is interrupted or expires.
    "suspended_client_tool": RUN_STATUSES,
    "suspended_awaiting_children": RUN_STATUSES,
    "suspended_step_partial": RUN_STATUSES,
}

STREAM_TRANSITIONS: Final[Mapping[str, frozenset[str]]] = {
    "active": frozenset({"active", "paused", "ended", "failed"}),
    "paused": frozenset({"paused", "active", "ended", "failed"}),
    "ended": frozenset({"ended"}),
    "failed": frozenset({"failed"}),
}

_TABLES: Final[Mapping[str, Mapping[str, frozenset[str]]]] = {
    "session": SESSION_TRANSITIONS,
    "run": RUN_TRANSITIONS,
    "stream": STREAM_TRANSITIONS,
}


def ensure_status(kind: str, status: object) -> None:
    """Raise `InvalidArgument` for an unknown status."""
    if status.__class__ is not str or status not in _TABLES[kind]:
        known = ", ".join(sorted(_TABLES[kind]))
        raise InvalidArgument(f"Unknown {kind} status {shown(status)}. Known statuses: {known}.")


def illegal_transition(kind: str, object_id: str, current: str, wanted: str) -> IllegalTransition:
    """Return the error for a change that the table of `kind` does not list, or that came too late."""
    return IllegalTransition(kind, current, wanted, object_id, tuple(sorted(_TABLES[kind][current] - {current})))


@cache
def may_become(kind: str, wanted: str) -> tuple[str, ...]:
    """Return the statuses from which `wanted` can be reached, for a guard that the backend checks."""
    return tuple(sorted(current for current, targets in _TABLES[kind].items() if wanted in targets))


@cache
def guarded_sources(status: str) -> tuple[str, ...]:
    """Return the statuses from which a session can reach this one; empty if that is every status."""
    sources = may_become("session", status)
    return () if len(sources) == len(SESSION_STATUSES) else sources
