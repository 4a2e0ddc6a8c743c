"""Wakeup: how a process learns that a stream has changed. Rows are the truth; a wake-up only says "look again".

A wake-up may come late, twice or for nothing. It may even be lost, if the source notices on its own within a second or
two that something has happened (a dropped connection, a changed file) and then wakes everything with None.
"""

from __future__ import annotations

from collections.abc import Callable

Wake = Callable[[str | None], None]
"""Called in the event loop with the id of a changed stream, or None for "any stream may have changed"."""


class Wakeup:
    """The wake-up source of one manager. This one never wakes: enough where no other process can write."""

    async def start(self, wake: Wake) -> None:
        """Subscribe, once per manager, before its first reader looks at a stream. Raises `StoreUnavailable`."""

    def announce(self, stream_id: str) -> None:
        """Tell other processes that this one has changed a stream. Never blocks, never raises.

        Nothing to do where the write itself announces (Redis: PUBLISH in the script).
        """

    def watch(self, stream_id: str) -> None:
        """The first reader of this stream has come; for sources that must name what they listen to."""

    def unwatch(self, stream_id: str) -> None:
        """The last reader of this stream has gone."""

    async def close(self) -> None:
        """Unsubscribe and release what `start` took."""
