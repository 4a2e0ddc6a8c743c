"""The stores on Postgres, on an asyncpg pool of yours. Needs the extra `postgres`. See docs/postgres.md."""

from __future__ import annotations

from .backends.postgres.blob_store import PostgresBlobStore
from .backends.postgres.memory_store import PostgresMemoryStore
from .backends.postgres.state_store import PostgresStateStore
from .backends.postgres.stream_manager import PostgresStreamManager
from .backends.postgres.usage_store import PostgresUsageStore

__all__ = [
    "PostgresBlobStore",
    "PostgresMemoryStore",
    "PostgresStateStore",
    "PostgresStreamManager",
    "PostgresUsageStore",
]
