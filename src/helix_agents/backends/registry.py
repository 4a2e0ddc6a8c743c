"""`open_stores`: open migrated stores at an address.

A backend joins by its scheme. Ours are listed here by name and imported only when asked for, because their libraries
are optional; those of others come from the entry point group `helix_agents.backends`, whose entries are named by scheme
and point to an opener: an async context manager function from a `StoresUrl` to `Stores`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib import import_module
from importlib.metadata import entry_points
from typing import NamedTuple, cast

from ..errors import InvalidArgument
from ..stores.blobs.contract import BlobStore
from ..stores.memory.contract import MemoryStore
from ..stores.state.contract import StateStore
from ..stores.usage.contract import UsageStore
from ..streams.contract import StreamManager
from .url import StoresUrl, parse_url

ENTRY_POINTS = "helix_agents.backends"


class Stores(NamedTuple):
    """The five stores of one address."""

    state: StateStore
    streams: StreamManager
    usage: UsageStore
    memory: MemoryStore
    blobs: BlobStore


Opener = Callable[[StoresUrl], AbstractAsyncContextManager[Stores]]

_OPENERS = {
    "memory": "inmemory.opening:open_memory",
    "sqlite": "sqlite.opening:open_sqlite",
    "postgresql": "postgres.opening:open_postgres",
    "postgres": "postgres.opening:open_postgres",
    "postgresql+asyncpg": "postgres.opening:open_postgres",
    "redis": "redis.opening:open_redis",
    "rediss": "redis.opening:open_redis",
    "redis+cluster": "redis.opening:open_redis",
    "rediss+cluster": "redis.opening:open_redis",
    "valkey": "redis.opening:open_redis",
    "valkeys": "redis.opening:open_redis",
    "valkey+cluster": "redis.opening:open_redis",
    "valkeys+cluster": "redis.opening:open_redis",
    "d1": "cloudflare.opening:open_d1",
    "do": "cloudflare.opening:open_do",
}


@asynccontextmanager
async def open_stores(url: str, *, migrate: bool = True) -> AsyncIterator[Stores]:
    """Open the stores at `url`, migrated and ready; leaving closes what was opened.

    `memory:`, `sqlite:path.db`, `postgresql://...`, `redis://...`, `redis+cluster://...`; options as query parameters,
    for example `sqlite:app.db?prefix=myapp`. With `migrate=False` nothing is created or changed: where there are no
    stores yet, or older ones, that is `NotMigrated`.
    """
    parsed = parse_url(url, migrate=migrate)
    async with _opener(parsed)(parsed) as stores:
        yield stores


def schemes() -> list[str]:
    """Return the schemes that can be opened here."""
    return sorted({*_OPENERS, *(entry.name for entry in entry_points(group=ENTRY_POINTS))})


def _opener(url: StoresUrl) -> Opener:
    for entry in entry_points(group=ENTRY_POINTS, name=url.scheme):
        return cast(Opener, entry.load())
    if url.scheme not in _OPENERS:
        raise InvalidArgument(f"Unknown backend {url.scheme!r}. Known backends: {', '.join(schemes())}.")
    module, _, name = _OPENERS[url.scheme].partition(":")
    return cast(Opener, getattr(import_module(f".{module}", __package__), name))
