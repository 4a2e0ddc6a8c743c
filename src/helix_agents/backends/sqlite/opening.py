"""`sqlite:path.db`, all stores in one file over one connection."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

from ...errors import InvalidArgument
from ...streams.base import DEFAULT_MAX_CHUNKS, DEFAULT_TTL_SECONDS
from ..registry import Stores
from ..sql.memory_store import SqlMemoryStore
from ..sql.migrate import migrate
from ..sql.usage_store import SqlUsageStore
from ..url import StoresUrl
from .driver import SqliteDriver, Synchronous
from .state_store import SqliteStateStore
from .stream_manager import SqliteStreamManager


@asynccontextmanager
async def open_sqlite(url: StoresUrl) -> AsyncIterator[Stores]:
    """Options: prefix (of tables), synchronous (FULL, NORMAL, OFF), max_chunks, ttl (of streams, in seconds)."""
    url.only({"prefix", "synchronous", "max_chunks", "ttl"})
    # sqlite:path.db and sqlite://path.db are relative, sqlite:/path.db and sqlite:///path.db absolute.
    path = url.place.removeprefix("//")
    if not path:
        raise InvalidArgument(f"{url.text}: which file? Write for example sqlite:helix.db.")
    synchronous = url.option("synchronous", str, "FULL").upper()
    if synchronous not in ("FULL", "NORMAL", "OFF"):
        raise InvalidArgument(f"{url.text}: synchronous is FULL, NORMAL or OFF, not {synchronous}.")
    prefix = url.option("prefix", str, "")
    driver = SqliteDriver(path, synchronous=cast(Synchronous, synchronous))
    streams = SqliteStreamManager(
        path,
        prefix=prefix,
        driver=driver,
        max_chunks=url.option("max_chunks", int, DEFAULT_MAX_CHUNKS),
        ttl=url.option("ttl", int, DEFAULT_TTL_SECONDS),
    )
    try:
        await migrate(driver, prefix=prefix)
        yield Stores(
            SqliteStateStore(path, prefix=prefix, driver=driver),
            streams,
            SqlUsageStore(driver, prefix=prefix),
            SqlMemoryStore(driver, prefix=prefix),
        )
    finally:
        await streams.close()
        await driver.close()
