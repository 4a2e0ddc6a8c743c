"""Running the app in this process: uvicorn with a graceful stop and limits on connections.

Several such processes may share one backend. What the app itself needs (recovery, the end of streams) is in its
lifespan, so that it works under any ASGI server.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterator

import uvicorn

from ..errors import InvalidArgument
from ..safe_text import get_logger
from .app import HelixApp
from .connections import GuardedConnection

logger = get_logger("helix_agents.server")

GRACE_SECONDS = 5
MAX_WEBSOCKET_MESSAGE = 65_536
BACKLOG = 2048
REJECTED_HANDSHAKE = "ASGI callable returned without completing handshake."
CUT_RESPONSE = "ASGI callable returned without completing response."
"""What uvicorn logs as errors for a rejected WebSocket and for a client that stalled; neither is unusual."""


class Server(uvicorn.Server):
    """uvicorn for one app: ends open streams when it stops, and does not raise the signal again that stopped it."""

    def __init__(self, app: HelixApp) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=GuardedConnection,
                lifespan="on",
                log_level="warning",
                access_log=False,
                timeout_graceful_shutdown=GRACE_SECONDS,
                ws_max_size=MAX_WEBSOCKET_MESSAGE,
                ws_ping_interval=15.0,
                ws_per_message_deflate=False,
                server_header=False,
            )
        )
        self._stop_streams = app.context.occupancy.stop_streams
        logging.getLogger("uvicorn.error").addFilter(_is_worth_logging)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop at SIGINT and SIGTERM. uvicorn would raise the signal again and kill us before runs are handed over."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop; open streams must not delay it."""
        self._stop_streams()
        await super().shutdown(sockets)


async def serve(
    app: HelixApp,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    on_ready: Callable[[str], None] = lambda address: None,
) -> None:
    """Serve until SIGINT or SIGTERM. `port=0` uses a free one; `on_ready` is called with the address."""
    listener = listen(host, port)
    name = f"[{host}]" if ":" in host else host
    on_ready(f"http://{name}:{listener.getsockname()[1]}")
    await Server(app).serve(sockets=[listener])


def _is_worth_logging(record: logging.LogRecord) -> bool:
    return record.msg not in (REJECTED_HANDSHAKE, CUT_RESPONSE)


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises `InvalidArgument` if the address cannot be used."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With its protocol named: asyncio then sets TCP_NODELAY on every connection it accepts.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise InvalidArgument(f"Cannot listen on {host}:{port}: {error.strerror}. Choose another --port.") from error
    listener.setblocking(False)
    return listener
