"""RedisUsageStore: entries by session, one order by time for all of them.

Sums are added up from the entries of the tree that is asked for. Entries do not expire: bills outlive sessions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from ...clock import Clock, system_clock
from ...codec import decode, to_struct
from ...errors import StoreUnavailable
from ...stores.usage.base import UsageFilter, UsageStoreBase, UsageSums, sums_of
from ...stores.usage.contract import SubagentEntry, UsageEntry, UsageKind
from .client.connection import Client, Command
from .client.servers import Servers
from .keys import UsageKeys, checked_prefix
from .program.runner import Refused, Runner
from .program.vocabulary import ABSENT, Program
from .sessions.session_hash import as_fields, as_texts, struct_text

SEPARATOR = "\x1f"
PAGE = 500
MAX_ATTEMPTS = 100


class RedisUsageStore(UsageStoreBase):
    """UsageStore on Redis or Valkey, one server or a cluster. The client stays the caller's."""

    def __init__(self, redis: Client, *, prefix: str = "agent", clock: Clock = system_clock) -> None:
        super().__init__(clock=clock)
        self._keys = UsageKeys(checked_prefix(prefix))
        self._servers = Servers(redis)
        self._runner = Runner(self._servers)

    async def close(self) -> None:
        """Let go of the connections that this store opened itself; the client stays open."""
        await self._servers.close()

    async def _insert(self, entries: list[UsageEntry]) -> int:
        first: dict[tuple[str, str], UsageEntry] = {}
        for entry in entries:
            first.setdefault((entry.session_id, entry.id), entry)
        fresh = list(first.values())
        for _ in range(MAX_ATTEMPTS):
            if not fresh:
                return 0
            if not isinstance(await self._runner.run(self._recording(fresh)), Refused):
                return len(fresh)
            asked: list[Command] = [("HEXISTS", self._keys.entries(each.session_id), each.id) for each in fresh]
            known = await self._servers.run(self._keys.by_time, asked)
            fresh = [entry for entry, exists in zip(fresh, known, strict=True) if not exists]
        raise StoreUnavailable("Too many writers recorded usage at once: try again.")

    def _recording(self, entries: list[UsageEntry]) -> Program:
        program = Program(self._keys.by_time)
        program.repeatable = True
        for entry in entries:
            program.require("known", ABSENT, "HGET", self._keys.entries(entry.session_id), entry.id)
        for entry in entries:
            program.do("HSET", self._keys.entries(entry.session_id), entry.id, struct_text(entry))
            program.do("ZADD", self._keys.by_time, str(entry.timestamp), _member(entry))
            for above, below in _links(entry):
                program.do("SADD", self._keys.below(above), below)
                program.do("SADD", self._keys.above(below), above)
        return program

    async def _entries(self, session_id: str, kinds: tuple[UsageKind, ...]) -> list[UsageEntry]:
        found = [entry for entry in await self._of([session_id]) if entry.kind in kinds]
        return sorted(found, key=lambda each: (each.timestamp, each.id))

    async def _sums(self, session_id: str, include_sub_sessions: bool) -> Iterable[UsageSums]:
        tree = await self._tree(session_id) if include_sub_sessions else [session_id]
        return map(sums_of, await self._of(tree))

    async def _of(self, session_ids: list[str]) -> list[UsageEntry]:
        commands = [("HGETALL", self._keys.entries(each)) for each in session_ids]
        replies = await self._servers.run(self._keys.by_time, commands, atomic=True)
        return [_entry(text) for reply in replies for text in as_fields(reply).values()]

    async def _select(
        self, wanted: UsageFilter, *, limit: int, offset: int, count: bool
    ) -> tuple[list[UsageEntry], int | None]:
        if wanted.session_id is not None:
            found = [entry for entry in await self._of([wanted.session_id]) if _fits(entry, wanted)]
            found.sort(key=lambda each: (each.timestamp, each.id), reverse=True)
            return found[offset : offset + limit], len(found) if count else None
        page: list[UsageEntry] = []
        total, start = 0, 0
        while members := await self._newest(wanted, start):
            start += len(members)
            for entry in await self._read(members):
                if not _fits(entry, wanted):
                    continue
                total += 1
                if offset < total <= offset + limit:
                    page.append(entry)
            if not count and len(page) == limit:
                break
        return page, total if count else None

    async def _newest(self, wanted: UsageFilter, start: int) -> list[str]:
        most = "+inf" if wanted.timestamp_to is None else f"({wanted.timestamp_to}"
        least = "-inf" if wanted.timestamp_from is None else str(wanted.timestamp_from)
        key = self._keys.by_time
        words = ("ZREVRANGEBYSCORE", key, most, least, "LIMIT", str(start), str(PAGE))
        return as_texts(await self._servers.one(key, *words))

    async def _read(self, members: list[str]) -> list[UsageEntry]:
        places = [member.split(SEPARATOR) for member in members]
        commands = [("HGET", self._keys.entries(session_id), entry_id) for session_id, entry_id in places]
        replies = await self._servers.run(self._keys.by_time, commands)
        return [_entry(reply.decode()) for reply in replies if reply is not None]

    async def _delete(self, session_id: str, include_sub_sessions: bool) -> int:
        for _ in range(MAX_ATTEMPTS):
            tree = await self._tree(session_id) if include_sub_sessions else [session_id]
            program, removed = await self._removing(tree, links=include_sub_sessions)
            if not isinstance(await self._runner.run(program), Refused):
                return removed
        raise StoreUnavailable(f"Usage of session {session_id!r} changes too fast to be deleted: try again.")

    async def _removing(self, tree: list[str], *, links: bool) -> tuple[Program, int]:
        asked: list[Command] = []
        for each in tree:
            asked += [("HKEYS", self._keys.entries(each)), ("SMEMBERS", self._keys.below(each))]
            asked.append(("SMEMBERS", self._keys.above(each)))
        replies = [as_texts(reply) for reply in await self._servers.run(self._keys.by_time, asked, atomic=True)]
        program, removed = Program(self._keys.by_time), 0
        for place, each in enumerate(tree):
            ids, below, above = replies[3 * place : 3 * place + 3]
            program.require("changed", len(ids), "HLEN", self._keys.entries(each))
            program.require("changed", len(below), "SCARD", self._keys.below(each))
            removed += len(ids)
            program.do("DEL", self._keys.entries(each))
            for start in range(0, len(ids), PAGE):
                members = [f"{each}{SEPARATOR}{entry_id}" for entry_id in ids[start : start + PAGE]]
                program.do("ZREM", self._keys.by_time, *members)
            if links:
                for other in above:
                    program.do("SREM", self._keys.below(other), each)
                for other in below:
                    program.do("SREM", self._keys.above(other), each)
                program.do("DEL", self._keys.below(each))
                program.do("DEL", self._keys.above(each))
        return program, removed

    async def _tree(self, session_id: str) -> list[str]:
        """The session and all below it; each once, so that a circle ends."""
        tree, level = {session_id: None}, [session_id]
        while level:
            asked = [("SMEMBERS", self._keys.below(each)) for each in level]
            replies = await self._servers.run(self._keys.by_time, asked)
            found = {each: None for reply in replies for each in as_texts(reply) if each not in tree}
            tree |= found
            level = list(found)
        return list(tree)


def _member(entry: UsageEntry) -> str:
    return f"{entry.session_id}{SEPARATOR}{entry.id}"


def _links(entry: UsageEntry) -> list[tuple[str, str]]:
    found = []
    if entry.parent_session_id:
        found.append((entry.parent_session_id, entry.session_id))
    if isinstance(entry, SubagentEntry):
        found.append((entry.session_id, entry.sub_session_id))
    return found


def _entry(text: str) -> UsageEntry:
    made: Any = to_struct(UsageEntry, decode(text))  # type: ignore[arg-type]  # a union of structs
    entry: UsageEntry = made
    return entry


def _fits(entry: UsageEntry, wanted: UsageFilter) -> bool:
    """Whether an entry is asked for; a field that its kind does not have never fits."""
    asked = msgspec.structs.asdict(wanted)
    for name in ("run_id", "model", "tool_name", "source"):
        if asked[name] is not None and getattr(entry, name, None) != asked[name]:
            return False
    return (
        (wanted.kinds is None or entry.kind in wanted.kinds)
        and (wanted.timestamp_from is None or entry.timestamp >= wanted.timestamp_from)
        and (wanted.timestamp_to is None or entry.timestamp < wanted.timestamp_to)
    )
