"""Stores of a process that freezes at its n-th call until a check wakes it up.

Like SIGSTOP and SIGCONT within one process: exact and repeatable. With `after`, the call still happens, and the process
freezes before it gets the reply.
"""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

from ...streams.writer import BatchingWriter, Store
from ..harness import StoreSet
from .harness import Parts

Place = tuple[int, bool]
"""The number of a call, and whether the process freezes after it instead of before it."""

LONGEST_FREEZE_SECONDS = 120.0


def places(calls: int, *, seed: int, most: int) -> list[Place]:
    """Return where to freeze: before and after each call, or `most` of these positions, chosen by the seed."""
    everywhere = [(number, after) for number in range(1, calls + 1) for after in (False, True)]
    return sorted(random.Random(seed).sample(everywhere, min(len(everywhere), most)))


class Freezer:
    """Counts the calls of one process and stops it at number `at`, or at the first call of the name `on`.

    `session_id`: only calls that name this session count. `skip`: how many calls of the name `on` to let through first.
    Where the stores can, one write of the process carries chunks and usage.
    """

    def __init__(
        self, at: int = 0, *, on: str = "", after: bool = False, session_id: str | None = None, skip: int = 0
    ) -> None:
        self._skip = skip
        self.calls = 0
        self.place = ""
        """The call at which it froze."""
        self.frozen = asyncio.Event()
        self._at = at
        self._on = on
        self._after = after
        self._session_id = session_id
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Let the process continue."""
        self._woken.set()

    def wrap(self, stores: StoreSet) -> Parts:
        """Return the stores as this process sees them."""
        usage = None if stores.usage is None else self._wrapped(stores.usage)
        return Parts(self._wrapped(stores.state), self._wrapped(stores.streams), usage)

    def _wrapped(self, inner: Any) -> Any:
        return cast(Any, _Freezing(inner, self))

    async def call(self, name: str, method: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Make one call of the process."""
        counts = self._session_id is None or (bool(args) and args[0] == self._session_id)
        self.calls += counts
        named = counts and name == self._on and not self.frozen.is_set()
        here = (counts and self.calls == self._at) or (named and self._skip <= 0)
        self._skip -= named
        if here and not self._after:
            self._freeze(name)
        await self._wait()
        try:
            answer = await method(*args, **kwargs)
        finally:
            if here and self._after:
                self._freeze(f"the reply of {name}")
            await self._wait()
        return self.tap(answer) if name == "create_writer" else answer

    def tap(self, writer: Any) -> Any:
        """Count the writes of a stream's writer as calls of the process."""
        if not isinstance(writer, BatchingWriter):
            return self._wrapped(writer)

        def counted(append: Store) -> Store:
            async def of_stream(_stream_id: str, *args: Any) -> int:
                return await append(*args)

            async def call(*args: Any) -> Any:
                return await self.call("append", of_stream, (writer.stream_id, *args), {})

            return call

        writer.intercept(counted)
        return writer

    def _freeze(self, place: str) -> None:
        self.place = place
        self.frozen.set()

    async def _wait(self) -> None:
        if not self.frozen.is_set() or self._woken.is_set():
            return
        with suppress(TimeoutError):  # A check that fails in between must end, and it closes the frozen process first.
            async with asyncio.timeout(LONGEST_FREEZE_SECONDS):
                await self._woken.wait()


class _Freezing:
    """Passes calls on through the freezer."""

    def __init__(self, inner: Any, freezer: Freezer) -> None:
        self._inner = inner
        self._freezer = freezer

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name == "carries":
            return lambda streams, usage: found(_inside(streams), _inside(usage))
        if name == "attach_writer":
            return lambda *args, **kwargs: self._freezer.tap(found(*args, **kwargs))
        if not inspect.iscoroutinefunction(found):
            return found

        async def call(*args: Any, **kwargs: Any) -> Any:
            return await self._freezer.call(name, found, args, kwargs)

        return call

    async def __aenter__(self) -> _Freezing:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.close()


def _inside(store: Any) -> Any:
    """Return the store that a process would see without the freezer: a state store recognizes its own backend."""
    return store._inner if isinstance(store, _Freezing) else store
