"""The blob checks of the kit on memory, a folder and SQLite; Redis, Postgres and Cloudflare have theirs."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, ClassVar

from helix_agents.backends.folder.blob_store import FolderBlobStore
from helix_agents.backends.inmemory.blob_store import InMemoryBlobStore
from helix_agents.backends.sql_shared.blobs.store import SqlBlobStore
from helix_agents.backends.sql_shared.schema.self_migrating import MigratedDriver
from helix_agents.backends.sqlite.driver import SqliteDriver
from helix_agents.conformance.harness import Harness
from helix_agents.conformance.pytest import conformance_tests
from helix_agents.stores.blobs.contract import BlobStore
from tests.conformance.harnesses import FileHarness


class InMemoryHarness(Harness):
    name: ClassVar[str] = "blobs in memory"

    def __init__(self) -> None:
        super().__init__()
        self._data: dict[str, Any] = {}

    async def open_blobs(self, *, max_bytes: int | None = None) -> BlobStore:
        return InMemoryBlobStore(data=self._data, **limited(max_bytes))


class FolderHarness(Harness):
    name: ClassVar[str] = "blobs in a folder"

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()

    async def open_blobs(self, *, max_bytes: int | None = None) -> BlobStore:
        return FolderBlobStore(Path(self._folder.name), **limited(max_bytes))

    async def dispose(self) -> None:
        await super().dispose()
        self._folder.cleanup()


class SqliteHarness(FileHarness):
    name: ClassVar[str] = "blobs on SQLite"
    d1_limits: ClassVar[bool] = False

    async def open_blobs(self, *, max_bytes: int | None = None) -> BlobStore:
        driver = SqliteDriver(self.path, synchronous="OFF", d1_limits=self.d1_limits)
        return SqlBlobStore(self.keep(MigratedDriver(driver, prefix="app")), prefix="app", **limited(max_bytes))


class D1LimitsHarness(SqliteHarness):
    name: ClassVar[str] = "blobs under D1's limits"
    d1_limits: ClassVar[bool] = True


def limited(max_bytes: int | None) -> dict[str, Any]:
    return {} if max_bytes is None else {"max_bytes": max_bytes}


test_in_memory = conformance_tests(InMemoryHarness)
test_folder = conformance_tests(FolderHarness)
test_sqlite = conformance_tests(SqliteHarness)
test_sqlite_under_d1_limits = conformance_tests(D1LimitsHarness)
