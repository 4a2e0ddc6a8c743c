"""The stores in memory: complete and fast; the data is gone when the process ends."""

from __future__ import annotations

from .backends.inmemory.blob_store import InMemoryBlobStore
from .backends.inmemory.memory_store import InMemoryMemoryStore
from .backends.inmemory.state_store import InMemoryStateStore
from .backends.inmemory.stream_manager import InMemoryStreamManager
from .backends.inmemory.usage_store import InMemoryUsageStore

__all__ = [
    "InMemoryBlobStore",
    "InMemoryMemoryStore",
    "InMemoryStateStore",
    "InMemoryStreamManager",
    "InMemoryUsageStore",
]
