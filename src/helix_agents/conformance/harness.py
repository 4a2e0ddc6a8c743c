"""What the kit needs to know about a backend: how to open it, reopen it and remove it.

You write one `Harness` for your backend, with a method for every contract that it implements; the kit owns its data
during one check. Nothing in here may import a backend. Hooks that return None by default describe what not every
backend has (a schema, a second process, another application in the same database); checks that need one report `n/a`
without it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, ClassVar, Protocol, TypeVar

from ..stores.blobs.contract import BlobStore
from ..stores.memory.contract import Embedder, MemoryStore
from ..stores.state.contract import StateStore
from ..stores.usage.contract import UsageStore
from ..streams.contract import StreamManager
from .options import Options
from .registry import Registry

STATE_STORE: Registry[Harness] = Registry()
"""Every check of the StateStore contract."""


class Closable(Protocol):
    """A store that a harness opens and closes."""

    async def close(self) -> None:
        """Release what the store has opened."""


Opened = TypeVar("Opened", bound=Closable)


class StoreSet(Protocol):
    """The stores that an executor works on; `Stores` is one."""

    @property
    def state(self) -> StateStore:
        """The sessions."""
        ...

    @property
    def streams(self) -> StreamManager:
        """The streams."""
        ...

    @property
    def usage(self) -> UsageStore | None:
        """The usage entries, if they are kept."""
        ...


async def readers(harness: Harness, store: StateStore) -> AsyncIterator[StateStore]:
    """Yield three stores on the same data: the one that wrote it, another object, and one after a restart."""
    yield store
    yield await harness.open()
    yield await harness.reopen()


class Harness:
    """Empty storage for one check; the kit calls the class without arguments for each.

    Override at least one of `open`, `open_streams`, `open_usage`, `open_memory`, `open_blobs` and `open_stores`:
    those that you override decide which contracts are checked.
    """

    name: ClassVar[str] = "store"

    declared: ClassVar[frozenset[str]] = frozenset()
    """Names of checks that this backend is known to fail; the kit reports an error if one passes. Aim for none."""

    def __init__(self) -> None:
        self.options = Options()
        self._open: list[Closable] = []

    # -- one method per contract

    async def open(self) -> StateStore:
        """Return a new state store on the same data, as another process would open it, migrated and ready."""
        raise NotImplementedError

    async def open_streams(self, **options: Any) -> StreamManager:
        """Return a new stream manager on the same data, as another process would open it.

        `options` are `max_chunks`, `ttl` and `clock`, which every manager takes.
        """
        raise NotImplementedError

    async def open_usage(self) -> UsageStore:
        """Return a usage store on the same data."""
        raise NotImplementedError

    async def open_memory(self, *, embedder: Embedder | None = None) -> MemoryStore:
        """Return a memory store on the same data."""
        raise NotImplementedError

    async def open_blobs(self, *, max_bytes: int | None = None) -> BlobStore:
        """Return a blob store on the same data with the limit `max_bytes`."""
        raise NotImplementedError

    async def open_stores(self) -> StoreSet:
        """Return a new set of stores on the same data: the library's executor is checked on it, crashes included."""
        raise NotImplementedError

    # -- the end

    def keep(self, opened: Opened) -> Opened:
        """Record an opened store, so that `reopen` and `dispose` close it."""
        self._open.append(opened)
        return opened

    async def close_all(self) -> None:
        """Close everything that `keep` recorded."""
        opened, self._open = self._open, []
        for each in opened:
            await each.close()

    async def reopen(self) -> StateStore:
        """Close every store opened so far and open another, which sees only what survives a restart."""
        await self.close_all()
        return await self.open()

    async def dispose(self) -> None:
        """Close everything and remove the data. Override it to remove data on a disk or a server."""
        await self.close_all()

    # -- other processes

    def child_spec(self) -> str | None:
        """Return `"module:callable argument"`: `await callable(argument)` opens a state store in a child process.

        None where the data lives in one process.
        """
        return None

    def fresh_child_spec(self) -> str | None:
        """Like `child_spec`, for new data on every call, so that opening it has to migrate."""
        return None

    def stream_child_spec(self) -> str | None:
        """Like `child_spec`, for a stream manager without a limit on chunks."""
        return None

    def stores_child_spec(self) -> str | None:
        """Like `child_spec`, for a set of stores: `async with callable(argument) as stores`."""
        return None

    # -- behind the stores

    async def open_neighbour(self) -> StateStore | None:
        """Return a store of another application that shares the server or the file (prefix, schema); None if
        impossible."""
        return None

    async def traces(self, session_id: str) -> list[str] | None:
        """Return where the raw data (tables, keys) still mentions this string; None if it cannot be searched."""
        return None

    async def stored_bytes(self) -> int | None:
        """Return how many bytes the data takes up; None if unknown."""
        return None

    async def written_bytes(self, act: Callable[[], Awaitable[object]]) -> int | None:
        """Run the action and return about how many bytes the backend wrote; None, without running it, if unknown."""
        return None

    async def pretend_newer_schema(self) -> Callable[[], Awaitable[None]]:
        """Mark the data as written by a newer version of the library; return a function that undoes this.

        Raises `NotImplementedError` where there is no schema.
        """
        raise NotImplementedError
