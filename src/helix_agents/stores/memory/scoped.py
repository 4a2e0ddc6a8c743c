"""ScopedMemory: a memory store limited to one user, for that user's tools."""

from __future__ import annotations

from collections.abc import Mapping

from ...codec import Json
from ...types import Page
from .contract import Memory, MemoryStore


class ScopedMemory:
    """The memories of one entity. All methods are those of `MemoryStore`, without the entity."""

    def __init__(self, store: MemoryStore, entity_id: str) -> None:
        self.entity_id = entity_id
        self._store = store

    async def save(
        self, content: str, *, source: str = "default", id: str = "", metadata: Mapping[str, Json] | None = None
    ) -> Memory:
        """Store a memory, replacing one with its id."""
        return await self._store.save(
            Memory(entity_id=self.entity_id, content=content, source=source, id=id, metadata=dict(metadata or {}))
        )

    async def get(self, memory_id: str) -> Memory | None:
        """Return one memory; None if there is none with that id."""
        return await self._store.get(self.entity_id, memory_id)

    async def search(self, query: str, *, source: str | None = None, limit: int = 10) -> list[Memory]:
        """Return the memories that match the query, best first; the newest for a query without words."""
        return await self._store.search(self.entity_id, query, source=source, limit=limit)

    async def list_memories(self, *, source: str | None = None, limit: int = 50, offset: int = 0) -> Page[Memory]:
        """Return all memories, newest first."""
        return await self._store.list_memories(self.entity_id, source=source, limit=limit, offset=offset)

    async def delete(self, memory_id: str) -> bool:
        """Delete one memory; return False if there was none."""
        return await self._store.delete(self.entity_id, memory_id)
