"""The stores on SQLite: one file, any number of processes. See docs/sqlite.md."""

from __future__ import annotations

from .backends.sqlite.blob_store import SqliteBlobStore
from .backends.sqlite.memory_store import SqliteMemoryStore
from .backends.sqlite.state_store import SqliteStateStore
from .backends.sqlite.stream_manager import SqliteStreamManager
from .backends.sqlite.usage_store import SqliteUsageStore

__all__ = ["SqliteBlobStore", "SqliteMemoryStore", "SqliteStateStore", "SqliteStreamManager", "SqliteUsageStore"]
