"""Maintenance commands: migrate, verify, cleanup, usage, tail."""

from __future__ import annotations

import argparse
import sys
from typing import Any

import msgspec

from ..backends.registry import Stores
from ..errors import InvalidArgument, SessionNotFound
from ..operations.blobs import GRACE_SECONDS, sweep_blobs
from ..operations.cleanup import expired_session_cleanup
from ..operations.erasure import erase_user
from ..operations.verify import repair_session, session_problems, verify_sessions
from ..operations.workspaces import FileWorkspaceProvider
from .command import add_command, add_json, address
from .output import complain, emit, say, say_document, when
from .tail import tail
from .targets import steering


def add_upkeep(commands: Any) -> None:
    """Add all of them."""
    migrate = add_command(
        commands, "migrate", _migrate, "create stores, or bring their schema up to date", creates=True
    )
    add_json(migrate, "one JSON document")
    verify = add_command(commands, "verify", _verify, "read everything back and report what does not fit together")
    verify.add_argument("session", nargs="?", help="only this session")
    verify.add_argument(
        "--repair", action="store_true", help="close what a process that died left open, remove rows without a session"
    )
    add_json(verify, "one problem a line")
    cleanup = add_command(commands, "cleanup", _cleanup, "fail sessions whose time has passed, delete unused blobs")
    cleanup.add_argument("--dry-run", action="store_true", help="only count")
    cleanup.add_argument("--workspaces", metavar="FOLDER", help="delete their snapshots in this folder too")
    cleanup.add_argument(
        "--blobs-after-hours",
        type=float,
        default=GRACE_SECONDS / 3600,
        metavar="N",
        help="how old an unused blob must be to be deleted (24)",
    )
    add_json(cleanup, "one JSON document")
    erase = add_command(commands, "erase", _erase, "delete everything stored for one user")
    erase.add_argument("user", help="the user's id; sessions with their forks, streams, usage and memories go")
    erase.add_argument("--entity", action="append", default=[], metavar="ID", help="also what is remembered about this")
    erase.add_argument("--yes", action="store_true", help="do it; without this, only count")
    add_json(erase, "one JSON document")
    usage = add_command(commands, "usage", _usage, "show what a session and those below it have spent, or all entries")
    usage.add_argument("session", nargs="?", help="without it the latest entries of all sessions are listed")
    usage.add_argument("--alone", action="store_true", help="without the sessions below")
    usage.add_argument("--limit", type=int, default=50, help="of entries")
    add_json(usage, "one JSON document, or one entry a line")
    follow = add_command(commands, "tail", _tail, "follow a session's stream in the terminal")
    follow.add_argument("session", help="the id of the session")
    follow.add_argument("--from", dest="from_sequence", type=int, metavar="N", help="begin after this sequence")
    add_json(follow, "one chunk a line")


async def _migrate(given: argparse.Namespace, stores: Stores) -> int:
    # Opening the stores has migrated them.
    where = address(given).shown
    if given.json:
        emit({"url": where, "up_to_date": True})
    else:
        say(f"{where} is up to date.")
    return 0


async def _verify(given: argparse.Namespace, stores: Stores) -> int:
    checked = bad = 0
    async for session_id, problems in verify_sessions(stores.state, given.session):
        if given.repair and (repairs := await repair_session(stores.state, stores.streams, session_id)):
            complain(f"{session_id}: {', '.join(repairs)}")
            there = await stores.state.session_exists(session_id)
            problems = await session_problems(stores.state, session_id) if there else []
        checked += 1
        bad += bool(problems)
        for problem in problems:
            if given.json:
                emit({"session_id": session_id, "problem": problem})
            else:
                say(f"{session_id}: {problem}")
        if checked % 1000 == 0:
            complain(f"{checked} sessions read ...")
    if not given.json:
        say(f"{checked} sessions read, {bad} with problems.")
    return 1 if bad else 0


async def _cleanup(given: argparse.Namespace, stores: Stores) -> int:
    providers = {} if given.workspaces is None else {"files": FileWorkspaceProvider(given.workspaces)}
    summary = await expired_session_cleanup(
        stores.state, stream_manager=stores.streams, workspace_providers=providers, dry_run=given.dry_run
    )
    grace_seconds = given.blobs_after_hours * 3600
    swept = await sweep_blobs(stores.state, stores.blobs, grace_seconds=grace_seconds, dry_run=given.dry_run)
    problems = [*summary.errors, *swept.errors]
    figures = {**msgspec.structs.asdict(summary), "blobs_deleted": swept.deleted, "blob_bytes_deleted": swept.bytes}
    figures |= {"blob_spaces_spared": swept.spared, "errors": problems}
    if given.json:
        emit(figures)
        return 1 if problems else 0
    for name, value in figures.items():
        say(f"{name}: {value if not isinstance(value, list) else len(value)}")
    for problem in problems:
        complain(problem)
    return 1 if problems else 0


async def _erase(given: argparse.Namespace, stores: Stores) -> int:
    if not given.yes:
        found = await stores.state.list_sessions(user_id=given.user, limit=1)
        raise InvalidArgument(f"{given.user!r} has {found.total} sessions. Add --yes to delete them permanently.")
    async with steering(stores) as executor:
        erased = await erase_user(executor, stores.state, stores.memory, given.user, entities=given.entity)
    if given.json:
        emit(erased)
    else:
        say(f"Erased {given.user}: {erased.sessions} sessions, {erased.memories} memories.")
    return 0


async def _usage(given: argparse.Namespace, stores: Stores) -> int:
    if given.session is None:
        return await _entries(given, stores)
    rollup = await stores.usage.get_rollup(given.session, include_sub_sessions=not given.alone)
    if not await stores.state.session_exists(given.session) and rollup == type(rollup)():
        raise SessionNotFound(given.session)
    if given.json:
        emit(rollup)
    else:
        say(f"Usage of {given.session}{' alone' if given.alone else ' and those below it'}")
        say_document(msgspec.to_builtins(rollup))
    return 0


async def _entries(given: argparse.Namespace, stores: Stores) -> int:
    for entry in (await stores.usage.query_usage(limit=given.limit, count=False)).items:
        if given.json:
            emit(entry)
        else:
            data = msgspec.to_builtins(entry)
            shown = {name: data[name] for name in data if name not in ("timestamp", "session_id") and data[name]}
            say(f"{when(entry.timestamp)}  {entry.session_id}  " + ", ".join(f"{k} {v}" for k, v in shown.items()))
    return 0


async def _tail(given: argparse.Namespace, stores: Stores) -> int:
    state = await stores.state.load_state(given.session)
    stream_id = given.session if state is None else state.stream_id
    return await tail(stores.streams, stream_id, from_sequence=given.from_sequence, as_json=given.json, out=sys.stdout)
