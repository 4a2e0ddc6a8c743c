"""Wakeup: notifies a process that a stream has changed. The stored rows are authoritative; a wake-up only means "check
again".

A wake-up may be late, repeated or spurious. It may even be lost if the source detects that within a second or two (a
dropped connection, a changed file) and then wakes everything with None.
"""

from __future__ import annotations

from collections.abc import Callable

Wake = Callable[[str | None], None]
"""Called in the event loop with the id of a changed stream, or None for "any stream may have changed"."""


class Wakeup:
    """The wake-up source of one manager. This class never wakes: enough where no other process can write."""

    async def start(self, wake: Wake) -> None:
        """Subscribe, once per manager, before its first reader reads a stream. Raises `StoreUnavailable`."""

    def announce(self, stream_id: str) -> None:
        """Notify other processes that this one has changed a stream. Never blocks, never raises.

        A no-op if the write itself announces the change (Redis: PUBLISH in the script).
        """

    def watch(self, stream_id: str) -> None:
        """Subscribe to a stream when its first reader attaches, for sources that subscribe by stream."""

    def unwatch(self, stream_id: str) -> None:
        """Unsubscribe from a stream when its last reader detaches."""

    async def close(self) -> None:
        """Unsubscribe and release what `start` opened."""
