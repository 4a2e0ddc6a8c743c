"""`postgresql://user@host/database`, all stores on one pool of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import asyncpg

from ...errors import HelixError, InvalidArgument
from ..registry import Stores
from ..sql_shared.beside import SqlBeside
from ..url import STREAM_OPTIONS, StoresUrl, as_bool
from .blob_store import PostgresBlobStore
from .driver import PostgresDriver
from .driver_errors import raise_translated
from .memory_store import PostgresMemoryStore
from .state_store import PostgresStateStore
from .stream_manager import PostgresStreamManager
from .usage_store import PostgresUsageStore

OPTIONS = {
    "schema",
    "prefix",
    "pool_size",
    "command_timeout_seconds",
    "transaction_pooler",
    "listen_dsn",
    *STREAM_OPTIONS,
}
"""Our own options; all other parameters of the address (sslmode, application_name, ...) belong to asyncpg."""

POOL_SIZE = 10
COMMAND_TIMEOUT_SECONDS = 60.0
STATEMENT_CACHE_SIZE = 100


class QuietConnection(asyncpg.Connection[asyncpg.Record] if TYPE_CHECKING else asyncpg.Connection):  # type: ignore[misc]
    """A connection of a pool that only this library uses: there is nothing to reset, so releasing it costs no query."""

    def get_reset_query(self) -> str:
        return ""


@asynccontextmanager
async def open_postgres(url: StoresUrl) -> AsyncIterator[Stores]:
    """Open the stores. Options: schema, prefix (of tables), pool_size, command_timeout_seconds, transaction_pooler=1
    (there is a pooler in transaction mode in between), listen_dsn (an address that bypasses it), and those of
    streams."""
    url.ensure_server()
    async with AsyncExitStack() as opened:
        # Each is closed from the moment it is there: what comes after it may refuse its options.
        pool = await _open_pool(url)
        opened.push_async_callback(pool.close)
        driver = PostgresDriver(
            pool,
            schema=url.option("schema", _name, None),
            prefix=url.option("prefix", str, ""),
            transaction_pooler=url.option("transaction_pooler", as_bool, False),
        )
        opened.push_async_callback(driver.close)
        direct = None if driver.transaction_pooler else _dsn(url)
        streams = PostgresStreamManager(
            pool,
            driver=driver,
            listen_dsn=url.option("listen_dsn", _name, direct),
            **url.stream_retention(),
        )
        opened.push_async_callback(streams.close)
        if url.migrate:
            await driver.prepare()
        else:
            await driver.ensure_prepared(url.shown)
        usage = PostgresUsageStore(pool, driver=driver)
        yield Stores(
            PostgresStateStore(pool, driver=driver, beside=SqlBeside(streams, usage)),
            streams,
            usage,
            PostgresMemoryStore(pool, driver=driver),
            PostgresBlobStore(pool, driver=driver),
        )


async def _open_pool(url: StoresUrl) -> Any:
    pooler = url.option("transaction_pooler", as_bool, False)
    try:
        return await asyncpg.create_pool(
            _dsn(url),
            min_size=1,
            max_size=url.option("pool_size", int, POOL_SIZE),
            command_timeout=url.option("command_timeout_seconds", float, COMMAND_TIMEOUT_SECONDS),
            connection_class=QuietConnection,
            statement_cache_size=0 if pooler else STATEMENT_CACHE_SIZE,
        )
    except HelixError:
        raise
    except (ValueError, TypeError) as error:
        # Without the cause: it may quote the address with its password.
        raise InvalidArgument(f"{url.shown} cannot be opened: {url.without_secrets(error)}.") from None
    except asyncpg.UndefinedObjectError as error:
        known = ", ".join(sorted(OPTIONS))
        raise InvalidArgument(
            f"{url.shown} cannot be opened: {error}. Known options: {known}, and those of asyncpg and the server."
        ) from error
    except Exception as error:
        raise_translated(error)


def _dsn(url: StoresUrl) -> str:
    """Return the address as asyncpg understands it, without our own options."""
    others = urlencode({name: value for name, value in url.options.items() if name not in OPTIONS})
    return f"postgresql:{url.place}" + (f"?{others}" if others else "")


def _name(text: str) -> str | None:
    return text or None
