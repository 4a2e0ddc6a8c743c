"""The listing index: sorted sets of sessions by property. It may list too many sessions, never too few.

Sessions and index live in different slots of a cluster, so they cannot change together. The order makes up for it: an
entry is written before the session gets the property it stands for (`announce`), and a reader of an entry looks at
the session itself. An entry that turns out to be wrong is removed by its reader, unless a process announced
something for that session during the last minute and may just be about to write it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ....types import SessionState
from ..client.connection import Command
from ..keys import IndexKeys, SessionKeys, labels_of, member_of, status_facet
from ..program.runner import Refused, Runner
from ..program.vocabulary import ABSENT, Program
from ..sessions.expiry import lives_until
from ..sessions.session_hash import as_texts, text_or_none

FRESH_MS = 60_000
EXPIRES = "expires"
SEPARATOR = "\x1f"
SWEEP_SIZE = 20


class Entered(NamedTuple):
    """The index's record of a session: its entries, and the last announcement."""

    pairs: list[str]
    fresh: str | None


class SessionIndex:
    """Entries of sessions in the index."""

    def __init__(self, runner: Runner, prefix: str, ttl_ms: int, *, fresh_ms: int = FRESH_MS) -> None:
        self.keys = IndexKeys(prefix)
        self.fresh_ms = fresh_ms
        self._prefix = prefix
        self._runner = runner
        self._ttl_ms = ttl_ms

    async def announce(
        self,
        session_id: str,
        created_at: int,
        facets: Sequence[str],
        *,
        expires_at: int | None,
        token: str,
        until: int = 0,
    ) -> None:
        """Enter a session under facets that it is about to have. Entries are only added.

        `until`: when the session may go, if that is later than its time to live and its `expires_at` say.
        """
        now = int(time.time() * 1000)
        until = max(until, expires_at or 0)
        # The index outlives its sessions: it is extended whenever one of their deadlines moves.
        life_ms = 3 * self._ttl_ms + max(0, until - now)
        member, entry = member_of(created_at, session_id), self.keys.entry(session_id)
        program = Program(entry)
        for facet in facets:
            program.do("ZADD", self.keys.facet(facet), "0", member)
            program.extend(self.keys.facet(facet), life_ms)
        pairs = [_pair(facet, created_at) for facet in facets]
        if expires_at is not None:
            program.do("ZADD", self.keys.expiry, str(expires_at), member)
            program.extend(self.keys.expiry, life_ms)
            pairs.append(_pair(EXPIRES, created_at))
        program.do("SADD", entry, *pairs)
        program.extend(entry, life_ms)
        program.do("SET", self.keys.fresh(session_id), token, "PX", str(self.fresh_ms))
        program.do("ZADD", self.keys.deadlines, str(max(now, until) + self._ttl_ms), session_id)
        program.extend(self.keys.deadlines, life_ms)
        program.extend(self.keys.running, life_ms)
        await self._runner.run(program)

    async def announce_state(self, state: SessionState, *, token: str) -> None:
        """Enter a session under its current facets."""
        facets = [*labels_of(state), status_facet(state.status)]
        await self.announce(
            state.session_id,
            state.created_at,
            facets,
            expires_at=state.expires_at,
            token=token,
            until=lives_until(state, int(time.time() * 1000)),
        )

    async def entered(self, session_id: str) -> Entered:
        """Return the current index entries of a session, as `forget` needs them."""
        entry = self.keys.entry(session_id)
        commands = [("SMEMBERS", entry), ("GET", self.keys.fresh(session_id))]
        pairs, fresh = await self._runner.servers.run(entry, commands, atomic=True)
        return Entered(as_texts(pairs), text_or_none(fresh))

    async def forget(self, session_id: str, entered: Entered) -> None:
        """Remove a session that is gone, unless it has been announced again since `entered` was read."""
        await self._remove(session_id, entered.pairs, entered.fresh, whole=True)

    async def retract(self, state: SessionState, *, token: str) -> None:
        """Remove the announcement of a session that was not created after all."""
        facets = [*labels_of(state), status_facet(state.status)]
        if state.expires_at is not None:
            facets.append(EXPIRES)
        pairs = [_pair(facet, state.created_at) for facet in facets]
        await self._remove(state.session_id, pairs, token, whole=False)

    async def drop(self, session_id: str, pairs: Iterable[tuple[str, int]]) -> None:
        """Remove wrong entries, unless a write is about to make them right."""
        await self._remove(session_id, [_pair(*each) for each in pairs], None, whole=False)

    async def _remove(self, session_id: str, pairs: Sequence[str], fresh: str | None, *, whole: bool) -> None:
        entry, fresh_key = self.keys.entry(session_id), self.keys.fresh(session_id)
        program = Program(entry)
        program.require("fresh", ABSENT if fresh is None else fresh, "GET", fresh_key)
        for pair in pairs:
            facet, created_at = pair.rsplit(SEPARATOR, 1)
            program.do("ZREM", self.keys.facet(facet), member_of(int(created_at), session_id))
        if whole:
            program.do("DEL", entry)
            program.do("DEL", fresh_key)
            program.do("ZREM", self.keys.deadlines, session_id)
        elif pairs:
            program.do("SREM", entry, *pairs)
        await self._runner.run(program)

    async def settle_status(self, session_id: str, status: str) -> bool:
        """Record in the session that only this status is announced, before entries under other statuses are removed."""
        keys = SessionKeys(self._prefix, session_id)
        program = Program(keys.main)
        program.require("status", status, "HGET", keys.main, "status")
        program.do("HSET", keys.main, "statuses", f"|{status}|")
        return not isinstance(await self._runner.run(program), Refused)

    async def note_refs(self, session_id: str, referred: Sequence[str]) -> None:
        """Record that a session is about to hold refs to others, so that it can be found from them."""
        program = Program(self.keys.deadlines)
        for each in referred:
            program.do("SADD", self.keys.referrers(each), session_id)
            program.extend(self.keys.referrers(each), 3 * self._ttl_ms)
        await self._runner.run(program)

    async def take_referrers(self, session_id: str, referred: Sequence[str]) -> list[str]:
        """Return the sessions that may hold a ref to a deleted session, and drop these records."""
        own = self.keys.referrers(session_id)
        commands: list[Command] = [("SMEMBERS", own), ("DEL", own)]
        commands += [("SREM", self.keys.referrers(each), session_id) for each in referred]
        return as_texts((await self._runner.servers.run(own, commands, atomic=True))[0])

    async def overdue(self) -> list[str]:
        """Return a few sessions that may have expired unnoticed."""
        now = str(int(time.time() * 1000))
        deadlines = self.keys.deadlines
        words = ("ZRANGEBYSCORE", deadlines, "-inf", now, "LIMIT", "0", str(SWEEP_SIZE))
        return as_texts(await self._runner.servers.one(deadlines, *words))


def _pair(facet: str, created_at: int) -> str:
    return f"{facet}{SEPARATOR}{created_at}"
