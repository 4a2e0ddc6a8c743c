"""How the kit opens Redis: every check gets its own prefix on a server that all checks share."""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any, ClassVar

import redis
from redis.asyncio import Redis, RedisCluster

from helix_agents.backends.redis.blob_store import RedisBlobStore
from helix_agents.backends.redis.memory_store import RedisMemoryStore
from helix_agents.backends.redis.sessions.store import RedisStateStore
from helix_agents.backends.redis.stream_manager import RedisStreamManager
from helix_agents.backends.redis.usage_store import RedisUsageStore
from helix_agents.conformance.harness import Harness
from helix_agents.stores.blobs.contract import BlobStore
from helix_agents.stores.memory.contract import Embedder, MemoryStore
from helix_agents.stores.state.contract import StateStore
from helix_agents.stores.usage.contract import UsageStore
from helix_agents.streams.contract import StreamManager

_numbers = count(1)


def new_prefix() -> str:
    """Return an unused prefix."""
    return f"kit-{os.getpid()}-{next(_numbers)}"


def client_for(url: str, *, decode: bool = False, **options: Any) -> Any:
    """Return a client of the caller's own, as a user would make it."""
    if url.startswith("redis+cluster://"):
        return RedisCluster.from_url(url.replace("redis+cluster", "redis"), decode_responses=decode, **options)
    return Redis.from_url(url, decode_responses=decode, **options)


async def open_state_store(argument: str) -> StateStore:
    """Return how a child process opens the data of a `RedisHarness`."""
    made = json.loads(argument)
    return RedisStateStore(client_for(made["url"], decode=made["decode"]), prefix=made["prefix"])


class RedisHarness(Harness):
    """All stores on one server or a cluster. Subclasses made by `harness_for` say where."""

    name: ClassVar[str] = "redis"
    url: ClassVar[str] = ""
    decode: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()
        self.prefix = new_prefix()
        self._clients: list[Any] = []

    # -- one method per contract

    async def open(self) -> StateStore:
        return self.keep(RedisStateStore(self._client(), prefix=self.prefix))

    async def open_neighbour(self) -> StateStore:
        return self.keep(RedisStateStore(self._client(), prefix=f"{self.prefix}x"))

    async def open_streams(self, **options: Any) -> StreamManager:
        return self.keep(RedisStreamManager(self._client(), prefix=self.prefix, **options))

    async def open_usage(self) -> UsageStore:
        return self.keep(RedisUsageStore(self._client(), prefix=self.prefix))

    async def open_blobs(self, *, max_bytes: int | None = None) -> BlobStore:
        limit: dict[str, Any] = {} if max_bytes is None else {"max_bytes": max_bytes}
        return self.keep(RedisBlobStore(self._client(), prefix=self.prefix, **limit))

    async def open_memory(self, *, embedder: Embedder | None = None) -> MemoryStore:
        return self.keep(RedisMemoryStore(self._client(), prefix=self.prefix, embedder=embedder))

    def _client(self) -> Any:
        self._clients.append(client_for(self.url, decode=self.decode))
        return self._clients[-1]

    async def close_all(self) -> None:
        await super().close_all()
        for client in self._clients:
            await client.aclose()
        self._clients.clear()

    async def dispose(self) -> None:
        await super().dispose()
        forget_prefix(self.url, self.prefix)

    def child_spec(self) -> str:
        made = {"url": self.url, "decode": self.decode, "prefix": self.prefix}
        return f"{__name__}:open_state_store {json.dumps(made)}"

    def stream_child_spec(self) -> str:
        made = {"url": self.url, "decode": self.decode, "prefix": self.prefix}
        return f"{__name__}:open_stream_manager {json.dumps(made)}"

    async def traces(self, session_id: str) -> list[str]:
        return [found for client in administrators(self.url) for found in _mentions(client, self.prefix, session_id)]

    async def stored_bytes(self) -> int:
        total = 0
        for client in administrators(self.url):
            with client:
                for key in client.scan_iter(match=f"{self.prefix}*", count=1000):
                    total += client.memory_usage(key, samples=0) or 0
        return total

    async def written_bytes(self, act: Callable[[], Awaitable[object]]) -> int:
        """Return how many bytes were sent to the servers."""
        before = self._received()
        await act()
        return self._received() - before

    def _received(self) -> int:
        total = 0
        for client in administrators(self.url):
            with client:
                total += int(client.info("stats")["total_net_input_bytes"])
        return total


def forget_prefix(url: str, prefix: str) -> None:
    """Remove every key of a check."""
    for client in administrators(url):
        with client:
            for key in client.scan_iter(match=f"{prefix}*", count=1000):
                client.unlink(key)


def administrators(url: str) -> list[redis.Redis]:
    """Blocking clients without a password for every server behind a URL."""
    if not url.startswith("redis+cluster://"):
        return [redis.Redis.from_url(url)]
    with redis.RedisCluster.from_url(url.replace("redis+cluster", "redis")) as cluster:
        return [redis.Redis(host=node.host, port=node.port) for node in cluster.get_primaries()]


def _mentions(client: redis.Redis, prefix: str, text: str) -> list[str]:
    found = []
    wanted = text.encode()
    with client:
        for key in client.scan_iter(match=f"{prefix}*", count=1000):
            if wanted in key or wanted in _content(client, key):
                found.append(key.decode())
    return found


def _content(client: redis.Redis, key: bytes) -> bytes:
    readers: dict[Any, Any] = {
        b"string": lambda: client.get(key),
        b"hash": lambda: client.hgetall(key),
        b"list": lambda: client.lrange(key, 0, -1),
        b"set": lambda: client.smembers(key),
        b"zset": lambda: client.zrange(key, 0, -1),
        b"stream": lambda: client.xrange(key),
    }
    return repr(readers[client.type(key)]()).encode()


def harness_for(url: str, *, decode: bool = False) -> type[RedisHarness]:
    """Return a harness class for one server or cluster."""
    return type("RedisHarnessAt", (RedisHarness,), {"url": url, "decode": decode, "name": f"redis {url}"})


async def open_stream_manager(argument: str) -> StreamManager:
    """Return how a child process opens the data of a `RedisHarness`."""
    made = json.loads(argument)
    return RedisStreamManager(client_for(made["url"], decode=made["decode"]), prefix=made["prefix"], max_chunks=0)
