"""`redis://`, `rediss://`, `valkey://` and `redis+cluster://`, all stores on one client of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from urllib.parse import urlencode, urlsplit, urlunsplit

from redis.asyncio import Redis, RedisCluster

from ...errors import InvalidArgument
from ..registry import Stores
from ..url import STREAM_OPTIONS, StoresUrl
from .blob_store import RedisBlobStore
from .client.connection import Client
from .client.driver_errors import TranslatedErrors
from .memory_store import RedisMemoryStore
from .sessions.carrying import RedisBeside
from .sessions.expiry import SESSION_TTL_SECONDS
from .sessions.store import RedisStateStore
from .stream_manager import RedisStreamManager
from .usage_store import RedisUsageStore

OPTIONS = {"prefix", "session_ttl_seconds"} | STREAM_OPTIONS

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
"""Options of redis-py that an address may have."""


@asynccontextmanager
async def open_redis(url: StoresUrl) -> AsyncIterator[Stores]:
    """Open the stores. Options: prefix, session_ttl_seconds, and those of streams."""
    url.only(OPTIONS | CLIENT_OPTIONS)
    url.ensure_server()
    prefix = url.option("prefix", str, "agent")
    async with AsyncExitStack() as opened:
        # Each is closed from the moment it is there: what comes after it may refuse its options.
        client = _client(url)
        opened.push_async_callback(client.aclose)
        ttl = url.option("session_ttl_seconds", int, SESSION_TTL_SECONDS)
        beside = RedisBeside(
            RedisStreamManager(client, prefix=prefix, **url.stream_retention()), RedisUsageStore(client, prefix=prefix)
        )
        stores = Stores(
            RedisStateStore(client, prefix=prefix, ttl=ttl, beside=beside),
            *beside,
            RedisMemoryStore(client, prefix=prefix),
            RedisBlobStore(client, prefix=prefix),
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
    """Return the error without its cause, which may quote the address with its password."""
    return InvalidArgument(f"{url.shown} cannot be opened: {url.without_secrets(error)}")


def client_from_url(url: str, **options: Any) -> Client:
    """Return a client for `redis://`, `rediss://`, `redis+cluster://` or `rediss+cluster://`; the caller closes it."""
    parts = urlsplit(url)
    scheme, _, kind = parts.scheme.partition("+")
    if scheme not in ("redis", "rediss") or kind not in ("", "cluster"):
        raise InvalidArgument(
            f"A Redis URL must start with redis://, rediss:// or redis+cluster://, not with {parts.scheme}://."
        )
    plain = urlunsplit(parts._replace(scheme=scheme))
    try:
        return (RedisCluster if kind == "cluster" else Redis).from_url(plain, **options)
    except (ValueError, TypeError) as error:
        raise InvalidArgument(f"The Redis URL for {parts.hostname} cannot be used: {error}") from error
