"""`memory:`, stores that live as long as they are open."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ..registry import Stores
from ..url import STREAM_OPTIONS, StoresUrl
from .blob_store import InMemoryBlobStore
from .memory_store import InMemoryMemoryStore
from .state_store import InMemoryBeside, InMemoryStateStore
from .stream_manager import InMemoryStreamManager
from .usage_store import InMemoryUsageStore

OPTIONS = STREAM_OPTIONS


@asynccontextmanager
async def open_memory(url: StoresUrl) -> AsyncIterator[Stores]:
    """Open stores in memory. Options: those of streams."""
    url.only(OPTIONS)
    streams = InMemoryStreamManager(**url.stream_retention())
    try:
        usage = InMemoryUsageStore()
        state = InMemoryStateStore(beside=InMemoryBeside(streams, usage))
        yield Stores(state, streams, usage, InMemoryMemoryStore(), InMemoryBlobStore())
    finally:
        await streams.close()
