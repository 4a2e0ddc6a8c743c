"""`redis://`, `rediss://` and `redis+cluster://`, all stores on one client of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlencode

from ...streams.base import DEFAULT_MAX_CHUNKS, DEFAULT_TTL_SECONDS
from ..registry import Stores
from ..url import StoresUrl
from .connection import TranslatedErrors, client_from_url
from .memory_store import RedisMemoryStore
from .read_verbs import DEFAULT_TTL_SECONDS as SESSION_TTL_SECONDS
from .state_store import RedisStateStore
from .stream_manager import RedisStreamManager
from .usage_store import RedisUsageStore

OPTIONS = {"prefix", "ttl", "stream_ttl", "max_chunks"}
"""Ours; all other parameters of the address (socket_timeout, ssl_ca_certs, protocol, ...) are redis-py's."""


@asynccontextmanager
async def open_redis(url: StoresUrl) -> AsyncIterator[Stores]:
    """Options: prefix, ttl (of sessions, seconds), stream_ttl (of streams, seconds), max_chunks."""
    others = urlencode({name: value for name, value in url.options.items() if name not in OPTIONS})
    client = client_from_url(f"{url.scheme}:{url.place}" + (f"?{others}" if others else ""))
    prefix = url.option("prefix", str, "agent")
    stores = Stores(
        RedisStateStore(client, prefix, url.option("ttl", int, SESSION_TTL_SECONDS)),
        RedisStreamManager(
            client,
            prefix,
            url.option("stream_ttl", int, DEFAULT_TTL_SECONDS),
            url.option("max_chunks", int, DEFAULT_MAX_CHUNKS),
        ),
        RedisUsageStore(client, prefix),
        RedisMemoryStore(client, prefix),
    )
    try:
        with TranslatedErrors(f"opening {url.scheme}:{url.place.rpartition('@')[2]}"):
            await client.ping()
        yield stores
    finally:
        for store in stores:
            await store.close()
        await client.aclose()
