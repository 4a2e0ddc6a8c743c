"""How the kit opens our own backends. Data is created for every check and removed after it."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import ClassVar

from helix_agents.backends.inmemory.sessions import Sessions
from helix_agents.backends.inmemory.state_store import InMemoryStateStore
from helix_agents.backends.sql_shared.state.planned_commit import PlannedCommits
from helix_agents.backends.sqlite.state_store import SqliteStateStore
from helix_agents.conformance.harness import Harness
from helix_agents.conformance.state.model.store import ModelStore
from helix_agents.stores.state.contract import StateStore
from helix_agents.stores.state.delegating import DelegatingStateStore


class MemoryHarness(Harness):
    """Data lives in one process; "reopening" is a new store object on it."""

    name: ClassVar[str] = "memory"

    def __init__(self) -> None:
        super().__init__()
        self.data = Sessions()

    async def open(self) -> StateStore:
        return InMemoryStateStore(self.data)

    async def written_bytes(self, act: Callable[[], Awaitable[object]]) -> int:
        """Return the size of the strings that exist only afterwards, compared by identity."""
        before = {id(text): text for text in _texts(self.data)}
        await act()
        return sum(len(text) for text in _texts(self.data) if id(text) not in before)


def _texts(value: object) -> Iterator[str]:
    """Yield every string inside a value."""
    if isinstance(value, str):
        yield value
        return
    if isinstance(value, dict):
        below: Iterable[object] = [*value.keys(), *value.values()]
    elif isinstance(value, list | tuple | set | frozenset):
        below = value
    else:
        fields = getattr(value, "__struct_fields__", None) or getattr(value, "__slots__", None)
        names = fields if fields is not None else getattr(value, "__dict__", {})
        below = [getattr(value, name, None) for name in names]
    for each in below:
        if each is not None and not isinstance(each, int | float | type):
            yield from _texts(each)


class DelegatingHarness(MemoryHarness):
    """A store that passes everything on to another one."""

    name: ClassVar[str] = "delegating"

    async def open(self) -> StateStore:
        return DelegatingStateStore(await super().open())


class ModelHarness(MemoryHarness):
    """The model itself: it must pass the checks that it is the oracle for."""

    name: ClassVar[str] = "model"

    def __init__(self) -> None:
        super().__init__()
        self.model = ModelStore()

    async def open(self) -> StateStore:
        return self.model


async def open_sqlite(path: str) -> StateStore:
    """Return how a child process opens the data of `SqliteHarness`."""
    return SqliteStateStore(path, synchronous="OFF")


async def open_sqlite_d1(path: str) -> StateStore:
    """Return how a child process opens the data of `D1LimitsHarness`."""
    return SqliteStateStore(path, synchronous="OFF", d1_limits=True)


class FileHarness(Harness):
    """One file in its own directory."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="helix-conformance-"))
        self.path = self.directory / "data.db"

    async def dispose(self) -> None:
        await super().dispose()
        shutil.rmtree(self.directory)


class SqliteHarness(FileHarness):
    """State stores on one file."""

    name: ClassVar[str] = "sqlite"
    d1_limits: ClassVar[bool] = False
    opener: ClassVar[str] = "open_sqlite"

    def __init__(self) -> None:
        super().__init__()
        self._fresh = count(1)

    async def open(self) -> StateStore:
        return self.keep(SqliteStateStore(self.path, synchronous="OFF", d1_limits=self.d1_limits))

    async def open_neighbour(self) -> StateStore:
        return self.keep(SqliteStateStore(self.path, synchronous="OFF", d1_limits=self.d1_limits, prefix="other_"))

    def child_spec(self) -> str:
        return f"{__name__}:{self.opener} {self.path}"

    def fresh_child_spec(self) -> str:
        return f"{__name__}:{self.opener} {self.directory / f'fresh-{next(self._fresh)}.db'}"

    async def traces(self, session_id: str) -> list[str]:
        with closing(sqlite3.connect(self.path)) as connection:
            tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE '%fts5%'")
            return [
                f"{table}: {row!r:.200}"
                for (table,) in tables.fetchall()
                for row in connection.execute(f'SELECT * FROM "{table}"')
                if any(session_id in str(value) for value in row)
            ]

    async def stored_bytes(self) -> int:
        with closing(sqlite3.connect(self.path)) as connection:
            size, pages, free = (
                connection.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("page_size", "page_count", "freelist_count")
            )
            return int(size * (pages - free))

    async def written_bytes(self, act: Callable[[], Awaitable[object]]) -> int:
        """Return the pages that are written to the log, which is empty before."""
        self._execute("PRAGMA wal_checkpoint(TRUNCATE)")
        await act()
        return self._log_size()

    def _log_size(self) -> int:
        log = Path(f"{self.path}-wal")
        return log.stat().st_size if log.exists() else 0

    async def pretend_newer_schema(self) -> Callable[[], Awaitable[None]]:
        self._execute("INSERT INTO __agents_migrations VALUES (9999, 'from the future', 0)")

        async def undo() -> None:
            self._execute("DELETE FROM __agents_migrations WHERE version = 9999")

        return undo

    def _execute(self, statement: str) -> None:
        with closing(sqlite3.connect(self.path)) as connection:
            connection.execute(statement)
            connection.commit()


class D1LimitsHarness(SqliteHarness):
    """SQLite that rejects what Cloudflare D1 would reject."""

    name: ClassVar[str] = "sqlite under D1's limits"
    d1_limits: ClassVar[bool] = True
    opener: ClassVar[str] = "open_sqlite_d1"


class DurableObjectStore(SqliteStateStore):
    """Reads and writes as in a Durable Object: inside a transaction, with few parameters and short values."""

    def __init__(self, path: str | Path, *, prefix: str = "") -> None:
        super().__init__(path, prefix=prefix, synchronous="OFF", d1_limits=True)
        self._commits = PlannedCommits(prefix, max_parameters=100, max_value_bytes=2_000)


class DurableObjectLimitsHarness(SqliteHarness):
    """Planned commits under the limits of a Durable Object, and a far lower one for the row of a checkpoint."""

    name: ClassVar[str] = "sqlite under a Durable Object's limits"

    async def open(self) -> StateStore:
        return self.keep(DurableObjectStore(self.path))
