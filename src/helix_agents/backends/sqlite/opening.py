"""`sqlite:path.db`, all stores in one file over one connection."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import cast

from ...errors import InvalidArgument, NotMigrated
from ..registry import Stores
from ..sql_shared.beside import SqlBeside
from ..sql_shared.blobs.store import SqlBlobStore
from ..sql_shared.memory.store import SqlMemoryStore
from ..sql_shared.queries import with_prefix
from ..sql_shared.schema.migrate import LEDGER, ensure_migrated, known_migrations, migrate
from ..sql_shared.usage.store import SqlUsageStore
from ..url import STREAM_OPTIONS, StoresUrl
from .driver import SqliteDriver, Synchronous
from .state_store import SqliteStateStore
from .stream_manager import SqliteStreamManager

OPTIONS = frozenset({"prefix", "synchronous"}) | STREAM_OPTIONS


@asynccontextmanager
async def open_sqlite(url: StoresUrl) -> AsyncIterator[Stores]:
    """Open the stores. Options: prefix (of tables), synchronous (FULL, NORMAL, OFF), and those of streams."""
    url.only(OPTIONS)
    # sqlite:path.db and sqlite://path.db are relative, sqlite:/path.db and sqlite:///path.db absolute.
    path = url.place.removeprefix("//")
    if not path:
        raise InvalidArgument("A SQLite address must name a file, for example sqlite:helix.db.")
    if url.place.startswith("//") and re.match(r"[^/]*:[^/]*@", path):
        raise InvalidArgument("A SQLite address has no user or host, only a file, for example sqlite:helix.db.")
    synchronous = url.option("synchronous", str, "FULL").upper()
    if synchronous not in ("FULL", "NORMAL", "OFF"):
        raise InvalidArgument(f"Invalid option synchronous={synchronous!r}: expected FULL, NORMAL or OFF.")
    prefix = url.option("prefix", str, "")
    if not url.migrate and not await asyncio.to_thread(_has_ledger, path, with_prefix(LEDGER, prefix)):
        raise NotMigrated(url.shown, 0, known_migrations("sqlite")[-1].version)
    driver = SqliteDriver(path, synchronous=cast(Synchronous, synchronous))
    streams = SqliteStreamManager(path, prefix=prefix, driver=driver, **url.stream_retention())
    try:
        if url.migrate:
            await migrate(driver, prefix=prefix)
        else:
            await ensure_migrated(driver, url.shown, prefix=prefix)
        usage = SqlUsageStore(driver, prefix=prefix)
        yield Stores(
            SqliteStateStore(path, prefix=prefix, driver=driver, beside=SqlBeside(streams, usage)),
            streams,
            usage,
            SqlMemoryStore(driver, prefix=prefix),
            SqlBlobStore(driver, prefix=prefix),
        )
    finally:
        await streams.close()
        await driver.close()


def _has_ledger(path: str, ledger: str) -> bool:
    """Return whether there is a file with our stores. The driver cannot check: it would create a file in WAL mode."""
    if not Path(path).is_file():
        return False
    try:
        with closing(sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode=ro", uri=True)) as connection:
            found = connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (ledger,))
            return found.fetchone() is not None
    except sqlite3.Error:
        return True  # whatever it is, the driver says it in our words
