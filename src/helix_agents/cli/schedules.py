"""`helix schedules ...`: list and cancel schedules."""

from __future__ import annotations

import argparse
from typing import Any

from ..backends.registry import Stores
from ..executor import Schedule
from .command import add_command, add_json
from .output import complain, emit, say, when
from .targets import steering


def add_schedules(commands: Any) -> None:
    """Add the command with its verbs."""
    schedules = commands.add_parser(
        "schedules",
        help="list or cancel schedules",
        description="Look at schedules and cancel them. Programs make them, with executor.schedule().",
    )
    verbs = schedules.add_subparsers(dest="verb", required=True, metavar="VERB")
    listing = add_command(verbs, "list", _list, "list schedules that have a due time left, newest first")
    listing.add_argument("--user", help="only those of this user")
    add_json(listing, "one schedule a line")
    cancel = add_command(verbs, "cancel", _cancel, "cancel a schedule; runs that it has started continue")
    cancel.add_argument("schedule", help="its id, as `schedules list` shows it")


async def _list(given: argparse.Namespace, stores: Stores) -> int:
    for schedule in await steering(stores).list_schedules(user_id=given.user):
        if given.json:
            emit(schedule)
        else:
            say(_line(schedule))
    return 0


def _line(schedule: Schedule) -> str:
    every = f"every {schedule.every_seconds:g} s" if schedule.every_seconds is not None else "once"
    rule = every if schedule.cron is None else f"{schedule.cron!r} in {schedule.timezone}"
    next_at = "-" * 19 if schedule.next_at is None else when(schedule.next_at)
    problem = "" if schedule.last_error is None else f"  ({schedule.last_error})"
    return f"{next_at}  {schedule.schedule_id}  {schedule.agent}  {rule}{problem}"


async def _cancel(given: argparse.Namespace, stores: Stores) -> int:
    if await steering(stores).cancel_schedule(given.schedule):
        return 0
    complain(f"helix: there is no schedule {given.schedule!r}.")
    return 1
