"""Wakeup: how a process learns that a stream has changed. The stored rows are authoritative; a wake-up only says "check
again".

A wake-up may be late, repeated or spurious. It may even be lost if the source detects that within a second or two (a
dropped connection, a changed file) and then wakes everything with None.
"""

from __future__ import annotations

from collections.abc import Callable

Wake = Callable[[str | None], None]
"""Called in the event loop with the id of a changed stream, or None for "any stream may have changed"."""


class Wakeup:
    """The wake-up source of one manager. This one never wakes: enough where no other process can write."""

    async def start(self, wake: Wake) -> None:
        """Subscribe, once per manager, before its first reader reads a stream. Raises `StoreUnavailable`."""

    def announce(self, stream_id: str) -> None:
        """Tell other processes that this one has changed a stream. Never blocks, never raises.

        A no-op if the write itself announces the change (Redis: PUBLISH in the script).
        """

    def watch(self, stream_id: str) -> None:
        """Called for the first reader of a stream; for sources that subscribe by stream."""

    def unwatch(self, stream_id: str) -> None:
        """Called when the last reader of a stream has gone."""

    async def close(self) -> None:
        """Unsubscribe and release what `start` took."""
