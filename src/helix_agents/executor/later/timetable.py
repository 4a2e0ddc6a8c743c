"""Compute when a schedule is due. Pure: no clock, no store.

A cron expression is evaluated in a time zone, as cron on Debian does: a time that is skipped when daylight saving time
starts is due right after the gap, and a time that occurs twice is due once. Expressions with `*` or ranges in the hour
follow real time.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from ...errors import InvalidArgument, shown

MIN_SECONDS = 1
MAX_SECONDS = 366 * 86_400 * 10
LAST_MOMENT = 253_402_300_799_000
"""The end of the year 9999 in milliseconds: the last time that a `datetime` can hold."""


class Timetable(msgspec.Struct, frozen=True):
    """A rule for due times: once at `at`, every `every_ms` after `start`, or by `cron`."""

    start: int
    at: int | None = None
    every_ms: int | None = None
    cron: str | None = None
    timezone: str = "UTC"

    def after(self, moment: int) -> int | None:
        """Return the first due time after `moment`; None if there is none."""
        if self.at is not None:
            return self.at if self.at > moment else None
        if self.every_ms is not None:
            done = max(0, moment - self.start) // self.every_ms
            return self.start + (done + 1) * self.every_ms
        return _next_of_cron(self.cron or "", _zone(self.timezone), moment)


def timetable(
    now: int, *, at: object = None, every_seconds: object = None, cron: object = None, timezone: str = "UTC"
) -> Timetable:
    """Return a timetable that starts now. Raises `InvalidArgument` unless exactly one rule is given and it is valid."""
    if sum(each is not None for each in (at, every_seconds, cron)) != 1:
        raise InvalidArgument("Give exactly one of at, every_seconds and cron.")
    zone = _zone(timezone)
    if at is not None:
        return Timetable(now, at=_moment(at, zone), timezone=timezone)
    if every_seconds is not None:
        return Timetable(now, every_ms=_milliseconds(every_seconds), timezone=timezone)
    if not isinstance(cron, str):
        raise InvalidArgument(f"cron must be a string such as '0 9 * * MON-FRI', not {shown(cron)}.")
    if _next_of_cron(cron, zone, now) is None:
        raise InvalidArgument(f"The cron expression {shown(cron)} never fires.")
    return Timetable(now, cron=cron, timezone=timezone)


def moment_of(when: object, what: str) -> int:
    """Return a time as epoch milliseconds, from epoch milliseconds or a `datetime` with a time zone."""
    if isinstance(when, datetime) and when.tzinfo is None:
        raise InvalidArgument(f"{what} must have a time zone: {when.isoformat()} is ambiguous without one.")
    return _moment(when, None, what)


def _moment(when: object, zone: tzinfo | None, what: str = "at") -> int:
    if isinstance(when, datetime):
        local = when if when.tzinfo is not None or zone is None else _in_zone(when, zone)
        return round(local.timestamp() * 1000)
    if not isinstance(when, int) or isinstance(when, bool) or not 0 <= when <= LAST_MOMENT:
        raise InvalidArgument(f"{what} must be epoch milliseconds or a datetime, not {shown(when)}.")
    return when


def _in_zone(naive: datetime, zone: tzinfo) -> datetime:
    """Return a local time in a zone, the first if it occurs twice. Raises `InvalidArgument` if it never occurs."""
    local = naive.replace(tzinfo=zone)
    if local.astimezone(UTC).astimezone(zone).replace(tzinfo=None) != naive.replace(fold=0):
        raise InvalidArgument(f"{naive.isoformat()} does not occur in {zone}: clocks skip it.")
    return local


def _milliseconds(seconds: object) -> int:
    number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not number or not MIN_SECONDS <= seconds <= MAX_SECONDS:  # type: ignore[operator]  # it is a number
        raise InvalidArgument(
            f"every_seconds must be a number from {MIN_SECONDS} to {MAX_SECONDS}, not {shown(seconds)}."
        )
    return int(seconds * 1000)  # type: ignore[operator]  # it is a number


def _zone(name: object) -> tzinfo:
    if name == "UTC":
        return UTC  # needs no time zone database
    try:
        return ZoneInfo(name if isinstance(name, str) else "")
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InvalidArgument(
            f"Unknown time zone {shown(name)}: expected a name such as 'Europe/Berlin'. Where the system has no time "
            "zones, install helix-agents[schedules]."
        ) from error


def _next_of_cron(expression: str, zone: tzinfo, moment: int) -> int | None:
    for found in _occurrences(expression, datetime.fromtimestamp(moment / 1000, zone)):
        due_at = round(found.timestamp() * 1000)
        if due_at > moment:  # in an hour that occurs twice, a local time may mean the earlier one
            return due_at
    return None


def _occurrences(expression: str, start: datetime) -> Iterator[datetime]:
    try:
        from cronsim import CronSim, CronSimError
    except ImportError as error:
        raise InvalidArgument("cron needs a library: install helix-agents[schedules].") from error
    if len(expression.split()) != 5:
        raise InvalidArgument(f"The cron expression {shown(expression)} must have five fields, such as '0 9 * * *'.")
    try:
        return CronSim(expression, start)
    except CronSimError as error:
        raise InvalidArgument(f"Invalid cron expression {shown(expression)}: {error}.") from error
