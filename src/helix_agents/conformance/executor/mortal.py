"""Stores that die: from the n-th call on nothing gets through, as if the process had been killed there.

The in-process equivalent of kill -9: exact, repeatable, and possible on data that lives in one process.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any, cast

from ...errors import StoreUnavailable, StreamError
from ...streams.contract import StreamWriter
from ...streams.writer import BatchingWriter
from ..harness import StoreSet
from .harness import Parts

COMMIT = "save_state_and_promote_staging"


class Died(StoreUnavailable):
    """The process is dead. Only the check may catch this."""


class Life:
    """The lifetime of a process. It dies at call `last`; with `reply_lost` that call happens, but never returns.

    With `commits` it ends right after that many commits, or calls of another verb (`of`). With `apart` its writes carry
    no chunks, as if sessions and streams were in different databases: then it may die between an end and its record.
    """

    def __init__(
        self,
        last: int | None = None,
        *,
        reply_lost: bool = False,
        commits: int | None = None,
        of: str = COMMIT,
        apart: bool = False,
    ) -> None:
        self.calls = 0
        self.apart = apart
        self._counted = of
        self.commits = commits
        self.last = last
        self.reply_lost = reply_lost
        self.writers: list[StreamWriter] = []

    @property
    def over(self) -> bool:
        """Return whether the process is dead."""
        return self.last is not None and self.calls > self.last

    def begin(self, name: str = "") -> bool:
        """Count a call and return whether its reply will be lost. Raises `Died`."""
        self.calls += 1
        if name == self._counted and self.commits is not None:
            self.commits -= 1
            if self.commits == 0:
                self.last, self.reply_lost = self.calls, True
        if self.last is None or self.calls < self.last:
            return False
        if self.calls > self.last or not self.reply_lost:
            self.calls = self.last + 1
            raise Died("dead", nothing_written=True)
        return True

    def wrap(self, stores: StoreSet) -> Parts:
        """Return the stores as the process sees them until it dies."""
        usage = None if stores.usage is None else self._wrapped(stores.usage)
        return Parts(self._wrapped(stores.state), self._wrapped(stores.streams), usage)

    async def bury(self) -> None:
        """Wait for writes that were already sent, so that none arrives later."""
        for writer in self.writers:
            try:
                await writer.flush()
            except (StreamError, StoreUnavailable):
                continue

    def _wrapped(self, inner: Any) -> Any:
        return cast(Any, _Mortal(inner, self))


class _Mortal:
    """Passes calls on until the process dies."""

    def __init__(self, inner: Any, life: Life) -> None:
        self._inner = inner
        self._life = life

    @property  # type: ignore[misc]
    def __class__(self) -> Any:  # so that isinstance() sees the store that it wraps
        return type(self._inner)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name == "carries":
            return lambda streams, usage: not self._life.apart and found(_inside(streams), _inside(usage))
        if name == "attach_writer":
            return lambda *args, **kwargs: self._tapped(found(*args, **kwargs))
        if not inspect.iscoroutinefunction(found):
            return found
        return self._guarded(found, name)

    def _tapped(self, writer: Any) -> Any:
        """Return a writer whose writes the process makes only while it lives."""
        self._life.writers.append(writer)
        if not isinstance(writer, BatchingWriter):
            return _Mortal(writer, self._life)
        writer.intercept(lambda append: self._guarded(append, "append"))
        return writer

    async def __aenter__(self) -> _Mortal:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.close()

    def _guarded(self, method: Callable[..., Any], name: str) -> Callable[..., Any]:
        async def call(*args: Any, **kwargs: Any) -> Any:
            lost = self._life.begin(name)
            answer = await method(*args, **kwargs)
            if name == "create_writer":
                answer = self._tapped(answer)
            if lost:
                self._life.begin()
            if self._life.over:
                await asyncio.sleep(0)
                raise Died("dead", nothing_written=True)
            return answer

        return call


def _inside(store: Any) -> Any:
    """Return the store that this one wraps: a state store recognizes its own backend."""
    return store.__dict__["_inner"] if type(store) is _Mortal else store
