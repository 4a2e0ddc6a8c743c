"""What the stream checks need to know of a backend: how to open it again and again on the same data.

Written by whoever brings a backend; nothing in here may import one.
"""

from __future__ import annotations

from typing import Any, Protocol

from ...streams.contract import StreamManager
from ..options import Options
from ..registry import Registry


class StreamHarness(Protocol):
    """One empty home of streams, made anew for every check."""

    options: Options

    async def open_streams(self, **options: Any) -> StreamManager:
        """A new manager on the same data, as another process would have it; `dispose` closes it.

        `options` are `max_chunks`, `ttl` and `clock`, as every manager takes them.
        """

    async def dispose(self) -> None:
        """Close every manager and remove the data."""

    def stream_child_spec(self) -> str | None:
        """`"module:callable argument"`: `await callable(argument)` opens a manager in a child process.

        None where the data lives in one process.
        """


STREAM_MANAGER: Registry[StreamHarness] = Registry()
"""Every check of the StreamManager contract."""
