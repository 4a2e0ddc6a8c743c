"""The index of running runs: by the end of their lease, so that those without a worker are found at once.

Like the listing index (`index.py`) it lives in a slot of its own and may be ahead of the sessions, never behind: a run
is entered before it is written, an earlier end of its lease too, a later end afterwards. A reader of an entry looks
at the session. An entry that is wrong is removed, unless it is so young that its run may be about to be written.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable
from typing import NamedTuple

from ....lifecycle import RUN_TERMINAL
from ....stores.state.commit import ClaimableFilter
from ....types import RunRecord, SessionState
from ..client.connection import Command
from ..keys import SessionKeys
from ..program.runner import Runner
from ..program.vocabulary import Program
from ..sessions.session_hash import as_fields, as_texts, from_hash, run_from, text_or_none
from .sessions import FRESH_MS, SessionIndex

PAGE = 200
SEPARATOR = "\x1f"


class Entry(NamedTuple):
    """A run in the index."""

    started_at: int
    session_id: str
    run_id: str
    member: str


class RunningRuns:
    """Entries of runs that are `running`."""

    def __init__(self, runner: Runner, index: SessionIndex, prefix: str, ttl_ms: int) -> None:
        self._runner = runner
        self._servers = runner.servers
        self._key = index.keys.running
        self._prefix = prefix
        self._life_ms = 3 * ttl_ms

    async def enter(self, run: RunRecord) -> None:
        """Enter a run, or move it to the end of its lease."""
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
        """A run is about to be found earlier than before."""
        if new.status == "running" and (old.status != "running" or (new.lease_until or 0) < (old.lease_until or 0)):
            await self.enter(new)

    async def after_change(self, old: RunRecord, new: RunRecord) -> None:
        """A run has ended, or is to be found later than before."""
        if new.status != "running":
            await self.remove([new])
        elif (new.lease_until or 0) > (old.lease_until or 0):
            await self.enter(new)

    async def claimable(self, wanted: ClaimableFilter, limit: int) -> list[SessionState]:
        """The sessions that match, by the lease and the start of their runs."""
        found: list[SessionState] = []
        wrong: list[Entry] = []
        async for entries in self._lapsed(wanted.now):
            for entry, state, latest in await self._look(entries):
                if state is None or latest is None or latest.status in RUN_TERMINAL:
                    wrong.append(entry)
                elif wanted.matches(state, latest) and len(found) < limit:
                    found.append(state)
            if len(found) == limit:
                break
        await self._drop(wrong)
        return found

    async def _lapsed(self, now: int) -> AsyncIterator[list[Entry]]:
        offset = 0
        while True:
            words = (self._key, "-inf", str(now), "LIMIT", str(offset), str(PAGE))
            entries = [_entry(each) for each in as_texts(await self._servers.one(self._key, "ZRANGEBYSCORE", *words))]
            if entries:
                yield entries
            if len(entries) < PAGE:
                return
            offset += PAGE

    async def _look(self, entries: list[Entry]) -> list[tuple[Entry, SessionState | None, RunRecord | None]]:
        """The sessions of these entries, and their runs if they are the latest."""
        commands: list[tuple[str, Command]] = []
        for entry in entries:
            keys = SessionKeys(self._prefix, entry.session_id)
            commands.append((keys.main, ("HGETALL", keys.main)))
            commands.append((keys.main, ("LINDEX", keys.run_ids, -1)))
            commands.append((keys.main, ("HGET", keys.runs, entry.run_id)))
        replies = await self._servers.each(commands)
        looked: list[tuple[Entry, SessionState | None, RunRecord | None]] = []
        for place, entry in enumerate(entries):
            fields, last, text = replies[3 * place : 3 * place + 3]
            state = from_hash(entry.session_id, as_fields(fields)) if fields else None
            record = text_or_none(text) if text_or_none(last) == entry.run_id else None
            run = None if record is None else run_from(record)
            if run is not None and run.started_at != entry.started_at:
                run = None  # entered by an earlier try to start it, which was refused
            looked.append((entry, state, run))
        return looked

    async def _drop(self, entries: list[Entry]) -> None:
        """Remove runs that have ended, were followed by another or are gone; none of them comes back."""
        long_ago = int(time.time() * 1000) - FRESH_MS
        members = [entry.member for entry in entries if entry.started_at <= long_ago]
        if members:
            await self._servers.one(self._key, "ZREM", self._key, *members)


def member_of(run: RunRecord) -> str:
    """A run in the index: text order is the order of their starts."""
    return f"{run.started_at:016d}:{run.session_id}{SEPARATOR}{run.run_id}"


def _entry(member: str) -> Entry:
    session_id, _, run_id = member[17:].partition(SEPARATOR)
    return Entry(int(member[:16]), session_id, run_id, member)
