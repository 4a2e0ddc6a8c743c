"""`redis://`, `rediss://`, `valkey://` and `redis+cluster://`, all stores on one client of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from urllib.parse import urlencode

from ...errors import InvalidArgument
from ...streams.base import DEFAULT_MAX_CHUNKS, DEFAULT_TTL_SECONDS
from ..registry import Stores
from ..url import StoresUrl
from .connection import Client, TranslatedErrors, client_from_url
from .memory_store import RedisMemoryStore
from .read_verbs import DEFAULT_TTL_SECONDS as SESSION_TTL_SECONDS
from .state_store import RedisStateStore
from .stream_manager import RedisStreamManager
from .usage_store import RedisUsageStore

OPTIONS = {"prefix", "ttl", "stream_ttl", "max_chunks"}

CLIENT_OPTIONS = {
    "client_name",
    "db",
    "health_check_interval",
    "max_connections",
    "password",
    "protocol",
    "retry_on_timeout",
    "socket_connect_timeout",
    "socket_keepalive",
    "socket_timeout",
    "ssl_ca_certs",
    "ssl_ca_data",
    "ssl_ca_path",
    "ssl_cert_reqs",
    "ssl_certfile",
    "ssl_check_hostname",
    "ssl_keyfile",
    "username",
}
"""redis-py's: what it can be told in an address."""


@asynccontextmanager
async def open_redis(url: StoresUrl) -> AsyncIterator[Stores]:
    """Options: prefix, ttl (of sessions, seconds), stream_ttl (of streams, seconds), max_chunks."""
    url.only(OPTIONS | CLIENT_OPTIONS)
    url.ensure_server()
    prefix = url.option("prefix", str, "agent")
    async with AsyncExitStack() as opened:
        # Each is closed from the moment it is there: what comes after it may refuse its options.
        client = _client(url)
        opened.push_async_callback(client.aclose)
        streams = RedisStreamManager(
            client,
            prefix,
            url.option("stream_ttl", int, DEFAULT_TTL_SECONDS),
            url.option("max_chunks", int, DEFAULT_MAX_CHUNKS),
        )
        stores = Stores(
            RedisStateStore(client, prefix, url.option("ttl", int, SESSION_TTL_SECONDS)),
            streams,
            RedisUsageStore(client, prefix),
            RedisMemoryStore(client, prefix),
        )
        for store in stores:
            opened.push_async_callback(store.close)
        try:
            with TranslatedErrors(f"opening {url.shown}"):
                await client.ping()
        except (TypeError, ValueError) as error:  # redis-py looks at some options only when it connects
            raise _refused(url, error) from None
        yield stores


def _client(url: StoresUrl) -> Client:
    others = urlencode({name: value for name, value in url.options.items() if name not in OPTIONS})
    scheme = url.scheme.replace("valkey", "redis")
    try:
        return client_from_url(f"{scheme}:{url.place}" + (f"?{others}" if others else ""))
    except (TypeError, ValueError) as error:
        raise _refused(url, error) from None


def _refused(url: StoresUrl, error: Exception) -> InvalidArgument:
    """Without the cause: it may quote the address with its password."""
    return InvalidArgument(f"{url.shown} cannot be opened: {url.without_secrets(error)}")
