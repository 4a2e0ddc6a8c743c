"""The MemoryStore contract on a few backend verbs. Arguments are checked and results ranked here, for all backends.

A backend stores memories with their words and finds those that have all words of a query. It does not know how text is
split into words, how results are ranked, or what embeddings mean.
"""

from __future__ import annotations

import asyncio
import math
from abc import abstractmethod
from collections.abc import Sequence
from operator import mul
from typing import NamedTuple

import msgspec

from ...clock import Clock, IdSource, random_id, system_clock
from ...codec import ensure_exact, ensure_storable
from ...errors import InvalidArgument, shown
from ...ids import ensure_id
from ...types import Page
from ..paging import ensure_limit, ensure_offset, page_of
from .contract import Embedder, EntitySummary, Memory, MemoryStore
from .search_text import query_words, score, words_of

MAX_CONTENT_LENGTH = 100_000
MAX_EMBEDDING_LENGTH = 16_384

MAX_CANDIDATES = 1_000
"""Search ranks the newest 1,000 memories that have all the words."""

MAX_VECTORS = 10_000
"""Search compares the query with the newest 10,000 embeddings of the entity."""

_FUSION = 60
"""Reciprocal rank fusion: the customary constant, which keeps a single first place from outweighing two good ones."""


class Candidate(NamedTuple):
    """A memory that has all the words, with the data for ranking."""

    memory_id: str
    words: list[str]


class MemoryStoreBase(MemoryStore):
    """A memory store without the storage."""

    def __init__(
        self,
        *,
        embedder: Embedder | None = None,
        min_similarity: float = 0.0,
        clock: Clock = system_clock,
        ids: IdSource = random_id,
    ) -> None:
        self._embedder = embedder
        self._min_similarity = min_similarity
        self._clock = clock
        self._ids = ids

    # -- what a backend supplies

    @abstractmethod
    async def _put(self, memory: Memory, words: list[str]) -> Memory:
        """Store a memory, replacing one with its id but keeping its `created_at`; return it as stored. *Atomic.*"""

    @abstractmethod
    async def _get(self, entity_id: str, memory_ids: Sequence[str]) -> list[Memory]:
        """Return the memories that exist, in any order."""

    @abstractmethod
    async def _match(self, entity_id: str, source: str | None, wanted: Sequence[str], *, limit: int) -> list[Candidate]:
        """Return the newest memories that have every wanted word, as a word or a prefix; newest first."""

    @abstractmethod
    async def _vectors(self, entity_id: str, source: str | None, *, limit: int) -> list[tuple[str, tuple[float, ...]]]:
        """Return ids and embeddings of the newest memories that have one; newest first."""

    @abstractmethod
    async def _list(self, entity_id: str, source: str | None, *, limit: int, offset: int) -> tuple[list[Memory], int]:
        """Return at most `limit` memories from `offset`, newest first, and the total count."""

    @abstractmethod
    async def _delete(self, entity_id: str, memory_id: str | None, source: str | None) -> int:
        """Delete the matching memories; return how many. *Atomic.*"""

    @abstractmethod
    async def _entities(
        self, entity_id: str | None, source: str | None, *, limit: int, offset: int, count: bool
    ) -> tuple[list[EntitySummary], int | None]:
        """Return at most `limit` pairs from `offset` in order, and the total count if requested."""

    # -- the contract

    async def save(self, memory: Memory) -> Memory:
        _check(memory)
        embedding = memory.embedding and tuple(map(float, memory.embedding))
        if self._embedder:
            # Always computed again: the embedding of edited content would describe the old content.
            embedding = await self._embed(memory.content)
        now = self._clock()
        kept = msgspec.structs.replace(
            memory,
            id=memory.id or self._ids(),
            embedding=embedding,
            created_at=memory.created_at or now,
            updated_at=now,
        )
        return await self._put(kept, words_of(memory.content))

    async def get(self, entity_id: str, memory_id: str) -> Memory | None:
        found = await self._get(ensure_id(entity_id, "entity_id"), [ensure_id(memory_id, "memory_id")])
        return found[0] if found else None

    async def search(self, entity_id: str, query: str, *, source: str | None = None, limit: int = 10) -> list[Memory]:
        ensure_id(entity_id, "entity_id")
        _ensure_source(source)
        ensure_limit(limit)
        if not isinstance(query, str):
            raise InvalidArgument(f"query must be a string, not {type(query).__name__}.")
        wanted = query_words(query)
        rankings = []
        if wanted:
            rankings.append(await self._by_words(entity_id, source, wanted))
        if self._embedder and query.strip():
            rankings.append(await self._by_meaning(entity_id, source, query))
        if not rankings:
            return (await self._list(entity_id, source, limit=limit, offset=0))[0]
        best = _fused(rankings)[:limit]
        found = {memory.id: memory for memory in await self._get(entity_id, best)} if best else {}
        return [found[memory_id] for memory_id in best if memory_id in found]

    async def list_memories(
        self, entity_id: str, *, source: str | None = None, limit: int = 50, offset: int = 0
    ) -> Page[Memory]:
        ensure_id(entity_id, "entity_id")
        _ensure_source(source)
        ensure_limit(limit)
        ensure_offset(offset)
        rows, total = await self._list(entity_id, source, limit=limit + 1, offset=offset)
        return page_of(rows, total, limit=limit, offset=offset)

    async def delete(self, entity_id: str, memory_id: str) -> bool:
        return await self._delete(ensure_id(entity_id, "entity_id"), ensure_id(memory_id, "memory_id"), None) > 0

    async def delete_entity(self, entity_id: str, *, source: str | None = None) -> int:
        _ensure_source(source)
        return await self._delete(ensure_id(entity_id, "entity_id"), None, source)

    async def list_entities(
        self,
        *,
        entity_id: str | None = None,
        source: str | None = None,
        limit: int = 50,
        offset: int = 0,
        count: bool = True,
    ) -> Page[EntitySummary]:
        if entity_id is not None:
            ensure_id(entity_id, "entity_id")
        _ensure_source(source)
        ensure_limit(limit)
        ensure_offset(offset)
        rows, total = await self._entities(entity_id, source, limit=limit + 1, offset=offset, count=count)
        return page_of(rows, total, limit=limit, offset=offset)

    # -- ranking

    async def _by_words(self, entity_id: str, source: str | None, wanted: Sequence[str]) -> list[str]:
        candidates = await self._match(entity_id, source, wanted, limit=MAX_CANDIDATES)
        average = sum(len(each.words) for each in candidates) / max(len(candidates), 1)
        # The sort is stable and candidates come newest first, so among equals the newest wins.
        candidates.sort(key=lambda each: score(each.words, wanted, average), reverse=True)
        return [each.memory_id for each in candidates]

    async def _by_meaning(self, entity_id: str, source: str | None, query: str) -> list[str]:
        vector = await self._embed(query)
        vectors = await self._vectors(entity_id, source, limit=MAX_VECTORS)
        # Plain arithmetic on up to millions of numbers: in a thread, so that it does not block the event loop.
        return await asyncio.to_thread(_nearest, vector, vectors, self._min_similarity)

    async def _embed(self, text: str) -> tuple[float, ...]:
        assert self._embedder is not None
        vectors = list(await self._embedder.embed([text]))
        if len(vectors) != 1:
            raise InvalidArgument(f"The embedder returned {len(vectors)} vectors for one text: it must return one.")
        vector = tuple(float(number) for number in vectors[0])
        _check_embedding(vector)
        return vector


def _check(memory: Memory) -> None:
    if not isinstance(memory, Memory):
        raise InvalidArgument(f"save takes a Memory, not {type(memory).__name__}.")
    ensure_id(memory.entity_id, "entity_id")
    ensure_id(memory.source, "source")
    if memory.id != "":
        ensure_id(memory.id, "id of a memory")
    if not isinstance(memory.content, str):
        raise InvalidArgument(f"The content of a memory must be a string, not {type(memory.content).__name__}.")
    if len(memory.content) > MAX_CONTENT_LENGTH:
        raise InvalidArgument(
            f"A memory of {len(memory.content)} characters is too long: split it, {MAX_CONTENT_LENGTH} are allowed."
        )
    if not isinstance(memory.metadata, dict):
        raise InvalidArgument(f"The metadata of a memory must be a dict, not {type(memory.metadata).__name__}.")
    ensure_storable(memory.metadata)
    ensure_exact(memory.content, "/content")
    if not isinstance(memory.created_at, int) or not 0 <= memory.created_at < 2**53:
        raise InvalidArgument(f"created_at must be epoch milliseconds, not {shown(memory.created_at)}.")
    if memory.embedding is not None:
        _check_embedding(memory.embedding)


def _check_embedding(vector: Sequence[float]) -> None:
    if not 1 <= len(vector) <= MAX_EMBEDDING_LENGTH:
        raise InvalidArgument(f"An embedding must have 1 to {MAX_EMBEDDING_LENGTH} numbers, not {len(vector)}.")
    if not all(isinstance(number, int | float) and math.isfinite(number) for number in vector):
        raise InvalidArgument("An embedding must hold finite numbers only.")


def _ensure_source(source: str | None) -> None:
    if source is not None:
        ensure_id(source, "source")


def _nearest(
    query: tuple[float, ...], vectors: list[tuple[str, tuple[float, ...]]], min_similarity: float
) -> list[str]:
    """Return ids by cosine similarity, best first. Vectors of another length come from another model and are
    ignored."""
    norm = math.hypot(*query) or 1.0
    scored = []
    for memory_id, vector in vectors:
        if len(vector) == len(query):
            similarity = sum(map(mul, query, vector)) / (norm * (math.hypot(*vector) or 1.0))
            if similarity > min_similarity:
                scored.append((similarity, memory_id))
    scored.sort(key=lambda each: each[0], reverse=True)
    return [memory_id for _, memory_id in scored[:MAX_CANDIDATES]]


def _fused(rankings: list[list[str]]) -> list[str]:
    """Combine several rankings into one by reciprocal rank."""
    if len(rankings) == 1:
        return rankings[0]
    scores: dict[str, float] = {}
    for ranking in rankings:
        for place, memory_id in enumerate(ranking, start=1):
            scores[memory_id] = scores.get(memory_id, 0.0) + 1 / (_FUSION + place)
    return sorted(scores, key=scores.__getitem__, reverse=True)
