"""How the kit opens Postgres. One database serves all checks of a run; its tables are emptied after each.

A harness serves all four contracts.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any, ClassVar

import asyncpg

from helix_agents.backends.postgres.blob_store import PostgresBlobStore
from helix_agents.backends.postgres.driver import PostgresDriver
from helix_agents.backends.postgres.memory_store import PostgresMemoryStore
from helix_agents.backends.postgres.state_store import PostgresStateStore
from helix_agents.backends.postgres.stream_manager import PostgresStreamManager
from helix_agents.backends.postgres.usage_store import PostgresUsageStore
from helix_agents.conformance.harness import Harness
from helix_agents.stores.blobs.contract import BlobStore
from helix_agents.stores.memory.contract import Embedder, MemoryStore
from helix_agents.stores.state.contract import StateStore
from helix_agents.stores.usage.contract import UsageStore
from helix_agents.streams.contract import StreamManager

NEIGHBOUR = "other_"
_fresh = count(1)


class Home:
    """The database that harnesses use: set by a fixture, or by HELIX_TEST_POSTGRES for the command line."""

    url: ClassVar[str] = os.environ.get("HELIX_TEST_POSTGRES", "")


class PostgresHarness(Harness):
    """Plain: tables without prefix in the schema `public`, a pool with plain options."""

    name: ClassVar[str] = "postgres"
    pool_options: ClassVar[dict[str, Any]] = {}
    store_options: ClassVar[dict[str, Any]] = {}
    opener: ClassVar[str] = "plain"

    def __init__(self) -> None:
        super().__init__()
        self._pools: list[asyncpg.Pool] = []
        self._opened: list[Any] = []
        self._url = Home.url

    # -- one method per contract

    async def open(self) -> StateStore:
        return self._kept(PostgresStateStore(await self._shared_pool(), **self.store_options))

    async def open_neighbour(self) -> StateStore:
        return self._kept(PostgresStateStore(await self._shared_pool(), **{**self.store_options, "prefix": NEIGHBOUR}))

    async def reopen(self) -> StateStore:
        await self._close_all()
        return await self.open()

    async def open_streams(self, **options: Any) -> StreamManager:
        return self._kept(PostgresStreamManager(await self._pool(), **self.store_options, **options))

    async def open_usage(self) -> UsageStore:
        return self._kept(PostgresUsageStore(await self._pool(), **self.store_options))

    async def open_blobs(self, *, max_bytes: int | None = None) -> BlobStore:
        limit: dict[str, Any] = {} if max_bytes is None else {"max_bytes": max_bytes}
        return self._kept(PostgresBlobStore(await self._pool(), **self.store_options, **limit))

    async def open_memory(self, *, embedder: Embedder | None = None) -> MemoryStore:
        return self._kept(PostgresMemoryStore(await self._pool(), **self.store_options, embedder=embedder))

    async def dispose(self) -> None:
        await self._close_all()
        connection = await asyncpg.connect(self._url)
        try:
            await empty(connection)
        finally:
            await connection.close()

    def child_spec(self) -> str:
        return f"{__name__}:open_state {self.opener} {self._url}"

    def stream_child_spec(self) -> str:
        return f"{__name__}:open_streams {self.opener} {self._url}"

    def fresh_child_spec(self) -> str:
        return f"{__name__}:open_fresh fresh_{next(_fresh)} {self._url}"

    # -- reading the raw data

    async def traces(self, session_id: str) -> list[str]:
        connection = await asyncpg.connect(self._url)
        try:
            found = []
            for table in await tables(connection):
                rows = await connection.fetch(f"SELECT t::text AS line FROM {table} AS t")
                found += [f"{table}: {row['line']:.200}" for row in rows if session_id in row["line"]]
            return found
        finally:
            await connection.close()

    async def stored_bytes(self) -> int:
        connection = await asyncpg.connect(self._url)
        try:
            for table in await tables(connection):
                await connection.execute(f"VACUUM (FULL) {table}")
            sizes = [
                await connection.fetchval("SELECT pg_total_relation_size($1::text::regclass)", table)
                for table in await tables(connection)
            ]
            return sum(sizes)
        finally:
            await connection.close()

    async def pretend_newer_schema(self) -> Callable[[], Awaitable[None]]:
        await self._execute_on_ledger("INSERT INTO {} VALUES (9999, 'from the future', 0)")

        async def undo() -> None:
            await self._execute_on_ledger("DELETE FROM {} WHERE version = 9999")

        return undo

    async def _execute_on_ledger(self, statement: str) -> None:
        """Run a statement on the ledger of migrations."""
        schema, prefix = self.store_options.get("schema", "public"), self.store_options.get("prefix", "")
        connection = await asyncpg.connect(self._url)
        try:
            await connection.execute(statement.format(f'"{schema}".{prefix}__agents_migrations'))
        finally:
            await connection.close()

    # -- what is open

    async def _shared_pool(self) -> asyncpg.Pool:
        """Return the pool that state stores share: some checks open dozens."""
        return self._pools[0] if self._pools else await self._pool()

    async def _pool(self) -> asyncpg.Pool:
        pool = await asyncpg.create_pool(self._url, min_size=1, max_size=6, **self.pool_options)
        self._pools.append(pool)
        return pool

    def _kept(self, store: Any) -> Any:
        self._opened.append(store)
        return store

    async def _close_all(self) -> None:
        for store in self._opened:
            await store.close()
        self._opened.clear()
        await asyncio.gather(*(pool.close() for pool in self._pools))
        self._pools.clear()


class SchemaHarness(PostgresHarness):
    """In a schema with a capital, with a prefix."""

    name: ClassVar[str] = "postgres, schema and prefix"
    store_options: ClassVar[dict[str, Any]] = {"schema": "Agents_2", "prefix": "app_"}
    opener: ClassVar[str] = "schema"


class UncachedHarness(PostgresHarness):
    """As behind a transaction-mode pooler: no prepared statement outlives its transaction."""

    name: ClassVar[str] = "postgres without statement cache"
    pool_options: ClassVar[dict[str, Any]] = {"statement_cache_size": 0}
    opener: ClassVar[str] = "uncached"


HARNESSES = {harness.opener: harness for harness in (PostgresHarness, SchemaHarness, UncachedHarness)}


async def tables(connection: asyncpg.Connection) -> list[str]:
    """Return all tables of the library, with their schemas."""
    rows = await connection.fetch(
        "SELECT format('%I.%I', schemaname, tablename) AS name FROM pg_tables "
        "WHERE tablename LIKE '%\\_\\_agents\\_%' ORDER BY 1"
    )
    return [row["name"] for row in rows if not row["name"].endswith("__agents_migrations")]


async def empty(connection: asyncpg.Connection) -> None:
    """Remove all data; drop fresh schemas."""
    found = [table for table in await tables(connection) if not table.startswith("fresh_")]
    if found:
        await connection.execute(f"TRUNCATE {', '.join(found)}")
    for row in await connection.fetch("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'fresh\\_%'"):
        await connection.execute(f"DROP SCHEMA {row['nspname']} CASCADE")


# -- what child processes of the kit call


class _OwnState(PostgresStateStore):
    async def close(self) -> None:
        await super().close()
        await self._postgres.pool.close()


async def open_state(argument: str) -> StateStore:
    opener, _, url = argument.partition(" ")
    harness = HARNESSES[opener]
    pool = await asyncpg.create_pool(url, min_size=1, max_size=4, **harness.pool_options)
    return _OwnState(pool, **harness.store_options)


async def open_fresh(argument: str) -> StateStore:
    """Return a new schema, which opening migrates."""
    schema, _, url = argument.partition(" ")
    store = _OwnState(await asyncpg.create_pool(url, min_size=1, max_size=2), schema=schema)
    await store.session_exists("nobody")
    return store


async def open_streams(argument: str) -> StreamManager:
    opener, _, url = argument.partition(" ")
    harness = HARNESSES[opener]
    pool = await asyncpg.create_pool(url, min_size=1, max_size=4, **harness.pool_options)
    return PostgresStreamManager(pool, max_chunks=0, **harness.store_options)


async def open_driver(url: str, **options: Any) -> PostgresDriver:
    """Return a driver on its own pool, for tests of the driver itself."""
    return PostgresDriver(await asyncpg.create_pool(url, min_size=1, max_size=4), **options)
