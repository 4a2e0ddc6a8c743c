"""Limits on connections, which uvicorn lacks: how many there may be, and how long one may take to send its headers.

Neither needs a user: any client that can reach the port could otherwise use up the process's file descriptors.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

if sys.platform != "win32":
    import resource

HEADER_SECONDS = 15.0
MAX_CONNECTIONS = 10_000
SPARE_FILES = 128
"""File descriptors that stay free for stores and files."""


class GuardedConnection(H11Protocol):
    """One connection. h11, since httptools accepts headers of any length."""

    header_seconds = HEADER_SECONDS
    _deadline: asyncio.TimerHandle | None = None
    _is_websocket = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection, unless there are too many."""
        super().connection_made(transport)
        if len(self.connections) > max_connections():
            transport.abort()
        else:
            self._expect_headers()

    def data_received(self, data: bytes) -> None:
        """Pass data on. The first bytes of another request start its deadline."""
        super().data_received(data)
        self._expect_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the deadline with the connection."""
        self._stop_waiting()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Start the next deadline only with the next request: between requests, uvicorn's keep-alive timeout
        applies."""
        super().on_response_complete()
        self._expect_headers()

    def handle_websocket_upgrade(self, event: Any) -> None:
        """Stop the deadline: from here on, WebSocket pings detect a dead connection."""
        self._is_websocket = True
        self._stop_waiting()
        super().handle_websocket_upgrade(event)

    def _expect_headers(self) -> None:
        """Start the deadline while no request is complete, and stop it once one is."""
        in_progress = self.cycle is not None and not self.cycle.response_complete
        if in_progress or self._is_websocket or self.transport.is_closing():
            self._stop_waiting()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(self.header_seconds, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def max_connections() -> int:
    """Return how many connections this process accepts: what its file descriptors allow, up to a fixed limit."""
    if sys.platform == "win32":
        return MAX_CONNECTIONS
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_CONNECTIONS if files == resource.RLIM_INFINITY else min(MAX_CONNECTIONS, max(files - SPARE_FILES, 1))
