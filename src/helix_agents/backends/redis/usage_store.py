"""RedisUsageStore: entries by session, one order by time for all of them.

Entries live in the slot of their session, so that a commit can carry them. The order by time and the links
between sessions have a slot of their own and are written first: what they name and is not there is skipped. On one
server all of it is one write. Sums are added up from the entries of the tree that is asked for.

Entries expire with their session; those of a session that does not exist, or was deleted without them, stay.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from ...clock import Clock, system_clock
from ...codec import decode, to_struct
from ...errors import StoreUnavailable
from ...retry import CONTENTION
from ...stores.usage.base import UsageFilter, UsageStoreBase, UsageSums, sums_of
from ...stores.usage.contract import SubagentEntry, UsageEntry, UsageKind
from .client.connection import Client, Command
from .client.servers import Servers
from .keys import UsageKeys, checked_prefix
from .program.runner import Done, Refused, Runner
from .program.vocabulary import Program
from .sessions.session_hash import as_fields, as_texts, struct_text

SEPARATOR = "\x1f"
INDEX = ""
"""The key of the index program, among the programs of single sessions."""
PAGE = 500
RECENT_MS = 86_400_000


class RedisUsageStore(UsageStoreBase):
    """UsageStore on Redis or Valkey, one server or a cluster. The client stays the caller's."""

    def __init__(self, redis: Client, *, prefix: str = "agent", clock: Clock = system_clock) -> None:
        super().__init__(clock=clock)
        self._keys = UsageKeys(checked_prefix(prefix))
        self._servers = Servers(redis)
        self._runner = Runner(self._servers)

    async def close(self) -> None:
        """Close the connections that this store opened itself; the client stays open."""
        await self._servers.close()

    async def _insert(self, entries: list[UsageEntry]) -> int:
        first: dict[tuple[str, str], UsageEntry] = {}
        for entry in entries:
            first.setdefault((entry.session_id, entry.id), entry)
        if not (fresh := await self._unknown(list(first.values()))):
            return 0
        programs = self._programs(entry.session_id for entry in fresh)
        self._enter(programs[INDEX], fresh)
        for entry in fresh:
            programs[entry.session_id].answer("HSETNX", *self._entry_words(entry))
        for each in dict.fromkeys(entry.session_id for entry in fresh):
            programs[each].follow(self._keys.entries(each), self._keys.session(each))
        done = [await self._runner.run(program) for program in dict.fromkeys(programs.values())]
        return sum(int(new) for each in done if isinstance(each, Done) for new in each.answers)

    def _programs(self, session_ids: Iterable[str]) -> dict[str, Program]:
        """Return one program for everything; on a cluster one for the index and one for each session."""
        index = Program(self._keys.by_time)
        apart = self._servers.is_cluster
        programs = {INDEX: index} | {
            each: Program(self._keys.entries(each)) if apart else index for each in session_ids
        }
        for program in programs.values():
            program.repeatable = True
        return programs

    async def _unknown(self, entries: list[UsageEntry]) -> list[UsageEntry]:
        asked = [(key, ("HEXISTS", key, each.id)) for each in entries for key in [self._keys.entries(each.session_id)]]
        return [entry for entry, known in zip(entries, await self._servers.each(asked), strict=True) if not known]

    def _entry_words(self, entry: UsageEntry) -> tuple[str, str, str]:
        return self._keys.entries(entry.session_id), entry.id, struct_text(entry)

    def _enter(self, program: Program, entries: Iterable[UsageEntry]) -> None:
        """Add the entries to the order by time, and link their sessions."""
        for entry in entries:
            program.do("ZADD", self._keys.by_time, "NX", str(entry.timestamp), _member(entry))
            for above, below in _links(entry):
                program.do("SADD", self._keys.below(above), below)
                program.do("SADD", self._keys.above(below), above)

    # -- recording with a commit

    async def announce(self, entries: list[UsageEntry]) -> None:
        """Write the index entries in other slots before a program records these entries."""
        if entries and self._servers.is_cluster:
            program = self._programs(())[INDEX]
            self._enter(program, entries)
            await self._runner.run(program)

    async def retract(self, entries: list[UsageEntry]) -> None:
        """Remove the index entries again, after the program was rejected."""
        if entries and self._servers.is_cluster and (gone := await self._unknown(entries)):
            await self._servers.one(self._keys.by_time, "ZREM", self._keys.by_time, *map(_member, gone))

    def record_with(self, program: Program, entries: list[UsageEntry]) -> None:
        """Add the entries to a program that runs in their slot."""
        if not self._servers.is_cluster:
            self._enter(program, entries)
        for entry in entries:
            program.create("HSETNX", *self._entry_words(entry))

    async def _entries(self, session_id: str, kinds: tuple[UsageKind, ...]) -> list[UsageEntry]:
        found = [entry for entry in await self._of([session_id]) if entry.kind in kinds]
        return sorted(found, key=lambda each: (each.timestamp, each.id))

    async def _sums(self, session_id: str, include_sub_sessions: bool) -> Iterable[UsageSums]:
        tree = await self._tree(session_id) if include_sub_sessions else [session_id]
        return map(sums_of, await self._of(tree))

    async def _of(self, session_ids: list[str]) -> list[UsageEntry]:
        keys = map(self._keys.entries, session_ids)
        replies = await self._servers.each([(key, ("HGETALL", key)) for key in keys])
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
            entries, missing = await self._read(members)
            start += len(members) - await self._forget(missing)
            for entry in entries:
                if not _fits(entry, wanted):
                    continue
                total += 1
                if offset < total <= offset + limit:
                    page.append(entry)
            if not count and len(page) == limit:
                break
        return page, total if count else None

    async def _newest(self, wanted: UsageFilter, start: int) -> dict[str, int]:
        most = "+inf" if wanted.timestamp_to is None else f"({wanted.timestamp_to}"
        least = "-inf" if wanted.timestamp_from is None else str(wanted.timestamp_from)
        key = self._keys.by_time
        words = ("ZREVRANGEBYSCORE", key, most, least, "WITHSCORES", "LIMIT", str(start), str(PAGE))
        found = await self._servers.one(key, *words)
        if not found or not isinstance(found[0], list):  # the older protocol has no pairs
            found = zip(found[::2], found[1::2], strict=True)
        return {member.decode(): int(float(score)) for member, score in found}

    async def _read(self, members: dict[str, int]) -> tuple[list[UsageEntry], dict[str, int]]:
        """Return the entries that exist, and the index members whose entry does not."""
        places = [member.split(SEPARATOR) for member in members]
        wanted = [(self._keys.entries(session_id), entry_id) for session_id, entry_id in places]
        replies = await self._servers.each([(key, ("HGET", key, entry_id)) for key, entry_id in wanted])
        missing = {each: at for (each, at), reply in zip(members.items(), replies, strict=True) if reply is None}
        return [_entry(reply.decode()) for reply in replies if reply is not None], missing

    async def _forget(self, members: dict[str, int]) -> int:
        """Remove index members of expired entries. A recent one may belong to an entry that is about to be recorded."""
        before = self._clock() - RECENT_MS
        gone = [member for member, timestamp in members.items() if timestamp < before]
        return int(await self._servers.one(self._keys.by_time, "ZREM", self._keys.by_time, *gone)) if gone else 0

    async def _delete(self, session_id: str, include_sub_sessions: bool) -> int:
        removed, gone = 0, set[str]()
        for _ in CONTENTION.attempts():
            tree = await self._tree(session_id) if include_sub_sessions else [session_id]
            programs, counts = await self._removing(tree, gone, links=include_sub_sessions)
            # The index goes last: if this is cut short, it can be done again and finds what is left.
            for program in reversed(dict.fromkeys(programs.values())):
                if isinstance(await self._runner.run(program), Refused):
                    break
                removed += sum(count for each, count in counts.items() if programs[each] is program)
            else:
                return removed
        raise StoreUnavailable(f"Usage of session {session_id!r} changes too fast to be deleted: try again.")

    async def _delete_life(self, session_id: str, incarnation: str) -> int:
        doomed = [each for each in await self._of([session_id]) if each.incarnation in (None, incarnation)]
        if not doomed:
            return 0
        key, by_time = self._keys.entries(session_id), self._keys.by_time
        removed = await self._servers.one(key, "HDEL", key, *[each.id for each in doomed])
        await self._servers.one(by_time, "ZREM", by_time, *map(_member, doomed))
        return int(removed)

    async def _removing(
        self, tree: list[str], gone: set[str], *, links: bool
    ) -> tuple[dict[str, Program], dict[str, int]]:
        """Return the programs that delete the sessions of a tree, and how many entries each session has.

        `gone`: the members of the order by time that have to go, those of earlier attempts included.
        """
        asked: list[tuple[str, Command]] = []
        for each in tree:
            entries, below, above = self._keys.entries(each), self._keys.below(each), self._keys.above(each)
            asked += [(entries, ("HKEYS", entries)), (below, ("SMEMBERS", below)), (above, ("SMEMBERS", above))]
        replies = [as_texts(reply) for reply in await self._servers.each(asked)]
        programs, counts = self._programs(tree), {}
        index = programs[INDEX]
        for place, each in enumerate(tree):
            ids, children, parents = replies[3 * place : 3 * place + 3]
            counts[each] = len(ids)
            programs[each].require("changed", len(ids), "HLEN", self._keys.entries(each))
            programs[each].do("DEL", self._keys.entries(each))
            index.require("changed", len(children), "SCARD", self._keys.below(each))
            gone.update(f"{each}{SEPARATOR}{entry_id}" for entry_id in ids)
            if links:
                for other in parents:
                    index.do("SREM", self._keys.below(other), each)
                for other in children:
                    index.do("SREM", self._keys.above(other), each)
                index.do("DEL", self._keys.below(each))
                index.do("DEL", self._keys.above(each))
        members = sorted(gone)
        for start in range(0, len(members), PAGE):
            index.do("ZREM", self._keys.by_time, *members[start : start + PAGE])
        return programs, counts

    async def _tree(self, session_id: str) -> list[str]:
        """Return the session and all its descendants; each once, so that a cycle ends."""
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
    """Return whether an entry matches; a field that its kind does not have never matches."""
    asked = msgspec.structs.asdict(wanted)
    for name in ("run_id", "model", "tool_name", "source"):
        if asked[name] is not None and getattr(entry, name, None) != asked[name]:
            return False
    return (
        (wanted.kinds is None or entry.kind in wanted.kinds)
        and (wanted.other_than is None or entry.incarnation not in (None, wanted.other_than))
        and (wanted.timestamp_from is None or entry.timestamp >= wanted.timestamp_from)
        and (wanted.timestamp_to is None or entry.timestamp < wanted.timestamp_to)
    )
