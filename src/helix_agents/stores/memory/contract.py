"""MemoryStore: what an agent remembers about a person or a thing, across sessions.

- M1 save: a memory is found by `(entity_id, id)`; saving it again replaces it as a whole and keeps `created_at`.
- M2 exact: content and metadata come back byte for byte.
- M3 isolation: no call ever returns memories of another entity.
- M4 search: every word of the query must occur in the content, as a whole word or as the beginning of one; capitals,
  accents and punctuation do not matter. Best first. No query is an error: what looks like query syntax is text, and a
  query without words finds the newest memories. Searching costs what the entity holds, not what the store holds.
- M5 listing: entities and memories by page, with exact counts.
- M6 delete: what is deleted is neither found nor counted again.

With an `Embedder`, search also finds memories that mean the same in other words. This file knows no storage;
`stores/memory/base.py` checks and ranks, backends keep the memories.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import TracebackType
from typing import Protocol, Self

import msgspec

from ...codec import Json
from ...types import Page


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """One memory about an entity. `save` fills in an empty `id`; the store sets both times."""

    entity_id: str
    content: str
    source: str = "default"
    id: str = ""
    metadata: dict[str, Json] = {}
    embedding: tuple[float, ...] | None = None
    created_at: int = 0
    updated_at: int = 0


class EntitySummary(msgspec.Struct, frozen=True, kw_only=True):
    """An entity and one source of memories about it."""

    entity_id: str
    source: str
    memory_count: int
    updated_at: int


class Embedder(Protocol):
    """Turns texts into vectors, all of one length; the adapter to any embedding model."""

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Return one vector for each text, in order."""


class MemoryStore(ABC):
    """All memories of one backend. Bad input raises `InvalidArgument` before anything is written."""

    @abstractmethod
    async def save(self, memory: Memory) -> Memory:
        """Store a memory, replacing one with its id; return it as stored (M1, M2). *Atomic.*

        `created_at` of a new memory is taken from it if given, `updated_at` is always now. Without an `embedding`
        the store's embedder makes one.
        """

    @abstractmethod
    async def get(self, entity_id: str, memory_id: str) -> Memory | None:
        """Return one memory; None if the entity has none with that id."""

    @abstractmethod
    async def search(self, entity_id: str, query: str, *, source: str | None = None, limit: int = 10) -> list[Memory]:
        """Return the memories of an entity that match the query, best first (M4). `limit` is 1 to 200."""

    @abstractmethod
    async def list_memories(
        self, entity_id: str, *, source: str | None = None, limit: int = 50, offset: int = 0
    ) -> Page[Memory]:
        """Return the memories of an entity. *Ordered:* newest first by `(updated_at, id)`."""

    @abstractmethod
    async def delete(self, entity_id: str, memory_id: str) -> bool:
        """Delete one memory; return False if there was none. *Idempotent.*"""

    @abstractmethod
    async def delete_entity(self, entity_id: str, *, source: str | None = None) -> int:
        """Delete all memories of an entity, or those of one source; return how many there were. *Atomic,
        idempotent.*"""

    @abstractmethod
    async def list_entities(
        self,
        *,
        entity_id: str | None = None,
        source: str | None = None,
        limit: int = 50,
        offset: int = 0,
        count: bool = True,
    ) -> Page[EntitySummary]:
        """Return the distinct pairs of entity and source, with counts (M5). *Ordered:* by `(entity_id, source)`.

        `limit` is 1 to 200; `total` is None with `count=False`, which saves counting.
        """

    async def close(self) -> None:
        """Release what this store opened itself, never what the caller passed in."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
