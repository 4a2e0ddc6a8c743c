"""The index of sessions that are due: open runs by the end of their lease, suspended sessions by `due_at`.

Like the listing index (`sessions.py`) it lives in a slot of its own and may be ahead of the sessions, never behind: an
entry is made, or moved to an earlier time, before the session is written. A reader of an entry reads the session. An
entry that is too early is moved, and a wrong one is removed, unless a writer may have just made it.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable
from typing import Any, NamedTuple

from ....lifecycle import RUN_TERMINAL
from ....stores.state.commit import AFTER_RUNS, ClaimableFilter, ClaimablePlace
from ....types import Claimable, RunRecord, SessionState
from ..client.connection import Command
from ..keys import SessionKeys
from ..program.runner import Runner
from ..program.vocabulary import Program
from ..sessions.session_hash import as_fields, from_hash, run_from, text_or_none
from .sessions import FRESH_MS, SessionIndex

PAGE = 200
SPARE = 8
"""How many entries are read beyond the requested ones, because some may be wrong."""
SEPARATOR = "\x1f"
WAITS = "due:"
"""The prefix of suspended sessions; members of runs start with a digit and so come first."""


class Entry(NamedTuple):
    """A member of the index. A suspended session has no `run_id`."""

    due_at: int
    started_at: int
    session_id: str
    run_id: str | None
    member: str


class Looked(NamedTuple):
    """An entry with the current state of its session and latest run."""

    entry: Entry
    state: SessionState | None
    run: RunRecord | None
    due_at: int | None


class ClaimableIndex:
    """Entries of open runs and of suspended sessions."""

    def __init__(self, runner: Runner, index: SessionIndex, prefix: str, ttl_ms: int) -> None:
        self._runner = runner
        self._servers = runner.servers
        self._key = index.keys.running
        self._prefix = prefix
        self._life_ms = 3 * ttl_ms

    async def enter(self, run: RunRecord) -> None:
        """Enter an open run, or move it to the end of its lease."""
        program = Program(self._key)
        program.do("ZADD", self._key, str(run.lease_until or 0), member_of(run))
        program.extend(self._key, self._life_ms)
        await self._runner.run(program)

    async def remove(self, runs: Iterable[RunRecord]) -> None:
        """Remove runs that have ended, or are gone with their session."""
        members = [member_of(run) for run in runs]
        if members:
            await self._servers.one(self._key, "ZREM", self._key, *members)

    async def before_change(self, old: RunRecord, new: RunRecord) -> None:
        """Move a run to an earlier time, before the write that makes it due then."""
        if new.status == "running" and (old.status != "running" or (new.lease_until or 0) < (old.lease_until or 0)):
            await self.enter(new)

    async def after_change(self, old: RunRecord, new: RunRecord) -> None:
        """Remove a run that has ended, or move it to a later time."""
        if new.status != "running":
            await self.remove([new])
        elif (new.lease_until or 0) > (old.lease_until or 0):
            await self.enter(new)

    async def enter_waiting(self, session_id: str, due_at: int) -> None:
        """Enter a session that is about to be suspended, or move it to an earlier time."""
        program = Program(self._key)
        program.do("ZADD", self._key, "LT", due_at, WAITS + session_id)
        program.extend(self._key, self._life_ms + max(0, due_at - _now()))
        await self._runner.run(program)

    # -- reading

    async def claimable(self, wanted: ClaimableFilter, limit: int) -> list[Claimable]:
        """Return the sessions that match, in the order of the index."""
        found: list[Claimable] = []
        stale: list[Looked] = []
        size = min(PAGE, limit + SPARE)
        async for entries in self._due(wanted.now, await self._rank_after(wanted.after), size):
            for looked in await self._look(entries):
                if (claimable := _claimable(wanted, looked)) is not None and len(found) < limit:
                    found.append(claimable)
                elif claimable is None:
                    stale.append(looked)
            if len(found) == limit:
                break
        await self._correct(stale, wanted.now)
        return found

    async def next_due(self, now: int) -> int | None:
        """Return the first moment after `now` in the index."""
        words = (self._key, f"({now}", "+inf", "WITHSCORES", "LIMIT", "0", "1")
        entries = _entries(await self._servers.one(self._key, "ZRANGEBYSCORE", *words))
        return entries[0].due_at if entries else None

    async def _rank_after(self, place: ClaimablePlace | None) -> int:
        """Return how many entries come up to a position: the page starts there even if that entry is gone."""
        if place is None:
            return 0
        member = f"{place.started_at:016d}:{place.session_id}{SEPARATOR}".encode() + b"\xff"  # after every run's id
        if place.started_at == AFTER_RUNS:
            member = f"{WAITS}{place.session_id}\0".encode()  # after that of the session, before any longer id
        commands: list[Command] = [("ZADD", self._key, place.due_at, member), ("ZRANK", self._key, member)]
        _, rank, _ = await self._servers.run(self._key, [*commands, ("ZREM", self._key, member)], atomic=True)
        return int(rank)

    async def _due(self, now: int, start: int, size: int) -> AsyncIterator[list[Entry]]:
        while True:
            words = (self._key, str(start), str(start + size - 1), "WITHSCORES")
            page = _entries(await self._servers.one(self._key, "ZRANGE", *words))
            entries = [entry for entry in page if entry.due_at <= now]
            if entries:
                yield entries
            if len(entries) < size:
                return
            start += size

    async def _look(self, entries: list[Entry]) -> list[Looked]:
        """Return the current sessions of these entries, with their latest runs."""
        keys = [SessionKeys(self._prefix, entry.session_id) for entry in entries]
        commands: list[tuple[str, Command]] = []
        for each in keys:
            commands += [(each.main, ("HGETALL", each.main)), (each.main, ("LINDEX", each.run_ids, -1))]
        replies = await self._servers.each(commands)
        last_ids = [text_or_none(reply) for reply in replies[1::2]]
        runs = await self._servers.each(
            [(each.main, ("HGET", each.runs, last or "")) for each, last in zip(keys, last_ids, strict=True)]
        )
        looked = []
        for entry, reply, run in zip(entries, replies[::2], runs, strict=True):
            fields, text = as_fields(reply), text_or_none(run)
            state = from_hash(entry.session_id, fields) if fields else None
            due_at = int(fields["due_at"]) if "due_at" in fields else None
            looked.append(Looked(entry, state, None if text is None else run_from(text), due_at))
        return looked

    async def _correct(self, stale: list[Looked], now: int) -> None:
        """Move entries that are too early, and remove wrong ones unless they were just added."""
        long_ago = _now() - FRESH_MS
        for entry, state, run, due_at in stale:
            is_run = entry.run_id is not None
            if is_run:
                right = run is not None and run.run_id == entry.run_id and run.started_at == entry.started_at
                moment = run.lease_until or 0 if right and run is not None and run.status not in RUN_TERMINAL else None
            else:
                moment = due_at if state is not None else None
            made_at = entry.started_at if is_run else entry.due_at
            if (moment is None and made_at > long_ago) or (moment is not None and moment <= entry.due_at):
                continue
            program = Program(self._key)
            program.require("moved", str(entry.due_at), "ZSCORE", self._key, entry.member)
            if moment is None:
                program.do("ZREM", self._key, entry.member)
            else:
                program.do("ZADD", self._key, moment, entry.member)
            await self._runner.run(program)


def _claimable(wanted: ClaimableFilter, looked: Looked) -> Claimable | None:
    """Return the session of an entry if that entry makes it due and it matches."""
    entry, state, run, due_at = looked
    place = None if state is None else wanted.place_of(state, run, due_at)
    if state is None or place is None or not wanted.matches(state):
        return None
    if entry.run_id is None:
        return Claimable(state, run, entry.due_at) if place.started_at == AFTER_RUNS else None
    if run is None or (run.run_id, run.started_at) != (entry.run_id, entry.started_at):
        return None  # followed by another run, or entered by an earlier try to start it
    return Claimable(state, run, entry.due_at)


def member_of(run: RunRecord) -> str:
    """Return the index member of a run: members sort by the start of the run."""
    return f"{run.started_at:016d}:{run.session_id}{SEPARATOR}{run.run_id}"


def _entries(reply: Any) -> list[Entry]:
    """Parse the reply to a command WITHSCORES: pairs, or a flat list (RESP 2)."""
    pairs = reply if not reply or isinstance(reply[0], list | tuple) else zip(reply[::2], reply[1::2], strict=True)
    return [_entry(member.decode(), int(float(score))) for member, score in pairs]


def _entry(member: str, due_at: int) -> Entry:
    if member.startswith(WAITS):
        return Entry(due_at, AFTER_RUNS, member.removeprefix(WAITS), None, member)
    session_id, _, run_id = member[17:].partition(SEPARATOR)
    return Entry(due_at, int(member[:16]), session_id, run_id, member)


def _now() -> int:
    return int(time.time() * 1000)
