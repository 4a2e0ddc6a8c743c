"""Schedules: runs that start at due times. Each due time starts exactly one run, even after crashes (X11).

A schedule is stored as a session of the library's own: paused, with `wake_at` as the time when a worker must check it,
and the `Schedule` itself as its output. So the index of due sessions finds it on every backend, and waiting costs
nothing. A worker does three things and may crash after each:

1. A guarded commit advances `next_at` and records the due time that is about to start. Of several workers one wins,
   and this commit decides which due times count as missed.
2. The run is submitted under an idempotency key made from the schedule and the due time.
3. Another guarded commit records that it has started.

If a worker dies after the first commit, another one finds the recorded due time and repeats the second.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Literal, TypedDict, get_args

import msgspec

from ...agent import AgentRegistry
from ...codec import Json
from ...errors import (
    AlreadyRunning,
    HelixError,
    IdempotencyConflict,
    InvalidArgument,
    SessionExists,
    SessionNotFound,
    StoreUnavailable,
    VersionConflict,
    shown,
)
from ...ids import RESERVED_PREFIX, ensure_id, ensure_own_id
from ...lifecycle import SUSPENDED
from ...messages import Message
from ...safe_text import get_logger
from ...stores.paging import MAX_PAGE
from ...types import Owner, SessionState
from ..options import ensure_messages
from ..services import Services
from .timetable import Timetable, timetable

logger = get_logger("helix_agents.executor")

SCHEDULE = f"{RESERVED_PREFIX}schedule"
"""The tag of sessions that are schedules, and the prefix of their ids and agent types."""
MISSED_AFTER_SECONDS = 60
"""A due time counts as missed if it passed longer ago than this."""
BUSY_SECONDS = 5.0
"""How long to wait before retrying a run whose session is running or waits for a person."""

Missed = Literal["skip", "once"]


class Schedule(msgspec.Struct, frozen=True):
    """Runs that start at due times. `next_at`: the next due time; None if there is none.

    `last_at`: the latest due time whose run was started. `starting_at`: a due time whose run is being started, or waits
    until its session is free. `last_error`: why the latest due time did not start a run.
    """

    schedule_id: str
    agent: str
    next_at: int | None
    at: int | None = None
    every_seconds: float | None = None
    cron: str | None = None
    timezone: str = "UTC"
    missed: Missed = "skip"
    session_id: str | None = None
    user_id: str | None = None
    key: str | None = None
    created_at: int = 0
    starting_at: int | None = None
    last_at: int | None = None
    last_error: str | None = None

    @property
    def timetable(self) -> Timetable:
        """The due times of the schedule."""
        every_ms = None if self.every_seconds is None else int(self.every_seconds * 1000)
        return Timetable(self.created_at, self.at, every_ms, self.cron, self.timezone)


class ScheduleOptions(TypedDict, total=False):
    """The keyword arguments of `schedule`: exactly one of `at`, `every_seconds` and `cron`, and any of the others.

    `at`: epoch milliseconds or a `datetime`. `cron`: five fields, such as `0 9 * * MON-FRI`; needs the extra
    `schedules`. `timezone`: the zone of `cron`, and of an `at` without a zone; `UTC` by default.

    `session_id`: each run is a turn of this session; otherwise each run gets its own session. `user_id`: the user who
    owns the schedule and its sessions. `key`: repeating a key returns the schedule it created before; for a different
    schedule it raises `IdempotencyConflict`. `missed`: whether due times that passed more than a minute ago, while no
    worker was running, are skipped (`"skip"`) or start one run together (`"once"`). By default `at` starts its run
    however late, and the others skip.
    """

    at: int | datetime | None
    every_seconds: float | None
    cron: str | None
    timezone: str
    session_id: str | None
    key: str | None
    missed: Missed | None
    user_id: str | None


Submit = Callable[[Schedule, int, Sequence[Message], str], Awaitable[object]]
"""Submits the run of a due time: schedule, due time, messages, idempotency key."""


def schedule_type(agent: str) -> str:
    """Return the agent type of an agent's schedules; only workers that know the agent scan for it."""
    return f"{SCHEDULE}/{agent}"


def decided(schedule: Schedule, now: int) -> Schedule:
    """Return the schedule with the due time to start now, if any, and the next one. Pure.

    Due times that passed more than a minute ago were missed: they start no run, or with `once` a single one.
    """
    due = schedule.next_at
    if due is None or due > now:
        return schedule
    oldest = now - MISSED_AFTER_SECONDS * 1000
    if due >= oldest:
        return msgspec.structs.replace(schedule, starting_at=due, next_at=schedule.timetable.after(due))
    starting = due if schedule.missed == "once" else None
    return msgspec.structs.replace(schedule, starting_at=starting, next_at=schedule.timetable.after(oldest - 1))


class Schedules:
    """Creates schedules and starts due runs."""

    def __init__(self, services: Services, agents: AgentRegistry, submit: Submit) -> None:
        self._services = services
        self._agents = agents
        self._submit = submit

    async def add(self, schedule: Schedule, messages: Sequence[Message]) -> Schedule:
        """Store a schedule, or return the one that exists under the same id if it is equal.

        Raises `IdempotencyConflict` if it differs, and `InvalidArgument` for a time that has passed.
        """
        ensure_messages(messages)
        store, session_id = self._services.store, _session_id(schedule.schedule_id)
        request: dict[str, Json] = {"messages": list(messages), "rule": _rule(schedule)}
        if await store.load_state(session_id) is None:
            if schedule.next_at is None:
                raise InvalidArgument("at must be in the future.")
            with suppress(SessionExists):  # created by the same request concurrently
                await store.create_session(
                    session_id,
                    agent_type=ensure_id(schedule_type(schedule.agent), "the agent's name in a schedule"),
                    user_id=schedule.user_id,
                    tags=[SCHEDULE],
                    custom_state=request,
                )
        stored = await store.load_state(session_id)
        if stored is None or stored.custom_state != request:
            raise IdempotencyConflict(session_id, schedule.schedule_id)
        if stored.status != "active":
            return _schedule_of(stored)
        try:
            await self._save(stored, schedule)
        except VersionConflict:
            stored = await store.load_state(session_id) or stored
            return _schedule_of(stored)
        return schedule

    async def list(self, user_id: str | None = None) -> list[Schedule]:
        """Return the schedules that have due times left, newest first."""
        found: list[Schedule] = []
        cursor: str | None = None
        while True:
            page = await self._services.store.list_sessions(
                tags=[SCHEDULE], user_id=user_id, status="paused", limit=MAX_PAGE, cursor=cursor, count=False
            )
            found += map(_schedule_of, page.items)
            if page.next_cursor is None:
                return found
            cursor = page.next_cursor

    async def cancel(self, schedule_id: str, user_id: str | None = None) -> bool:
        """Delete a schedule; return False if it does not exist. Runs that it started continue."""
        store, session_id = self._services.store, _session_id(schedule_id)
        stored = await store.load_state(session_id)
        if stored is None or (user_id is not None and stored.user_id != user_id):
            return False
        return await store.delete_session(session_id, owner=Owner(stored.incarnation))

    async def work(self, session_id: str) -> bool:
        """Start the due run of a schedule; return False if there is nothing to do here."""
        stored = await self._services.store.load_state(session_id)
        if stored is None or stored.status != "paused":
            return False
        schedule = _schedule_of(stored)
        if schedule.agent not in self._agents:
            return False
        try:
            if schedule.starting_at is None:
                chosen = decided(schedule, self._services.clock())
                if chosen is schedule:
                    return False
                schedule, stored = chosen, await self._save(stored, chosen)
            if schedule.starting_at is not None:
                schedule, stored = await self._started(schedule, schedule.starting_at, stored)
        except (SessionNotFound, VersionConflict):
            return False  # another worker was faster, or the schedule was canceled
        if schedule.next_at is None and schedule.starting_at is None and schedule.key is None:
            await self._services.store.delete_session(session_id, owner=Owner(stored.incarnation))
        return True

    async def _started(self, schedule: Schedule, due: int, stored: SessionState) -> tuple[Schedule, SessionState]:
        """Start the run of a due time and record it, or record that its session is busy."""
        error: str | None = None
        try:
            await self._start(schedule, due, stored)
        except AlreadyRunning:
            busy_until = self._services.clock() + int(BUSY_SECONDS * 1000)
            return schedule, await self._save(stored, schedule, wake_at=busy_until)
        except StoreUnavailable:
            raise
        except HelixError as refused:
            error = str(refused)
            logger.warning("Schedule %s could not start its run of time %d: %s", schedule.schedule_id, due, error)
        last = schedule.last_at if error else due
        done = msgspec.structs.replace(schedule, starting_at=None, last_at=last, last_error=error)
        return done, await self._save(stored, done)

    async def _start(self, schedule: Schedule, due: int, stored: SessionState) -> None:
        """Submit the run of a due time. Also raises `AlreadyRunning` if the session waits for a person.

        A message would settle the pending question of such a session without a response.
        """
        if schedule.session_id is not None:
            session = await self._services.store.load_state(schedule.session_id)
            if session is not None and session.status in SUSPENDED:
                raise AlreadyRunning(schedule.session_id)
        key = f"{SCHEDULE}/{stored.incarnation}/{due}"
        await self._submit(schedule, due, stored.custom_state["messages"], key)

    async def _save(self, stored: SessionState, schedule: Schedule, *, wake_at: int | None = None) -> SessionState:
        """Store the schedule. Raises `VersionConflict` if another worker was faster.

        While a run is being started, other workers skip the schedule for the length of a lease.
        """
        if wake_at is None:
            leased = schedule.starting_at is not None
            wake_at = self._services.clock() + self._services.lease_ms if leased else schedule.next_at
        changed = msgspec.structs.replace(
            stored,
            status="paused" if wake_at is not None else "completed",
            output=msgspec.to_builtins(schedule),
            error=schedule.last_error,
            wake_at=wake_at,
            custom_state=None,
        )
        version = await self._services.store.save_state(
            stored.session_id, changed, expected_version=stored.version, owner=Owner(stored.incarnation)
        )
        return msgspec.structs.replace(changed, version=version, custom_state=stored.custom_state)


def new_schedule(agent: str, options: ScheduleOptions, services: Services) -> Schedule:
    """Return a new schedule with validated options. Raises `InvalidArgument`."""
    if unknown := options.keys() - ScheduleOptions.__annotations__.keys():
        raise TypeError(f"Unknown option {sorted(unknown)[0]!r}.")
    now, zone, missed = services.clock(), options.get("timezone", "UTC"), options.get("missed")
    at, every, cron = options.get("at"), options.get("every_seconds"), options.get("cron")
    if missed not in (None, *get_args(Missed)):
        raise InvalidArgument(f"Invalid missed {shown(missed)}: expected one of {get_args(Missed)}.")
    table = timetable(now, at=at, every_seconds=every, cron=cron, timezone=zone)
    session_id, key, user_id = options.get("session_id"), options.get("key"), options.get("user_id")
    return Schedule(
        _new_id(key, user_id, services),
        agent,
        table.after(now),
        at=table.at,
        every_seconds=every,
        cron=cron,
        timezone=zone,
        missed=missed or ("skip" if at is None else "once"),
        session_id=None if session_id is None else ensure_own_id(session_id, "session_id"),
        user_id=user_id,
        key=key,
        created_at=now,
    )


def _new_id(key: str | None, user_id: str | None, services: Services) -> str:
    """Return the id of a schedule: its key, prefixed with the user, or a random one."""
    if key is None:
        return f"schedule-{services.ids()}"
    own = ensure_own_id(key, "key")
    return own if user_id is None else f"{user_id}/{own}"


def _session_id(schedule_id: str) -> str:
    return ensure_id(f"{SCHEDULE}/{schedule_id}", "schedule_id")


def _schedule_of(stored: SessionState) -> Schedule:
    return msgspec.convert(stored.output, Schedule)


def _rule(schedule: Schedule) -> dict[str, Any]:
    """Return the fields that must be equal when a schedule is created again under its key."""
    names = ("agent", "at", "every_seconds", "cron", "timezone", "missed", "session_id", "user_id")
    return {name: getattr(schedule, name) for name in names}
