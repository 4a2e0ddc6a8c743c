"""The WebSockets that an object has accepted: who listens to which stream, how far each has got, what it was told.

All of it lies in the sockets themselves, as a tag and an attachment, so that it survives hibernation. Nothing is
awaited in here. Imported only inside a Worker.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from typing import Any

from js import WebSocketPair
from pyodide.ffi import to_js

from ...codec import Json, decode, encode
from ...streams.records import StoredText

NORMAL_CLOSURE = 1000

Moment = tuple[int, int]
"""`StreamHead.moment`."""


class Listener:
    """A client of a stream. `about` is what it asked for; `follow` keeps it when the stream comes to rest."""

    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self.at, self.follow, self.about, told = decode(socket.deserializeAttachment())
        self.told: Moment | None = told and (told[0], told[1])

    def send(self, rows: list[StoredText]) -> None:
        """Those of these chunks that it has not had."""
        if rows[-1].sequence <= self.at:
            return
        with suppress(Exception):  # a socket that has gone away is no concern of the others
            for row in rows:
                if row.sequence > self.at:
                    self._socket.send(f'{{"event":"chunk","id":{row.sequence},"data":{row.text}}}')
        self.at = rows[-1].sequence
        self._keep()

    def say(self, event: str, data: Json, moment: Moment | None = None) -> None:
        """The last word, once; then it is closed, unless it follows and there may be more."""
        if moment is not None and self.told == moment:
            return
        self.told = moment
        self._keep()
        with suppress(Exception):  # as above
            self._socket.send(encode({"event": event, "id": None, "data": data}))
            if not self.follow or event not in ("end", "pause"):
                self._socket.close(NORMAL_CLOSURE)

    def _keep(self) -> None:
        with suppress(Exception):  # as above
            self._socket.serializeAttachment(_attachment(self.at, self.follow, self.about, self.told))


def listeners(ctx: Any, stream_id: str) -> list[Listener]:
    """Everybody who listens to this stream."""
    return [Listener(socket) for socket in ctx.getWebSockets(_tag(stream_id))]


def accept(ctx: Any, stream_id: str, opening: Json, *, at: int, follow: bool, about: str) -> Any:
    """The client's end of a new socket that was told `opening` and has had everything up to `at`."""
    client, server = WebSocketPair.new().object_values()
    ctx.acceptWebSocket(server, to_js([_tag(stream_id)]))
    server.serializeAttachment(_attachment(at, follow, about, None))
    server.send(encode({"event": "open", "id": None, "data": opening}))
    return client


def _attachment(at: int, follow: bool, about: str, told: Moment | None) -> str:
    return encode([at, follow, about, None if told is None else list(told)])


def _tag(stream_id: str) -> str:
    """A tag has at most 256 bytes, an id may have more."""
    return hashlib.sha256(stream_id.encode("utf-8", "surrogatepass")).hexdigest()
