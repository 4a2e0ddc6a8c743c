"""RedisMemoryStore: memories by entity, and their words in a sorted set that finds them by prefix.

Redis has no full-text search without modules. Each distinct word of a memory is one member `word, id` of a set in which
all scores are equal; a range of texts then lists the memories that have a word with a given beginning. A search costs
what its rarest word finds. Memories do not expire.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import msgspec

from ...clock import Clock, IdSource, random_id, system_clock
from ...codec import decode, encode, to_struct
from ...errors import StoreUnavailable
from ...retry import CONTENTION
from ...stores.memory.base import Candidate, MemoryStoreBase
from ...stores.memory.contract import Embedder, EntitySummary, Memory
from .client.connection import Client, Command
from .client.servers import Servers
from .keys import MemoryKeys, checked_prefix
from .program.runner import Refused, Runner
from .program.vocabulary import ABSENT, Program
from .sessions.session_hash import as_texts, struct_text, text_or_none

SEPARATOR = "\x1f"
AFTER_ALL = b"\xff"
PAGE = 500


class RedisMemoryStore(MemoryStoreBase):
    """MemoryStore on Redis or Valkey, one server or a cluster. The client stays the caller's."""

    def __init__(
        self,
        redis: Client,
        *,
        prefix: str = "agent",
        embedder: Embedder | None = None,
        min_similarity: float = 0.0,
        clock: Clock = system_clock,
        ids: IdSource = random_id,
    ) -> None:
        super().__init__(embedder=embedder, min_similarity=min_similarity, clock=clock, ids=ids)
        self._keys = MemoryKeys(checked_prefix(prefix))
        self._servers = Servers(redis)
        self._runner = Runner(self._servers)

    async def close(self) -> None:
        """Close the connections that this store opened itself; the client stays open."""
        await self._servers.close()

    # -- writing

    async def _put(self, memory: Memory, words: list[str]) -> Memory:
        await self._enter(memory)
        key = self._keys.memories(memory.entity_id)
        for _ in CONTENTION.attempts():
            commands = [("HGET", key, memory.id), ("HGET", self._keys.texts(memory.entity_id), memory.id)]
            old, old_words = map(text_or_none, await self._servers.run(key, commands, atomic=True))
            program = Program(key)
            program.require("changed", ABSENT if old is None else old, "HGET", key, memory.id)
            kept = memory
            if old is not None:
                before = to_struct(Memory, decode(old))
                kept = msgspec.structs.replace(memory, created_at=before.created_at)
                self._add_removal(program, before, old_words or "")
            self._add_memory(program, kept, words)
            if not isinstance(await self._runner.run(program), Refused):
                # Once more: a process that found the entity empty just before this write may have removed the entry.
                await self._enter(memory)
                return kept
        raise StoreUnavailable(f"Too many writers saved memory {memory.id!r} at once: try again.")

    async def _enter(self, memory: Memory) -> None:
        key = self._keys.entities
        await self._servers.one(key, "ZADD", key, "0", f"{memory.entity_id}{SEPARATOR}{memory.source}")

    def _add_memory(self, program: Program, memory: Memory, words: list[str]) -> None:
        entity = memory.entity_id
        program.do("HSET", self._keys.memories(entity), memory.id, struct_text(_without_embedding(memory)))
        program.do("HSET", self._keys.texts(entity), memory.id, " ".join(words))
        if memory.embedding is not None:
            program.do("HSET", self._keys.embeddings(entity), memory.id, encode(list(memory.embedding)))
        for source in (None, memory.source):
            program.do("ZADD", self._keys.newest(entity, source), str(memory.updated_at), memory.id)
        members = [f"{word}{SEPARATOR}{memory.id}" for word in dict.fromkeys(words)]
        for start in range(0, len(members), PAGE):
            pairs = [word for member in members[start : start + PAGE] for word in ("0", member)]
            program.do("ZADD", self._keys.words(entity), *pairs)

    def _add_removal(self, program: Program, memory: Memory, words: str) -> None:
        entity = memory.entity_id
        for key in (self._keys.memories(entity), self._keys.texts(entity), self._keys.embeddings(entity)):
            program.do("HDEL", key, memory.id)
        for source in (None, memory.source):
            program.do("ZREM", self._keys.newest(entity, source), memory.id)
        members = [f"{word}{SEPARATOR}{memory.id}" for word in dict.fromkeys(words.split())]
        for start in range(0, len(members), PAGE):
            program.do("ZREM", self._keys.words(entity), *members[start : start + PAGE])

    async def _delete(self, entity_id: str, memory_id: str | None, source: str | None) -> int:
        for _ in CONTENTION.attempts():
            ids = [memory_id] if memory_id is not None else await self._ids_newest(entity_id, source)
            program, removed = await self._removing(entity_id, ids, source)
            if memory_id is None:
                newest = self._keys.newest(entity_id, source)
                program.require("changed", len(ids), "ZCARD", newest)
            if not isinstance(await self._runner.run(program), Refused):
                await self._tidy(entity_id, source)
                return removed
        raise StoreUnavailable(f"Memories of {entity_id!r} change too fast to be deleted: try again.")

    async def _ids_newest(self, entity_id: str, source: str | None) -> list[str]:
        key = self._keys.newest(entity_id, source)
        return as_texts(await self._servers.one(key, "ZREVRANGE", key, 0, -1))

    async def _removing(self, entity_id: str, ids: Sequence[str], source: str | None) -> tuple[Program, int]:
        key, texts = self._keys.memories(entity_id), self._keys.texts(entity_id)
        commands = [(word, where, each) for each in ids for word, where in (("HGET", key), ("HGET", texts))]
        replies = list(map(text_or_none, await self._servers.run(key, commands, atomic=True))) if ids else []
        program, removed = Program(key), 0
        for memory_id, old, words in zip(ids, replies[::2], replies[1::2], strict=True):
            if old is None:
                continue
            memory = to_struct(Memory, decode(old))
            if source in (None, memory.source):
                program.require("changed", old, "HGET", key, memory_id)
                self._add_removal(program, memory, words or "")
                removed += 1
        return program, removed

    async def _tidy(self, entity_id: str, source: str | None) -> None:
        """Remove the entity's entries that no longer have memories."""
        async for _ in self._summaries(entity_id, source):
            pass

    # -- reading

    async def _get(self, entity_id: str, memory_ids: Sequence[str]) -> list[Memory]:
        key = self._keys.memories(entity_id)
        commands: list[Command] = [
            ("HMGET", key, *memory_ids),
            ("HMGET", self._keys.embeddings(entity_id), *memory_ids),
        ]
        texts, embeddings = await self._servers.run(key, commands, atomic=True)
        return [_memory(text, vector) for text, vector in zip(texts, embeddings, strict=True) if text is not None]

    async def _match(self, entity_id: str, source: str | None, wanted: Sequence[str], *, limit: int) -> list[Candidate]:
        key = self._keys.words(entity_id)
        ranges = [("ZRANGEBYLEX", key, f"[{word}", b"(" + word.encode() + AFTER_ALL) for word in wanted]
        found: set[str] | None = None
        for reply in await self._servers.run(key, ranges, atomic=True):
            ids = {member.rpartition(SEPARATOR)[2] for member in as_texts(reply)}
            found = ids if found is None else found & ids
        if not found:
            return []
        newest = [each for each in await self._ids_newest(entity_id, source) if each in found][:limit]
        texts = self._keys.texts(entity_id)
        replies = await self._servers.one(texts, "HMGET", texts, *newest) if newest else []
        return [
            Candidate(memory_id, text.decode().split())
            for memory_id, text in zip(newest, replies, strict=True)
            if text is not None
        ]

    async def _vectors(self, entity_id: str, source: str | None, *, limit: int) -> list[tuple[str, tuple[float, ...]]]:
        key = self._keys.embeddings(entity_id)
        found: list[tuple[str, tuple[float, ...]]] = []
        ids = await self._ids_newest(entity_id, source)
        for start in range(0, len(ids), PAGE):
            page = ids[start : start + PAGE]
            replies = await self._servers.one(key, "HMGET", key, *page)
            found += [(each, tuple(decode(text))) for each, text in zip(page, replies, strict=True) if text is not None]
            if len(found) >= limit:
                break
        return found[:limit]

    async def _list(self, entity_id: str, source: str | None, *, limit: int, offset: int) -> tuple[list[Memory], int]:
        key = self._keys.newest(entity_id, source)
        commands: list[Command] = [("ZREVRANGE", key, offset, offset + limit - 1), ("ZCARD", key)]
        ids, total = await self._servers.run(key, commands, atomic=True)
        found = {memory.id: memory for memory in await self._get(entity_id, as_texts(ids))} if ids else {}
        return [found[each] for each in as_texts(ids) if each in found], int(total)

    async def _entities(
        self, entity_id: str | None, source: str | None, *, limit: int, offset: int, count: bool
    ) -> tuple[list[EntitySummary], int | None]:
        page: list[EntitySummary] = []
        total = 0
        async for summary in self._summaries(entity_id, source):
            total += 1
            if offset < total <= offset + limit:
                page.append(summary)
            if not count and len(page) == limit:
                break
        return page, total if count else None

    async def _summaries(self, entity_id: str | None, source: str | None) -> AsyncIterator[EntitySummary]:
        """Yield pairs of entity and source that have memories, in order; an entry without any is removed."""
        key = self._keys.entities
        least = "-" if entity_id is None else f"[{entity_id}{SEPARATOR}"
        most = "+" if entity_id is None else f"({entity_id}{chr(ord(SEPARATOR) + 1)}"
        while True:
            members = as_texts(await self._servers.one(key, "ZRANGEBYLEX", key, least, most, "LIMIT", 0, PAGE))
            pairs = [member.split(SEPARATOR) for member in members]
            wanted = [(entity, each) for entity, each in pairs if source in (None, each)]
            for (entity, each), (number, newest) in zip(wanted, await self._counts(wanted), strict=True):
                if number:
                    summary = EntitySummary(entity_id=entity, source=each, memory_count=number, updated_at=newest)
                    yield summary
                else:
                    await self._servers.one(key, "ZREM", key, f"{entity}{SEPARATOR}{each}")
            if len(members) < PAGE:
                return
            least = f"({members[-1]}"

    async def _counts(self, pairs: Sequence[tuple[str, str]]) -> list[tuple[int, int]]:
        keyed: list[tuple[str, Command]] = []
        for entity, source in pairs:
            newest = self._keys.newest(entity, source)
            keyed += [(newest, ("ZCARD", newest)), (newest, ("ZREVRANGE", newest, 0, 0, "WITHSCORES"))]
        replies = await self._servers.each(keyed) if keyed else []
        return [
            (int(number), _score(newest) if newest else 0)
            for number, newest in zip(replies[::2], replies[1::2], strict=True)
        ]


def _score(reply: list[object]) -> int:
    """Return the score of the only member: flat (RESP 2) or a pair (RESP 3)."""
    score = reply[1] if len(reply) == 2 else reply[0][1]  # type: ignore[index]  # a pair
    return int(float(score))  # type: ignore[arg-type]  # bytes or float


def _without_embedding(memory: Memory) -> Memory:
    return msgspec.structs.replace(memory, embedding=None)


def _memory(text: bytes, vector: bytes | None) -> Memory:
    memory = to_struct(Memory, decode(text))
    return memory if vector is None else msgspec.structs.replace(memory, embedding=tuple(decode(vector)))
