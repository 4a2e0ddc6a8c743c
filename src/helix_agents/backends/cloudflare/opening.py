"""`d1://` and `do://`: stores on Cloudflare for Python that runs elsewhere.

- `d1://:TOKEN@bridge.example.workers.dev/DB`: state, usage and memory in the D1 database that the bridge calls DB.
- `d1://:TOKEN@ACCOUNT_ID/DATABASE_ID`: everything in D1 through Cloudflare's own API. Nothing has to be deployed, but
  stream readers poll.
- `do://:TOKEN@bridge.example.workers.dev/NAME`: state, usage and memory in the Durable Object of that name.

Behind a bridge every stream is a Durable Object of its own. Without a token in the address HELIX_CLOUDFLARE_TOKEN is
used.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from ...errors import InvalidArgument
from ..registry import Stores
from ..sql_shared.beside import SqlBeside
from ..sql_shared.blobs.store import SqlBlobStore
from ..sql_shared.driver import SqlDriver
from ..sql_shared.memory.store import SqlMemoryStore
from ..sql_shared.schema.migrate import FAMILIES, ensure_migrated, migrate
from ..sql_shared.state.store import SqlStateStore
from ..sql_shared.streams.manager import SqlStreamManager
from ..sql_shared.usage.store import SqlUsageStore
from ..url import STREAM_OPTIONS, StoresUrl, StreamRetention, as_bool
from .bridge import Bridge, BridgeD1, BridgeObject
from .d1 import D1_FAMILIES
from .http import TIMEOUT_SECONDS
from .polling import Polling
from .rest import D1Rest
from .streams import DurableObjectStreamManager

TOKEN_VARIABLE = "HELIX_CLOUDFLARE_TOKEN"
OPTIONS = frozenset({"prefix", "timeout_seconds", "tls"}) | STREAM_OPTIONS
READ_EVERY_SECONDS = 1.0

_ACCOUNT = re.compile(r"[0-9a-f]{32}")
_LOOPBACK = ("127.0.0.1", "localhost", "::1")

MAX_BLOB_BYTES = 25_000_000


class _Place(NamedTuple):
    """A parsed address."""

    host: str
    base: str
    token: str
    name: str
    prefix: str
    timeout_seconds: float
    of_streams: StreamRetention
    shown: str
    migrate: bool

    async def prepare(self, home: SqlDriver, families: Collection[str]) -> None:
        """Create the tables, or check that they exist."""
        if self.migrate:
            await migrate(home, prefix=self.prefix, families=families)
        else:
            await ensure_migrated(home, self.shown, prefix=self.prefix, families=families)


@asynccontextmanager
async def open_d1(url: StoresUrl) -> AsyncIterator[Stores]:
    """Options: prefix (of tables), timeout_seconds, tls (true or false), and those of streams."""
    place = _place(url, "d1://:TOKEN@bridge.example.workers.dev/DB or d1://:TOKEN@ACCOUNT_ID/DATABASE_ID")
    if _ACCOUNT.fullmatch(place.host):
        async with _open_rest(place) as stores:
            yield stores
        return
    async with _open_bridge(place) as bridge, _stores(place, bridge, BridgeD1(bridge, place.name)) as stores:
        yield stores


@asynccontextmanager
async def open_do(url: StoresUrl) -> AsyncIterator[Stores]:
    """Options: prefix (of tables), timeout_seconds, tls (true or false), and those of streams."""
    place = _place(url, "do://:TOKEN@bridge.example.workers.dev/NAME")
    async with _open_bridge(place) as bridge:
        async with _stores(place, bridge, BridgeObject(bridge, f"object:{place.name}")) as stores:
            yield stores


@asynccontextmanager
async def _open_bridge(place: _Place) -> AsyncIterator[Bridge]:
    bridge = Bridge(place.base, place.token, timeout_seconds=place.timeout_seconds)
    try:
        yield bridge
    finally:
        await bridge.close()


@asynccontextmanager
async def _stores(place: _Place, bridge: Bridge, home: SqlDriver) -> AsyncIterator[Stores]:
    async with AsyncExitStack() as stack:
        stack.push_async_callback(home.close)
        await place.prepare(home, D1_FAMILIES)
        streams = DurableObjectStreamManager(bridge, prefix=f"{place.name}:{place.prefix}", **place.of_streams)
        stack.push_async_callback(streams.close)
        yield _on(home, streams, place.prefix)


@asynccontextmanager
async def _open_rest(place: _Place) -> AsyncIterator[Stores]:
    async with AsyncExitStack() as stack:
        home = D1Rest(place.host, place.name, place.token, timeout_seconds=place.timeout_seconds)
        stack.push_async_callback(home.close)
        await place.prepare(home, FAMILIES | D1_FAMILIES)
        streams = SqlStreamManager(home, prefix=place.prefix, wakeup=Polling(READ_EVERY_SECONDS), **place.of_streams)
        stack.push_async_callback(streams.close)
        yield _on(home, streams, place.prefix)


def _on(home: SqlDriver, streams: SqlStreamManager, prefix: str) -> Stores:
    usage = SqlUsageStore(home, prefix=prefix)
    # Streams in objects of their own are out of a batch's reach: they are written before and after it.
    beside = SqlBeside(streams, usage) if streams.driver is home else None
    return Stores(
        SqlStateStore(home, prefix=prefix, beside=beside),
        streams,
        usage,
        SqlMemoryStore(home, prefix=prefix),
        SqlBlobStore(home, prefix=prefix, max_bytes=MAX_BLOB_BYTES),
    )


def _place(url: StoresUrl, example: str) -> _Place:
    url.only(OPTIONS)
    url.ensure_server()
    parts = urlsplit(f"//{url.place.removeprefix('//')}")
    name, host = unquote(parts.path.strip("/")), parts.hostname or ""
    if not host or not name:
        raise InvalidArgument(f"An address for {url.scheme} looks like {example}.")
    token = unquote(parts.password or parts.username or "") or os.environ.get(TOKEN_VARIABLE, "")
    if not token:
        raise InvalidArgument(f"{url.scheme}://{host}/{name}: no token. Put it into the address or {TOKEN_VARIABLE}.")
    tls = url.option("tls", as_bool, host not in _LOOPBACK)
    return _Place(
        host,
        f"{'https' if tls else 'http'}://{parts.netloc.rpartition('@')[2]}",
        token,
        name,
        url.option("prefix", str, ""),
        url.option("timeout_seconds", float, TIMEOUT_SECONDS),
        url.stream_retention(),
        url.shown,
        url.migrate,
    )
