"""Running the app in this process: uvicorn with a graceful stop, and the search for runs whose process died.

Several such processes may share one backend; each lost run is taken up by one of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import signal
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator

import uvicorn
from starlette.applications import Starlette

from ..errors import HelixError, InvalidArgument
from ..executor import AgentExecutor

logger = logging.getLogger("helix_agents.server")

GRACE_SECONDS = 5
RECOVER_AT_ONCE = 100
MAX_WEBSOCKET_MESSAGE = 65_536
REFUSED_HANDSHAKE = "ASGI callable returned without completing handshake."
"""What uvicorn logs as an error for each WebSocket that is refused with a response, which is nothing unusual."""


class Server(uvicorn.Server):
    """uvicorn's server, except that open streams end when a stop begins instead of holding it up."""

    def __init__(self, config: uvicorn.Config, stop_streams: Callable[[], None]) -> None:
        super().__init__(config)
        self._stop_streams = stop_streams

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop at SIGINT and SIGTERM. uvicorn would raise the signal again, and kill us before runs are handed over."""
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
        self._stop_streams()
        await super().shutdown(sockets)


async def serve(
    app: Starlette,
    executor: AgentExecutor,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    recover: bool = True,
    on_ready: Callable[[str], None] = lambda address: None,
) -> None:
    """Serve until SIGINT or SIGTERM. `port=0` takes a free one; `on_ready` is told the address."""
    listener = _listen(host, port)
    bound = listener.getsockname()[1]
    config = uvicorn.Config(
        app,
        http="h11",  # httptools, which uvicorn prefers where it is installed, takes headers of any length
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
        ws_max_size=MAX_WEBSOCKET_MESSAGE,
        ws_ping_interval=15.0,
        ws_per_message_deflate=False,
        server_header=False,
    )
    logging.getLogger("uvicorn.error").addFilter(_is_worth_logging)
    server = Server(config, app.state.desk.stop)
    name = f"[{host}]" if ":" in host else host
    async with _recovering(executor) if recover else contextlib.nullcontext():
        on_ready(f"http://{name}:{bound}")
        await server.serve(sockets=[listener])


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_worth_logging(record: logging.LogRecord) -> bool:
    return record.msg != REFUSED_HANDSHAKE


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(2048)
    except OSError as error:
        listener.close()
        raise InvalidArgument(f"Cannot listen on {host}:{port}: {error.strerror}. Choose another --port.") from error
    listener.setblocking(False)
    return listener


@contextlib.asynccontextmanager
async def _recovering(executor: AgentExecutor) -> AsyncIterator[None]:
    task = asyncio.create_task(_recover_for_ever(executor), name="helix-recover")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _recover_for_ever(executor: AgentExecutor) -> None:
    while True:
        try:
            for handle in await executor.recover():
                logger.info("Took up session %s.", handle.session_id)
        except HelixError as error:
            logger.warning("Cannot look for lost runs now: %s", error)
        await asyncio.sleep(executor.services.lease_seconds / 2)
