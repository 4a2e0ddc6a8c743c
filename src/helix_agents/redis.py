"""The stores on Redis or Valkey, one server or a cluster, on a client of yours.

Needs the extra `redis`. See docs/redis.md.
"""

from __future__ import annotations

from .backends.redis.blob_store import RedisBlobStore
from .backends.redis.memory_store import RedisMemoryStore
from .backends.redis.sessions.store import RedisStateStore
from .backends.redis.stream_manager import RedisStreamManager
from .backends.redis.usage_store import RedisUsageStore

__all__ = ["RedisBlobStore", "RedisMemoryStore", "RedisStateStore", "RedisStreamManager", "RedisUsageStore"]
