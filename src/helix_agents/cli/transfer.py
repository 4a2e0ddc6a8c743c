"""`helix export` and `helix import`: move sessions between any two backends."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from ..backends.registry import Stores
from ..codec import decode
from ..errors import InvalidArgument, StoreCorrupt
from ..operations.transfer import export_sessions, import_sessions
from ..operations.transfer.records import header, read_header
from .command import add_command, add_json
from .output import complain, emit

BAR = 30


def add_transfer(commands: Any) -> None:
    """Add both commands."""
    out = add_command(commands, "export", _export, "write sessions, usage and memories to a file")
    out.add_argument("file", type=Path, help="must not exist yet, unless with --resume")
    out.add_argument("--session", metavar="ID", help="only this session and those below it")
    out.add_argument("--user", metavar="ID", help="only the sessions of this user, and what is remembered about them")
    out.add_argument("--resume", action="store_true", help="continue an export that was interrupted")
    add_json(out, "one JSON document")
    into = add_command(commands, "import", _import, "read an export into these stores", creates=True)
    into.add_argument("file", type=Path, help="what `helix export` wrote")
    add_json(into, "one JSON document")


async def _export(given: argparse.Namespace, stores: Stores) -> int:
    already: set[str] = set()
    if given.resume and given.file.exists():
        already = _cut_to_whole_sessions(given.file)
    elif given.file.exists():
        raise InvalidArgument(f"{given.file} exists already: choose another file, or pass --resume.")
    with _open_private(given.file) as out:

        def write(line: str) -> None:
            out.write(line + "\n")

        done = await export_sessions(
            stores,
            write,
            session_id=given.session,
            user_id=given.user,
            already=already,
            resumed=out.tell() > 0,
            progress=_progress,
        )
        out.flush()
        os.fsync(out.fileno())
    return _report(given, done, "Exported")


async def _import(given: argparse.Namespace, stores: Stores) -> int:
    if not given.file.exists():
        raise InvalidArgument(f"There is no file {given.file}.")
    with given.file.open(encoding="utf-8") as lines:
        try:
            done = await import_sessions(stores, lines, progress=_progress)
        except UnicodeDecodeError as error:
            raise InvalidArgument(f"{given.file} is not an export, or damaged: it is not UTF-8 text.") from error
    return _report(given, done, "Imported")


def _open_private(file: Path) -> TextIO:
    """Open a file to append to. A new one is readable by its owner only: an export holds whole conversations."""
    return open(file, "a", encoding="utf-8", opener=lambda path, flags: os.open(path, flags, 0o600))


def _report(given: argparse.Namespace, done: Any, verb: str) -> int:
    if given.json:
        emit(done)
    else:
        skipped = f", {done.skipped} were there already" if done.skipped else ""
        complain(f"{verb} {done.sessions} sessions and {done.memories} memories{skipped}.")
    return 0


def _cut_to_whole_sessions(file: Path) -> set[str]:
    """Drop everything after the last complete session; return the sessions that remain."""
    found: set[str] = set()
    keep = 0
    with file.open("rb") as data:
        beginning = header().partition(',"version"')[0].encode()
        if not beginning.startswith(data.read(len(beginning))):
            raise InvalidArgument(
                f"{file} is not an export of helix-agents and was not overwritten: choose another file."
            )
        data.seek(0)
        for number, line in enumerate(_whole_lines(data)):
            if number == 0:
                read_header(line.decode())
                keep = len(line)
                position = keep
                continue
            position += len(line)
            try:
                record = decode(line)
            except StoreCorrupt:
                break
            if isinstance(record, dict) and record.get("kind") == "end_session":
                found.add(record["session_id"])
                keep = position
    os.truncate(file, keep)
    return found


def _whole_lines(data: Any) -> Iterator[bytes]:
    for line in data:
        if line.endswith(b"\n"):
            yield line


def _progress(done: int, total: int) -> None:
    """Show a progress bar on a terminal; nothing in a log."""
    if not sys.stderr.isatty():
        return
    if not total:
        text = f"\r{done} sessions"
    else:
        filled = BAR * done // total
        text = f"\r[{'#' * filled}{'.' * (BAR - filled)}] {done}/{total} sessions"
    sys.stderr.write(text + ("\n" if total and done == total else ""))
    sys.stderr.flush()
