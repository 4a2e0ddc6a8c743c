"""Memories in dictionaries: by entity, each beside its words."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from ...clock import Clock, IdSource, random_id, system_clock
from ...stores.memory.base import Candidate, MemoryStoreBase
from ...stores.memory.contract import Embedder, EntitySummary, Memory
from ...stores.memory.search_text import has_all


class _Kept(NamedTuple):
    memory: Memory
    words: list[str]


class InMemoryMemoryStore(MemoryStoreBase):
    """MemoryStore of one process; gone when it ends."""

    def __init__(
        self,
        *,
        embedder: Embedder | None = None,
        min_similarity: float = 0.0,
        clock: Clock = system_clock,
        ids: IdSource = random_id,
    ) -> None:
        super().__init__(embedder=embedder, min_similarity=min_similarity, clock=clock, ids=ids)
        self._kept: dict[str, dict[str, _Kept]] = {}

    async def _put(self, memory: Memory, words: list[str]) -> Memory:
        entity = self._kept.setdefault(memory.entity_id, {})
        if memory.id in entity:
            memory = msgspec.structs.replace(memory, created_at=entity[memory.id].memory.created_at)
        # Copies both ways: later changes of the caller's metadata must not reach the store.
        entity[memory.id] = _Kept(copy.deepcopy(memory), words)
        return memory

    async def _get(self, entity_id: str, memory_ids: Sequence[str]) -> list[Memory]:
        entity = self._kept.get(entity_id, {})
        return [copy.deepcopy(entity[each].memory) for each in memory_ids if each in entity]

    async def _match(self, entity_id: str, source: str | None, wanted: Sequence[str], *, limit: int) -> list[Candidate]:
        found = [
            Candidate(kept.memory.id, kept.words)
            for kept in self._newest(entity_id, source)
            if has_all(kept.words, wanted)
        ]
        return found[:limit]

    async def _vectors(self, entity_id: str, source: str | None, *, limit: int) -> list[tuple[str, tuple[float, ...]]]:
        newest = (kept.memory for kept in self._newest(entity_id, source))
        return [(each.id, each.embedding) for each in newest if each.embedding is not None][:limit]

    async def _list(self, entity_id: str, source: str | None, *, limit: int, offset: int) -> tuple[list[Memory], int]:
        found = self._newest(entity_id, source)
        return [copy.deepcopy(kept.memory) for kept in found[offset : offset + limit]], len(found)

    async def _delete(self, entity_id: str, memory_id: str | None, source: str | None) -> int:
        entity = self._kept.get(entity_id, {})
        gone = [
            each for each, kept in entity.items() if memory_id in (None, each) and source in (None, kept.memory.source)
        ]
        for each in gone:
            del entity[each]
        if not entity:
            self._kept.pop(entity_id, None)
        return len(gone)

    async def _entities(
        self, entity_id: str | None, source: str | None, *, limit: int, offset: int, count: bool
    ) -> tuple[list[EntitySummary], int | None]:
        entities = self._kept if entity_id is None else [entity_id]
        found = [
            summary
            for each in sorted(entities)
            for summary in self._summaries(each)
            if source in (None, summary.source)
        ]
        return found[offset : offset + limit], len(found) if count else None

    def _newest(self, entity_id: str, source: str | None) -> list[_Kept]:
        kept = [each for each in self._kept.get(entity_id, {}).values() if source in (None, each.memory.source)]
        return sorted(kept, key=lambda each: (each.memory.updated_at, each.memory.id), reverse=True)

    def _summaries(self, entity_id: str) -> Iterator[EntitySummary]:
        memories = [kept.memory for kept in self._kept.get(entity_id, {}).values()]
        for source, number in sorted(Counter(memory.source for memory in memories).items()):
            newest = max(memory.updated_at for memory in memories if memory.source == source)
            yield EntitySummary(entity_id=entity_id, source=source, memory_count=number, updated_at=newest)
