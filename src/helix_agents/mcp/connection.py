"""A connection to an MCP server: one owner task opens and closes it, any task calls through it.

The client library ties a connection to the task that opened it, so that task does nothing else. A connection that is
lost is opened again at the next call, with a pause that grows; a command that keeps dying is not restarted for some
time. `toolset.py` interprets the calls.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any, TypeVar, cast

from ..errors import HelixError, ToolsUnavailable
from ..retry import RECONNECT
from .asking import Asking

try:
    import anyio
    import httpx2
    import mcp
    from mcp.client.stdio import stdio_client
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared._httpx_utils import create_mcp_http_client
    from mcp.types import ToolListChangedNotification
except ImportError as error:  # pragma: no cover - depends on the installation
    raise ImportError("MCP needs the package mcp: pip install 'helix-agents[mcp]'") from error

logger = logging.getLogger("helix_agents.mcp")
T = TypeVar("T")

MAX_OPENINGS_A_MINUTE = 4
"""A server that is lost more often is not opened again until the minute is over."""
CLOSE_SECONDS = 10.0
"""How long closing a server that does not respond may take."""
MAX_LOGGED_LINE = 2_000
_CONNECTION_CLOSED = -32000
_FAILURES: tuple[type[Exception], ...] = (
    OSError,
    mcp.MCPError,
    anyio.ClosedResourceError,
    anyio.BrokenResourceError,
    anyio.EndOfStream,
    httpx2.TransportError,
)


class ConnectionLost(HelixError):
    """The connection broke during a call, so it is unknown whether the server executed it."""


class Connection:
    """The connection to one server, for all tasks of one event loop."""

    def __init__(self, server: Server, *, open_seconds: float) -> None:
        self._server = server
        self._open_seconds = open_seconds
        self._opening = asyncio.Lock()
        self._owner: asyncio.Task[None] | None = None
        self._client: mcp.Client | None = None
        self._closing = asyncio.Event()
        self._opened_at: deque[float] = deque(maxlen=MAX_OPENINGS_A_MINUTE)
        self.asking = Asking()
        """The calls in progress, for what the server asks during them."""
        self.tools_changed = True
        """Whether the list of tools must be read again: at first, after a reconnect and when the server says so."""

    async def call(self, work: Callable[[mcp.Client], Awaitable[T]]) -> T:
        """Do `work` with the client. Raises `ToolsUnavailable` if the server cannot be reached, `ConnectionLost`."""
        client, owner = await self._ready()
        job = asyncio.ensure_future(work(client))
        try:
            await asyncio.wait({job, owner}, return_when=asyncio.FIRST_COMPLETED)
            if job.done():
                return job.result()
            raise ConnectionLost(f"{self._server} closed the connection during a call.")
        except TimeoutError:
            raise  # the caller's own limit, which is an OSError too
        except _FAILURES as error:
            if not _is_lost(error, owner):
                raise
            await self.close()
            raise ConnectionLost(f"The connection to {self._server} was lost during a call: {error}") from error
        finally:
            if not job.done():
                job.cancel()
                await asyncio.gather(job, return_exceptions=True)

    async def close(self) -> None:
        """Close the connection; a later call opens it again."""
        owner, self._client = self._owner, None
        self._closing.set()
        if owner is not None and owner is not asyncio.current_task():
            await asyncio.gather(owner, return_exceptions=True)

    async def _ready(self) -> tuple[mcp.Client, asyncio.Task[None]]:
        async with self._opening:
            if self._client is None or self._owner is None or self._owner.done():
                await self._open()
            return cast("mcp.Client", self._client), cast("asyncio.Task[None]", self._owner)

    async def _open(self) -> None:
        await self._pause()
        opened: asyncio.Future[mcp.Client] = asyncio.get_running_loop().create_future()
        self._closing = asyncio.Event()
        self._owner = asyncio.create_task(self._own(opened, self._closing), name=f"helix-mcp-{self._server}")
        try:
            async with asyncio.timeout(self._open_seconds):
                self._client = await asyncio.shield(opened)
        except TimeoutError:
            self._owner.cancel()
            # A second cancellation, as at the end of the event loop, would leave a command's process behind.
            await asyncio.wait({self._owner}, timeout=CLOSE_SECONDS)
            raise ToolsUnavailable(f"{self._server} did not respond within {self._open_seconds:g} seconds.") from None
        except asyncio.CancelledError:
            self._owner.cancel()
            raise
        except Exception as error:
            raise ToolsUnavailable(f"{self._server} cannot be used: {_sentence(error)}") from error
        self.tools_changed = True

    async def _pause(self) -> None:
        """Wait before opening a lost server again; raise if that happens too often."""
        now = time.monotonic()
        recent = [at for at in self._opened_at if now - at < 60]
        if len(recent) >= MAX_OPENINGS_A_MINUTE:
            raise ToolsUnavailable(f"{self._server} disconnected {len(recent)} times within a minute: see its log.")
        if recent:
            await asyncio.sleep(RECONNECT.delay_seconds(len(recent)))
        self._opened_at.append(now)

    async def _own(self, opened: asyncio.Future[mcp.Client], closing: asyncio.Event) -> None:
        """Hold the connection open, in the one task that may close it."""
        try:
            async with AsyncExitStack() as stack:
                transport = await self._server.transport(stack)
                client = await stack.enter_async_context(
                    mcp.Client(transport, message_handler=self._noticed, elicitation_callback=self.asking.elicited)
                )
                opened.set_result(client)
                listener = asyncio.create_task(self._listen(client))
                stack.callback(listener.cancel)
                await closing.wait()
        except asyncio.CancelledError:
            if not opened.done():
                opened.cancel()
            raise
        except BaseException as error:
            if opened.done():
                logger.warning("The connection to %s was lost: %s", self._server, _sentence(error))
            else:
                opened.set_exception(error if isinstance(error, Exception) else RuntimeError(str(error)))

    async def _noticed(self, message: Any) -> None:
        if isinstance(message, ToolListChangedNotification):
            self.tools_changed = True

    async def _listen(self, client: mcp.Client) -> None:
        """Subscribe to list changes of servers that require it; older ones send notifications anyway."""
        with suppress(Exception):
            async with client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    self.tools_changed = True


class Server:
    """Where a server is: a URL of streamable HTTP, or a command that speaks over standard input and output."""

    def __init__(
        self,
        url: str | None,
        command: Sequence[str] | None,
        *,
        env: Mapping[str, str] | None,
        cwd: str | None,
        headers: Mapping[str, str] | None,
        auth: Any,
    ) -> None:
        self._url, self._command = url, command
        self._env, self._cwd, self._headers, self._auth = env, cwd, headers, auth

    def __str__(self) -> str:
        if self._url is not None:
            return f"MCP server {self._url.split('?')[0].rpartition('@')[2]}"  # never a password or a key
        return f"MCP server {os.path.basename((self._command or ('?',))[0])}"

    async def transport(self, stack: AsyncExitStack) -> Any:
        """Return a transport for one connection. Its resources are closed with `stack`."""
        if self._url is not None:
            http = create_mcp_http_client(headers=dict(self._headers or {}), auth=self._auth)
            return streamable_http_client(self._url, http_client=await stack.enter_async_context(http))
        program, *arguments = self._command or ()
        environment = {**os.environ, **self._env} if self._env is not None else None
        parameters = mcp.StdioServerParameters(command=program, args=arguments, env=environment, cwd=self._cwd)
        return stdio_client(parameters, errlog=_log_of(str(self), stack))


def _log_of(server: str, stack: AsyncExitStack) -> Any:
    """Return a file that forwards lines to our logger: a command's standard error."""
    reading, writing = os.pipe()

    def forward() -> None:
        with os.fdopen(reading, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                logger.info("%s: %s", server, line.rstrip()[:MAX_LOGGED_LINE].encode("unicode_escape").decode())

    threading.Thread(target=forward, name="helix-mcp-stderr", daemon=True).start()
    return stack.enter_context(os.fdopen(writing, "w", encoding="utf-8"))


def _is_lost(error: BaseException, owner: asyncio.Task[None]) -> bool:
    """Return whether an error means that the connection is gone, not that the server rejected a request."""
    return owner.done() or not isinstance(error, mcp.MCPError) or error.code == _CONNECTION_CLOSED


def _sentence(error: BaseException) -> str:
    """Return the first real cause: the client library wraps errors in groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"
