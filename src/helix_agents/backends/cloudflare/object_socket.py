"""One open WebSocket to a Durable Object: numbered requests out, replies and changes in. Knows nothing of SQL.

Requests are carried out in the order in which they were sent, and any number may be in flight. When the socket ends,
for whatever reason, every pending request fails with an unknown outcome.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import aiohttp

from ...codec import decode, encode
from ...errors import StoreUnavailable
from .http import FAILURES, HttpClient, unreachable

Tell = Callable[[str | None], None]
"""Called with what another client changed, and with None when the socket closes."""


class ObjectSocket:
    """Created by `open`; `closed` is set when it closes."""

    def __init__(self, http: HttpClient, socket: aiohttp.ClientWebSocketResponse, tell: Tell) -> None:
        self._http = http
        self._socket = socket
        self._tell = tell
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._number = 0
        self.used_at = asyncio.get_running_loop().time()
        self.closed = asyncio.Event()
        self._listening = asyncio.create_task(self._listen(), name="helix-object-socket")

    @classmethod
    async def open(cls, http: HttpClient, path: str, tell: Tell) -> ObjectSocket:
        """Connect. Raises `StoreUnavailable` (nothing written) or `StoreError`."""
        return cls(http, await http.socket(path), tell)

    @property
    def busy(self) -> bool:
        """Whether a reply is pending."""
        return bool(self._waiting)

    async def ask(self, request: dict[str, Any]) -> Any:
        """Send a request and return its reply."""
        loop = asyncio.get_running_loop()
        self.used_at = loop.time()
        self._number += 1
        number = self._number
        reply = self._waiting[number] = loop.create_future()
        try:
            await self._socket.send_str(encode({"id": number, **request}))
            if self.closed.is_set():
                raise StoreUnavailable(f"The connection to {self._http.base} was lost. Try again.")
            async with asyncio.timeout(self._http.timeout_seconds):
                return await reply
        except FAILURES as error:
            raise unreachable(self._http.base, error) from error
        finally:
            self._waiting.pop(number, None)

    async def _listen(self) -> None:
        try:
            async for message in self._socket:
                if message.type is aiohttp.WSMsgType.TEXT:
                    self._heard(decode(message.data))
        finally:
            self.closed.set()
            for reply in self._waiting.values():
                if not reply.done():
                    reply.set_exception(StoreUnavailable(f"The connection to {self._http.base} was lost. Try again."))
            self._tell(None)

    def _heard(self, answer: Any) -> None:
        if "changed" in answer:
            self._tell(answer["changed"])
        elif (reply := self._waiting.get(answer.get("id", 0))) is not None and not reply.done():
            reply.set_result(answer)

    async def close(self) -> None:
        """Close the socket."""
        with suppress(aiohttp.ClientError, OSError, RuntimeError):
            await self._socket.close()
        await asyncio.gather(self._listening, return_exceptions=True)
