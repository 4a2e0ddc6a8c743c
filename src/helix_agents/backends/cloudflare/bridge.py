"""The bridge from outside: D1 by requests, Durable Objects by one WebSocket each.

The other end is `bridge_worker/bridge.mjs`. What others change in an object arrives on the
socket that batches go out on.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from contextlib import suppress
from typing import Any
from urllib.parse import quote, urlencode

from ...errors import HelixError, StoreError, StoreUnavailable
from .http import TIMEOUT_SECONDS, HttpClient, other_version
from .object_socket import ObjectSocket, Tell
from .wire import BRIDGE_VERSION, CloudflareDriver, Reply, WireStatement, reply_of

IDLE_SECONDS = 60.0


class Bridge:
    """A deployed bridge Worker. `close` ends all connections to it."""

    def __init__(self, url: str, token: str, *, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self.http = HttpClient(url, token, timeout_seconds=timeout_seconds)

    def __repr__(self) -> str:
        return f"Bridge({self.http.base!r})"

    def ticket(self, name: str, stream_id: str, issued_at: int, expires_at: int) -> str:
        """Return the ticket with which a browser may read this stream until it expires or the stream is deleted.

        The Worker checks it with the same secret.
        """
        text = f"{name}\n{stream_id}\n{issued_at}\n{expires_at}"
        return hmac.new(self.http.token.encode(), text.encode(), hashlib.sha256).hexdigest()

    async def close(self) -> None:
        """Close the connections."""
        await self.http.close()


class BridgeD1(CloudflareDriver):
    """`SqlDriver` for a D1 database of the bridge, by the name of its binding (`DB`)."""

    def __init__(self, bridge: Bridge, binding: str = "DB") -> None:
        super().__init__()
        self._bridge = bridge
        self._path = f"/v{BRIDGE_VERSION}/d1/{quote(binding, safe='')}/batch"

    async def _send(self, batch: list[WireStatement], *, read_only: bool) -> Reply:
        http = self._bridge.http
        status, answer = await http.post(self._path, {"batch": batch}, repeatable=read_only)
        if status == 404:
            if answer.get("bridge") == BRIDGE_VERSION:
                raise StoreError(f"{http.base}: {answer.get('error')}.")
            raise other_version(http.base)
        if "results" not in answer and "error" not in answer:
            raise other_version(http.base)
        return reply_of(answer)


class BridgeObject(CloudflareDriver):
    """`SqlDriver` for one Durable Object of the bridge, by name. Its socket opens on demand and closes when idle.

    `stream_id`: the stream that a batch which writes has changed. The bridge notifies all other listeners.
    `changed(what)` is called when another client's batch names what it changed, and with None when the socket closes:
    until it is open again, changes are missed.
    """

    def __init__(
        self,
        bridge: Bridge,
        name: str,
        *,
        stream_id: str = "",
        ttl_seconds: int = 0,
        changed: Tell | None = None,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        super().__init__()
        self._http = bridge.http
        query = f"?{urlencode({'ttl': ttl_seconds})}" if ttl_seconds else ""
        self._path = f"/v{BRIDGE_VERSION}/objects/{quote(name, safe='')}/socket{query}"
        self._stream_id = stream_id
        self._changed: Tell = changed or (lambda what: None)
        self._idle_seconds = idle_seconds
        self._opening: asyncio.Task[ObjectSocket] | None = None
        self._looking: asyncio.TimerHandle | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self.listeners = 0
        """While there are any, the socket is not idle."""

    async def _send(self, batch: list[WireStatement], *, read_only: bool) -> Reply:
        request: dict[str, Any] = {"batch": batch}
        if self._stream_id and not read_only:
            request["changed"] = self._stream_id
        return await self.ask(request, repeatable=read_only)

    async def forget(self) -> None:
        """Empty the object, unless it holds a stream."""
        await self.ask({"forget": self._stream_id}, repeatable=True)

    async def ask(self, request: dict[str, Any], *, repeatable: bool = False) -> Reply:
        """Send a request over the socket. `repeatable`: may be sent again if the socket turns out to be dead."""
        socket = await self.open()
        try:
            return reply_of(await socket.ask(request))
        except StoreUnavailable:
            if not (repeatable and socket.closed.is_set()):
                raise
        return reply_of(await (await self.open()).ask(request))

    async def open(self) -> ObjectSocket:
        """Return the open socket; concurrent callers wait for the same one."""
        opening = self._opening
        if opening is not None and opening.done() and (opening.cancelled() or self._is_over(opening)):
            opening = None
        if opening is None:
            opening = self._opening = asyncio.create_task(ObjectSocket.open(self._http, self._path, self._changed))
            opening.add_done_callback(lambda _: self._look_later())
        return await asyncio.shield(opening)

    @staticmethod
    def _is_over(opening: asyncio.Task[ObjectSocket]) -> bool:
        return opening.exception() is not None or opening.result().closed.is_set()

    def _look_later(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
        self._looking = asyncio.get_running_loop().call_later(self._idle_seconds, self._close_if_idle)

    def _close_if_idle(self) -> None:
        opening, self._looking = self._opening, None
        if opening is None or not opening.done() or opening.cancelled() or self._is_over(opening):
            return
        socket = opening.result()
        unused_seconds = asyncio.get_running_loop().time() - socket.used_at
        if self.listeners or socket.busy or unused_seconds < self._idle_seconds:
            self._look_later()
            return
        self._opening = None  # the next caller opens another
        closing = asyncio.create_task(socket.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
        opening, self._opening = self._opening, None
        if opening is not None:
            with suppress(HelixError):
                await (await opening).close()
        await asyncio.gather(*self._closing, return_exceptions=True)
