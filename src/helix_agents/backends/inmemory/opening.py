"""`memory:`, stores that live as long as they are open."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ...streams.base import DEFAULT_MAX_CHUNKS, DEFAULT_TTL_SECONDS
from ..registry import Stores
from ..url import StoresUrl
from .memory_store import InMemoryMemoryStore
from .state_store import InMemoryStateStore
from .stream_manager import InMemoryStreamManager
from .usage_store import InMemoryUsageStore


@asynccontextmanager
async def open_memory(url: StoresUrl) -> AsyncIterator[Stores]:
    """Options: max_chunks, ttl (of streams, in seconds)."""
    url.only({"max_chunks", "ttl"})
    streams = InMemoryStreamManager(
        max_chunks=url.option("max_chunks", int, DEFAULT_MAX_CHUNKS), ttl=url.option("ttl", int, DEFAULT_TTL_SECONDS)
    )
    try:
        yield Stores(InMemoryStateStore(), streams, InMemoryUsageStore(), InMemoryMemoryStore())
    finally:
        await streams.close()
