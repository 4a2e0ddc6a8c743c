"""Migrate a Postgres database: one process does it, the others wait, and none sees a partial migration.

All steps and the batch functions are one transaction under an advisory lock that ends with it, so nothing is left
locked or half done whatever happens, also behind a pooler and also inside a transaction of the caller. A look without
a lock comes first: a process that finds everything there needs no right to create anything.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import asyncpg

from ...errors import NotMigrated, SchemaTooNew, StoreError
from ..sql_shared.driver import Dialect, Row, Statement
from ..sql_shared.queries import with_prefix
from ..sql_shared.schema.migrate import known_migrations, migrate
from .commit_call import CommitFunction
from .dialect import checked_schema, numbered, qualified, quoted
from .driver_errors import FORBIDDEN, raise_translated
from .functions import BatchFunction, ServerFunction
from .joint_call import JointFunction

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

    AnyConnection = asyncpg.Connection[asyncpg.Record] | PoolConnectionProxy[asyncpg.Record]

FILES = (
    ("state/queries", "state"),
    ("streams/stream_queries", "stream"),
    ("usage/usage_queries", "usage"),
    ("memory/memory_queries", "memory"),
    ("blobs/blob_queries", "blobs"),
)
"""The files of statements, each with the label of its batch function."""


class Found(NamedTuple):
    """The tables and functions that a database already has."""

    versions: list[int]
    functions: frozenset[str]


def batch_functions(schema: str | None, prefix: str) -> list[BatchFunction]:
    """Return the functions that this version of the library calls, one for each file of statements."""
    return [
        BatchFunction(file, label, schema=schema, prefix=prefix, own_writes=label == "state") for file, label in FILES
    ]


def server_functions(schema: str | None, prefix: str) -> list[ServerFunction]:
    """Return all functions that this version of the library calls."""
    batches, commit = batch_functions(schema, prefix), CommitFunction(schema=schema, prefix=prefix)
    return [*batches, commit, joint_function(batches, commit, schema, prefix)]


def joint_function(
    batches: Sequence[BatchFunction], commit: CommitFunction, schema: str | None, prefix: str
) -> JointFunction:
    """Return the function that commits with chunks and usage."""
    by_label = dict(zip([label for _, label in FILES], batches, strict=True))
    return JointFunction(commit, by_label["stream"], by_label["usage"], schema=schema, prefix=prefix)


async def migrate_postgres(connection: AnyConnection, *, schema: str | None = None, prefix: str = "") -> list[int]:
    """Bring tables and functions up to date; return the versions that this call applied. Raises `SchemaTooNew`.

    Works on a connection of the caller, also inside a transaction: then everything happens at its commit.
    """
    try:
        async with connection.transaction():
            return await _migrate(connection, checked_schema(schema), prefix)
    except Exception as error:
        raise_translated(error)


async def prepare_database(
    connection: AnyConnection,
    functions: Sequence[ServerFunction],
    *,
    schema: str | None,
    prefix: str,
    only_look_at: str | None = None,
) -> frozenset[str]:
    """Check the database, and migrate it if something is missing; return the names of its batch functions.

    With `only_look_at`, the address for people, nothing is changed: missing tables are `NotMigrated`.
    """
    async with connection.transaction():
        found = await _look(connection, functions, schema, prefix)
    if only_look_at is not None and not _has_all_tables(found):
        raise NotMigrated(only_look_at, max(found.versions, default=0), known_migrations("postgres")[-1].version)
    if only_look_at is not None or _is_complete(found, functions):
        return found.functions
    try:
        async with connection.transaction():
            await _migrate(connection, schema, prefix)
    except asyncpg.InsufficientPrivilegeError:
        if not _has_all_tables(found):
            raise
    async with connection.transaction():
        return (await _look(connection, functions, schema, prefix)).functions


async def _migrate(connection: AnyConnection, schema: str | None, prefix: str) -> list[int]:
    digest = hashlib.blake2b(f"helix_agents {schema or ''} {prefix}".encode(), digest_size=8).digest()
    await connection.execute(f"SELECT pg_advisory_xact_lock({int.from_bytes(digest, 'big', signed=True)})")
    await _ensure_schema(connection, schema)
    functions = server_functions(schema, prefix)
    found = await _look(connection, functions, schema, prefix)
    applied = [] if _has_all_tables(found) else await migrate(_InTransaction(connection, schema), prefix=prefix)
    for function in functions:
        if function.name not in found.functions:
            await _create(connection, function)
    return applied


async def _ensure_schema(connection: AnyConnection, schema: str | None) -> None:
    if schema is None or await connection.fetchval("SELECT to_regnamespace($1::text) IS NOT NULL", quoted(schema)):
        return  # asking for one that exists would still need the right to create
    try:
        async with connection.transaction():
            await connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(schema)}")
    except asyncpg.InsufficientPrivilegeError as error:
        raise StoreError(
            f"There is no schema {schema!r} and this role may not create it: run `CREATE SCHEMA {quoted(schema)}` "
            "as its owner and grant CREATE and USAGE on it."
        ) from error


async def _create(connection: AnyConnection, function: ServerFunction) -> None:
    try:
        async with connection.transaction():
            await function.create(connection)
    except asyncpg.PostgresError as error:
        if error.sqlstate != FORBIDDEN:
            raise


async def _look(
    connection: AnyConnection, functions: Sequence[ServerFunction], schema: str | None, prefix: str
) -> Found:
    ledger = qualified(with_prefix("__agents_migrations", prefix), schema)
    names = [name for function in functions for name in function.function_names]
    row = await connection.fetchrow(
        "SELECT to_regclass($1::text) IS NOT NULL, ARRAY(SELECT to_regproc(name) IS NOT NULL "
        "FROM unnest($2::text[]) AS t (name))",
        ledger,
        [qualified(name, schema) for name in names],
    )
    there, present = row or (False, [])
    found = {name for name, here in zip(names, present, strict=True) if here}
    versions = [row[0] for row in await connection.fetch(f"SELECT version FROM {ledger} ORDER BY 1")] if there else []
    newest = known_migrations("postgres")[-1].version
    if versions and versions[-1] > newest:
        raise SchemaTooNew(versions[-1], newest)
    return Found(versions, frozenset(each.name for each in functions if found.issuperset(each.function_names)))


def _has_all_tables(found: Found) -> bool:
    return {each.version for each in known_migrations("postgres")} <= set(found.versions)


def _is_complete(found: Found, functions: Sequence[ServerFunction]) -> bool:
    return _has_all_tables(found) and all(function.name in found.functions for function in functions)


class _InTransaction:
    """`SqlDriver` on one connection whose transaction is open: a batch is a savepoint."""

    def __init__(self, connection: AnyConnection, schema: str | None) -> None:
        self._connection = connection
        self._schema = schema

    @property
    def dialect(self) -> Dialect:
        return "postgres"

    @property
    def max_parameter_bytes(self) -> int:
        return 100_000_000

    async def batch(self, statements: Sequence[Statement], *, read_only: bool = False) -> list[list[Row]]:
        async with self._connection.transaction():
            return [
                [tuple(row) for row in await self._connection.fetch(self._text(statement), *statement.params)]
                for statement in statements
            ]

    async def close(self) -> None:
        """Do nothing: the connection belongs to the caller."""

    def _text(self, statement: Statement) -> str:
        return numbered(qualified(statement.sql, self._schema))
