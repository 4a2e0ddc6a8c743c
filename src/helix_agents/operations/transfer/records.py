"""The lines of an export, and the digest that closes each session's block. No stores here.

    {"kind": "header", "format": ..., "version": 1}
    {"kind": "session", ...}
    blobs, messages, checkpoints, runs, refs, staged, usage
    {"kind": "end_session", "sha256": ...}
    {"kind": "memories", ...}
    {"kind": "end", "sessions": 2}

A block without its last line was cut off: an export continues there, an import stops there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

from ...codec import decode, encode
from ...errors import InvalidArgument, StoreCorrupt

FORMAT = "helix-agents-export"
VERSION = 1

Record = dict[str, Any]


class Block:
    """The lines of one session, digested as they are made or read."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()

    def line(self, record: Record) -> str:
        """Return a record as a line of this block."""
        text = encode(record)
        self._digest.update(text.encode())
        return text

    def take(self, text: str) -> None:
        """Add a line that was read to the digest."""
        self._digest.update(text.encode())

    @property
    def sha256(self) -> str:
        """The digest of all lines so far."""
        return self._digest.hexdigest()


def header() -> str:
    """Return the first line."""
    return encode({"kind": "header", "format": FORMAT, "version": VERSION})


def read_header(line: str | None) -> None:
    """Raise for a file that is not an export, or that this version cannot read."""
    record = _record(line, 1) if line is not None else {}
    if record.get("format") != FORMAT:
        raise InvalidArgument("This file is not an export of helix-agents: it does not start with the header.")
    if not isinstance(record.get("version"), int) or record["version"] > VERSION:
        raise InvalidArgument(
            f"This export has format version {record.get('version')}, this library reads up to {VERSION}: "
            "upgrade helix-agents."
        )


def blocks(lines: Iterable[str]) -> Iterator[list[Record]]:
    """Yield the records of a file after its header, session by session; other records one by one.

    Raises `InvalidArgument` for a block that is damaged or cut off, before yielding any of it.
    """
    block, records = Block(), list[Record]()
    for number, line in enumerate(lines, 2):
        text = line.rstrip("\n")
        record = _record(text, number)
        if record["kind"] == "end_session":
            if record.get("sha256") != block.sha256:
                raise InvalidArgument(f"Session {record.get('session_id')!r} is damaged (line {number}): export again.")
            yield records
            block, records = Block(), []
        elif record["kind"] in ("memories", "end"):
            yield [record]
        else:
            block.take(text)
            records.append(record)
    if records:
        raise InvalidArgument(
            f"The export was cut off in session {_session_of(records)!r}: continue with export --resume."
        )


def _session_of(records: list[Record]) -> str:
    return str(records[0].get("session", {}).get("session_id"))


def _record(text: str | None, number: int) -> Record:
    try:
        record = decode(text or "")
    except StoreCorrupt as error:
        raise InvalidArgument(f"Line {number} is not a record of an export: {error}.") from error
    if not isinstance(record, dict) or not isinstance(record.get("kind"), str):
        raise InvalidArgument(f"Line {number} is not a record of an export: is the file complete?")
    return record
