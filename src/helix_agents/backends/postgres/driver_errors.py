"""Translate errors of asyncpg, the server and the network into outcomes or the library's errors."""

from __future__ import annotations

from typing import NoReturn

import asyncpg

from ...errors import HelixError, InvalidArgument, StoreCorrupt, StoreError, StoreUnavailable
from ..sql_shared.driver import BatchRefused

RETRYABLE = ("40001", "40P01")
"""Serialization failure and deadlock: the server has undone everything, so the same batch may be sent again."""

LOST_STATEMENT = ("26000", "42P05")
"""The prepared statement belongs to another server connection: there is a transaction-mode pooler in between."""

NO_FUNCTION = "42883"
NO_TABLE = "42P01"
FORBIDDEN = "42501"

_NOT_NOW = frozenset({"08", "53", "55", "57", "58", "40", "25"})
"""Classes of SQLSTATE that are temporary: connection, resources, object state, operator, system, rollback,
read-only."""

_NO_ROOM = "Check free disk space."
"""The server's hint when a file cannot grow. Where a quota is the reason, the SQLSTATE is only `XX000`."""

_GUARD = "guard_"


def is_lost_connection(error: BaseException) -> bool:
    """Return whether the connection broke, so that it is unknown whether the batch has happened."""
    if isinstance(error, asyncpg.PostgresError):
        return isinstance(error, asyncpg.PostgresConnectionError) or error.sqlstate in ("57P01", "57P02", "57P03")
    return isinstance(error, asyncpg.InterfaceError | asyncpg.InternalClientError | OSError)


def raise_translated(error: Exception) -> NoReturn:
    """Raise the corresponding outcome or error of the library; the original is its cause."""
    if isinstance(error, HelixError | BatchRefused):
        raise error
    raise _translate(error) from error


def _translate(error: Exception) -> Exception:
    if isinstance(error, asyncpg.PostgresError):
        return _of_server(error)
    if isinstance(error, asyncpg.InterfaceError | asyncpg.InternalClientError):
        return StoreUnavailable(f"The connection to Postgres cannot be used: {error}. Try again.")
    if isinstance(error, TimeoutError):
        return StoreUnavailable("Postgres did not respond in time, so a write may or may not be stored. Try again.")
    if isinstance(error, OSError):
        return StoreUnavailable(
            f"Postgres cannot be reached: {error}. Check that it runs and that the address is right."
        )
    return StoreError(f"Postgres: {type(error).__name__}: {error}")


def _of_server(error: asyncpg.PostgresError) -> Exception:
    state = error.sqlstate or ""
    name = getattr(error, "constraint_name", None) or ""
    if isinstance(error, asyncpg.CheckViolationError) and name.startswith(_GUARD):
        return BatchRefused(name.removeprefix(_GUARD))
    if isinstance(error, asyncpg.UniqueViolationError):
        return BatchRefused(f"unique {getattr(error, 'table_name', None)}")
    if state == FORBIDDEN:
        return StoreError(
            f"Postgres denied access: {error}. Grant the role this privilege, or migrate with another role."
        )
    if state == NO_TABLE:
        return StoreError(f"Postgres: {error}. Run `helix migrate` on this database, or check schema and prefix.")
    if type(error) is asyncpg.DataError or state in ("22021", "22P05"):
        return InvalidArgument(f"Postgres cannot hold this value: {error}")
    if state == "XX001" or state == "XX002":
        return StoreCorrupt(f"Postgres found damaged data: {error}. Restore from a backup.")
    if state in LOST_STATEMENT:
        return StoreUnavailable(
            f"Postgres: {error}. A transaction-mode pooler seems to be in use: give the pool statement_cache_size=0 "
            "and the store transaction_pooler=True."
        )
    if state[:2] in _NOT_NOW or getattr(error, "hint", None) == _NO_ROOM:
        return StoreUnavailable(f"Postgres cannot do this now: {error}. Try again.")
    return StoreError(f"Postgres: {error} ({state})")
