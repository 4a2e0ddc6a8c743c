"""What the kit needs to know of a store: how to open it, how to open it again, and how to be rid of it.

You write one `Harness` for your backend; the kit then owns the data behind it for the length of one check. Nothing in
here may import a backend. Hooks with a default answer of None describe what not every backend has (a schema, a second
process, another application in the same database); checks that need one say `n/a` without it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import ClassVar

from ..stores.state.contract import StateStore
from .options import Options
from .registry import Registry

STATE_STORE: Registry[Harness] = Registry()
"""Every check of the StateStore contract."""


async def readers(harness: Harness, store: StateStore) -> AsyncIterator[StateStore]:
    """Every way to see the same data: the store that wrote it, another object, and one after a restart."""
    yield store
    yield await harness.open()
    yield await harness.reopen()


class Harness(ABC):
    """One empty home of data, made anew for every check."""

    name: ClassVar[str] = "store"

    declared: ClassVar[frozenset[str]] = frozenset()
    """Names of checks that this backend is known not to pass; they must then fail. Aim for none."""

    def __init__(self) -> None:
        self.options = Options()

    @abstractmethod
    async def open(self) -> StateStore:
        """A new store object on the same data, as another process would have it, migrated and ready."""

    @abstractmethod
    async def reopen(self) -> StateStore:
        """Close every store opened so far and open one anew: what survives a restart."""

    @abstractmethod
    async def dispose(self) -> None:
        """Close everything and remove the data."""

    def child_spec(self) -> str | None:
        """`"module:callable argument"`: `await callable(argument)` opens the same data in a child process.

        None where the data lives in one process.
        """
        return None

    async def open_neighbour(self) -> StateStore | None:
        """A store of another application that shares the server or the file (prefix, schema); None if impossible."""
        return None

    async def traces(self, session_id: str) -> list[str] | None:
        """Where the raw data (tables, keys) still mentions this text; None if it cannot be looked into."""
        return None

    async def stored_bytes(self) -> int | None:
        """How many bytes the data takes; None if unknown."""
        return None

    def fresh_child_spec(self) -> str | None:
        """Like `child_spec`, for data never opened before, so that opening it has to migrate; other data every call."""
        return None

    async def pretend_newer_schema(self) -> Callable[[], Awaitable[None]]:
        """Mark the data as written by a newer version of the library; answer how to undo that.

        Raises `NotImplementedError` where there is no schema.
        """
        raise NotImplementedError
