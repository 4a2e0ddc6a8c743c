"""A Durable Object reached through its namespace binding, from inside a Worker: batches by RPC, wake-ups by WebSocket.

The other end is `StreamServer`. A batch is one RPC call, text in and text out: a nested value would become a proxy for
each of its parts. Only a reader opens a socket, for as long as it reads; the runtime closes it with the request that
opened it. Imported only inside a Worker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from urllib.parse import urlencode

from pyodide.ffi import JsException, create_proxy

from ...codec import decode, encode
from ...errors import InvalidArgument, StoreUnavailable
from .bindings import ensure_binding, js_options
from .wire import CloudflareDriver, Reply, WireStatement, reply_of

ORIGIN = "https://stream.internal"
"""A request needs a host; objects do not look at it."""

Tell = Callable[[str | None], None]
"""Called when another process has changed the stream, and with None when the socket has ended."""


class ListeningSocket:
    """Created by `BoundObject.open`. `closed` is set when the socket closes. Nothing is sent on it."""

    def __init__(self, socket: Any, tell: Tell) -> None:
        self._socket = socket
        self._tell = tell
        self.closed = asyncio.Event()
        self._proxies = [create_proxy(self._heard), create_proxy(self._ended)]
        heard, ended = self._proxies
        for event, proxy in (("message", heard), ("close", ended), ("error", ended)):
            socket.addEventListener(event, proxy)
        socket.accept()

    def _heard(self, event: Any) -> None:
        self._tell(str(event.data))

    def _ended(self, event: Any) -> None:
        if not self.closed.is_set():
            self.closed.set()
            self._tell(None)

    async def close(self) -> None:
        """Close the socket and release its JavaScript proxies."""
        with suppress(JsException):
            self._socket.close(1000)
        self.closed.set()
        for proxy in self._proxies:
            proxy.destroy()
        self._proxies = []


class BoundObject(CloudflareDriver):
    """`SqlDriver` for the object of one stream, by name."""

    def __init__(
        self,
        namespace: Any,
        name: str,
        *,
        stream_id: str = "",
        ttl_seconds: int = 0,
        location_hint: str | None = None,
        changed: Tell | None = None,
    ) -> None:
        super().__init__()
        self._namespace = ensure_binding(
            namespace,
            "getByName",
            is_not="a Durable Object namespace",
            hint="Pass the binding of the class StreamServer, for example DurableObjectStreamManager(env.STREAMS), or "
            "a Bridge outside a Worker.",
        )
        self._name = name
        self._stream_id = stream_id
        self._ttl_seconds = ttl_seconds
        self._options = {} if location_hint is None else {"locationHint": location_hint}
        self._changed: Tell = changed or (lambda what: None)
        self._opening: asyncio.Task[ListeningSocket] | None = None
        self.listeners = 0
        self.requests = 0
        """How many requests this driver has sent."""

    async def _send(self, batch: list[WireStatement], *, read_only: bool) -> Reply:
        request: dict[str, Any] = {"batch": batch}
        if not read_only:
            request |= {"changed": self._stream_id, "ttl": self._ttl_seconds}
        try:
            return reply_of(decode(await self._stub().exchange(encode(request))))
        except (AttributeError, TypeError, JsException) as error:
            raise _no_reply(error) from error

    async def forget(self) -> None:
        """Empty the object and close its sockets, unless it holds a stream."""
        try:
            await self._stub().forget()
        except JsException as error:
            raise _no_reply(error) from error

    async def websocket(self, **query: Any) -> Any:
        """Return the object's response to a browser that asks for a WebSocket."""
        return await self._upgrade(f"/browser?{urlencode({'stream': self._stream_id, **query})}")

    async def open(self) -> ListeningSocket:
        """Return the open socket. Concurrent callers wait for the same one."""
        opening = self._opening
        if opening is not None and opening.done():
            over = opening.cancelled() or opening.exception() is not None or opening.result().closed.is_set()
            opening = None if over else opening
        if opening is None:
            opening = self._opening = asyncio.create_task(self._connect())
        return await asyncio.shield(opening)

    async def _connect(self) -> ListeningSocket:
        response = await self._upgrade("/reader")
        if response.status != 101:
            raise StoreUnavailable(f"The object of stream {self._stream_id!r} opened no socket.", nothing_written=True)
        return ListeningSocket(response.webSocket, self._changed)

    async def _upgrade(self, path: str) -> Any:
        options = js_options({"headers": {"Upgrade": "websocket"}})
        try:
            return await self._stub().fetch(ORIGIN + path, options)
        except JsException as error:
            raise _no_reply(error, nothing_written=True) from error

    def _stub(self) -> Any:
        # A stub that has seen an error stays broken. A new one for each request costs nothing.
        self.requests += 1
        return self._namespace.getByName(self._name, **self._options)

    async def close(self) -> None:
        opening, self._opening = self._opening, None
        if opening is not None:
            with suppress(Exception):
                await (await opening).close()


def _no_reply(error: Exception, *, nothing_written: bool = False) -> Exception:
    said = str(error)
    if "does not implement" in said or "not a function" in said or isinstance(error, AttributeError):
        return InvalidArgument(
            f"The objects of this binding cannot hold streams ({said}). Bind a class that is, or extends, "
            "helix_agents.cloudflare.StreamServer."
        )
    return StoreUnavailable(f"A Durable Object did not reply: {said}. Try again.", nothing_written=nothing_written)
