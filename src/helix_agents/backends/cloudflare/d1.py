"""Stores on a D1 database: inside a Worker on `env.DB`, elsewhere on `BridgeD1` or `D1Rest`.

    state = D1StateStore(env.DB)

The same SQL as everywhere, as guarded batches: D1 has no interactive transactions. Create a store for each
request: requests must not wait for each other, so they must not share one in a module.
"""

from __future__ import annotations

from collections.abc import Collection
from importlib import import_module
from typing import Any, cast

from ...clock import Clock, IdSource, random_id, system_clock
from ...errors import InvalidArgument
from ...stores.blobs.base import MEGABYTE
from ...stores.memory.contract import Embedder
from ..sql_shared.beside import SqlBeside
from ..sql_shared.blobs.store import SqlBlobStore
from ..sql_shared.driver import SqlDriver
from ..sql_shared.memory.store import SqlMemoryStore
from ..sql_shared.schema.migrate import COMPACT, COMPACT_STATE, COMPACT_USAGE, FAMILIES, migrate
from ..sql_shared.schema.self_migrating import MigratedDriver
from ..sql_shared.state.store import SqlStateStore
from ..sql_shared.usage.store import SqlUsageStore

D1_FAMILIES = (FAMILIES | {COMPACT}) - {"streams"}
"""What a D1 database holds: streams live in Durable Objects."""


async def run_migration(
    database: Any, *, prefix: str = "", families: Collection[str] = D1_FAMILIES, clock: Clock = system_clock
) -> list[int]:
    """Bring the tables up to date; return the applied versions. *Idempotent*, and cheap if nothing is missing."""
    return await migrate(as_driver(database), prefix=prefix, families=families, clock=clock)


class D1StateStore(SqlStateStore):
    """StateStore on D1. `database` is `env.DB`, a `BridgeD1` or a `D1Rest`, which stays the caller's.

    The tables are created on first use; `migrated=True` promises that `run_migration` has been called.

    `session` lets D1 read from replicas, inside a Worker only: `"first-primary"`, `"first-unconstrained"`, or the
    `bookmark` of an earlier store. This store then never reads data older than its own reads and writes, but other
    processes may have written since. Writes and their guards always go to the primary database.
    """

    def __init__(
        self,
        database: Any,
        *,
        session: str | None = None,
        prefix: str = "",
        migrated: bool = False,
        clock: Clock = system_clock,
        ids: IdSource = random_id,
        beside: SqlBeside | None = None,
    ) -> None:
        """`beside`: streams and usage in the same database, for commits that carry to them."""
        self._binding = as_driver(database, session)
        driver = _ready(self._binding, prefix, COMPACT_STATE, migrated)
        super().__init__(driver, prefix=prefix, clock=clock, ids=ids, beside=beside)

    @property
    def bookmark(self) -> str | None:
        """How far this store has read, for the `session` of the next one; None without a session."""
        return getattr(self._binding, "bookmark", None)


class D1UsageStore(SqlUsageStore):
    """UsageStore on D1, like `D1StateStore`."""

    def __init__(self, database: Any, *, prefix: str = "", migrated: bool = False, clock: Clock = system_clock) -> None:
        super().__init__(_ready(database, prefix, COMPACT_USAGE, migrated), prefix=prefix, clock=clock)


class D1BlobStore(SqlBlobStore):
    """BlobStore on D1, like `D1StateStore`. Blobs are limited to 25 MB."""

    def __init__(
        self,
        database: Any,
        *,
        prefix: str = "",
        migrated: bool = False,
        max_bytes: int = 25 * MEGABYTE,
        clock: Clock = system_clock,
    ) -> None:
        super().__init__(_ready(database, prefix, {"blobs"}, migrated), prefix=prefix, max_bytes=max_bytes, clock=clock)


class D1MemoryStore(SqlMemoryStore):
    """MemoryStore on D1, with full-text search, like `D1StateStore`."""

    def __init__(
        self,
        database: Any,
        *,
        prefix: str = "",
        migrated: bool = False,
        embedder: Embedder | None = None,
        min_similarity: float = 0.0,
        clock: Clock = system_clock,
        ids: IdSource = random_id,
    ) -> None:
        driver = _ready(database, prefix, {"memory"}, migrated)
        super().__init__(driver, prefix=prefix, embedder=embedder, min_similarity=min_similarity, clock=clock, ids=ids)


def as_driver(database: Any, session: str | None = None) -> SqlDriver:
    """Return a driver unchanged; return a driver for a binding of a Worker."""
    if hasattr(database, "dialect"):
        if session is not None:
            raise InvalidArgument("session= needs env.DB, inside a Worker: only the binding has D1 sessions.")
        return cast(SqlDriver, database)
    try:  # imported only where there is a binding, because JavaScript's modules exist nowhere else
        bindings = import_module(".bindings", __package__)
    except ModuleNotFoundError as missing:
        raise InvalidArgument(
            f"A {type(database).__name__} is not a D1 database. Inside a Worker pass env.DB; outside a Worker pass a "
            "BridgeD1 or a D1Rest, or use open_stores('d1://...')."
        ) from missing
    return cast(SqlDriver, bindings.D1Binding(database, session=session))


def _ready(database: Any, prefix: str, families: Collection[str], migrated: bool) -> SqlDriver:
    driver = as_driver(database)
    return driver if migrated else MigratedDriver(driver, prefix=prefix, families=families)
