"""Memories as rows, with a full-text index that triggers keep up to date.

Knows SQL and the shape of a row; text comes as ready-made words, and what was found is ranked elsewhere
(`stores/memory/base.py`).
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Sequence
from hashlib import blake2b

import msgspec

from ....clock import Clock, IdSource, random_id, system_clock
from ....codec import decode, encode
from ....stores.memory.base import Candidate, MemoryStoreBase
from ....stores.memory.contract import Embedder, EntitySummary, Memory
from ..driver import Row, SqlDriver
from ..queries import Queries


class SqlMemoryStore(MemoryStoreBase):
    """MemoryStore on a migrated database that the caller opened, and closes."""

    def __init__(
        self,
        driver: SqlDriver,
        *,
        prefix: str = "",
        embedder: Embedder | None = None,
        min_similarity: float = 0.0,
        clock: Clock = system_clock,
        ids: IdSource = random_id,
    ) -> None:
        super().__init__(embedder=embedder, min_similarity=min_similarity, clock=clock, ids=ids)
        self._driver = driver
        self._queries = Queries("memory/memory_queries", driver.dialect, prefix)

    async def _put(self, memory: Memory, words: list[str]) -> Memory:
        statement = self._queries(
            "put_memory",
            memory.entity_id,
            memory.id,
            memory.source,
            encode(memory.content),
            encode(memory.metadata),
            None if memory.embedding is None else _pack(memory.embedding),
            memory.created_at,
            memory.updated_at,
            _scope(memory.entity_id),
            " ".join(words),
        )
        rows = (await self._driver.batch([statement]))[0]
        return msgspec.structs.replace(memory, created_at=rows[0][0])

    async def _get(self, entity_id: str, memory_ids: Sequence[str]) -> list[Memory]:
        statement = self._queries("get_memories", entity_id, encode(list(memory_ids)))
        return [_memory(row) for row in (await self._driver.batch([statement], read_only=True))[0]]

    async def _match(self, entity_id: str, source: str | None, wanted: Sequence[str], *, limit: int) -> list[Candidate]:
        expression = self._expression(_scope(entity_id), wanted)
        statement = self._queries("match_memories", entity_id, expression, source, limit)
        rows = (await self._driver.batch([statement], read_only=True))[0]
        return [Candidate(memory_id, words.split(" ")) for memory_id, words in rows]

    def _expression(self, scope: str, wanted: Sequence[str]) -> str:
        """Return a search expression that finds all words by prefix, in the syntax of the index: FTS5 unless
        overridden.

        Words hold letters and digits only, so nothing in here can be taken for syntax.
        """
        return " AND ".join(f'"{scope}{word}" *' for word in wanted)

    async def _vectors(self, entity_id: str, source: str | None, *, limit: int) -> list[tuple[str, tuple[float, ...]]]:
        statement = self._queries("newest_vectors", entity_id, source, limit)
        rows = (await self._driver.batch([statement], read_only=True))[0]
        return [(memory_id, _unpack(text)) for memory_id, text in rows]

    async def _list(self, entity_id: str, source: str | None, *, limit: int, offset: int) -> tuple[list[Memory], int]:
        listed = self._queries("list_memories", entity_id, source, limit, offset)
        counted = self._queries("count_memories", entity_id, source)
        rows, totals = await self._driver.batch([listed, counted], read_only=True)
        return [_memory(row) for row in rows], int(totals[0][0])

    async def _delete(self, entity_id: str, memory_id: str | None, source: str | None) -> int:
        if memory_id is None:
            statement = self._queries("delete_entity", entity_id, source)
        else:
            statement = self._queries("delete_memory", entity_id, memory_id)
        return len((await self._driver.batch([statement]))[0])

    async def _entities(
        self, entity_id: str | None, source: str | None, *, limit: int, offset: int, count: bool
    ) -> tuple[list[EntitySummary], int | None]:
        if entity_id is None:
            statements = [self._queries("list_entities", source, limit, offset)]
            counted = self._queries("count_entities", source)
        else:
            statements = [self._queries("list_sources", source, limit, offset, entity_id)]
            counted = self._queries("count_sources", source, entity_id)
        answers = await self._driver.batch([*statements, counted] if count else statements, read_only=True)
        found = [
            EntitySummary(entity_id=entity, source=name, memory_count=int(number), updated_at=updated_at)
            for entity, name, number, updated_at in answers[0]
        ]
        return found, int(answers[1][0][0]) if count else None


def _scope(entity_id: str) -> str:
    """Return a fixed-length token that marks the entity's words in the index.

    Two entities may share one by chance; every statement asks for the entity itself as well.
    """
    return blake2b(entity_id.encode(), digest_size=5).hexdigest()


def _pack(vector: tuple[float, ...]) -> str:
    """Return the exact bytes of the numbers as a string, because not every database can store bytes."""
    return base64.b64encode(struct.pack(f"<{len(vector)}d", *vector)).decode()


def _unpack(text: str) -> tuple[float, ...]:
    data = base64.b64decode(text)
    return struct.unpack(f"<{len(data) // 8}d", data)


def _memory(row: Row) -> Memory:
    entity_id, memory_id, source, content, metadata, embedding, created_at, updated_at = row
    return Memory(
        entity_id=entity_id,
        id=memory_id,
        source=source,
        content=decode(content),
        metadata=decode(metadata),
        embedding=None if embedding is None else _unpack(embedding),
        created_at=created_at,
        updated_at=updated_at,
    )
