"""The WebSockets that an object has accepted: the stream, position and user of each.

All of it is stored in the sockets themselves, as tags and an attachment, so that it survives hibernation. Nothing is
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
GOING_AWAY = 1001
READER = "reader"
"""The tag of a Worker's socket. It gets the id of a stream whenever that has changed, and nothing else."""

Moment = tuple[int, int]
"""`StreamHead.moment`."""


class Listener:
    """A client of a stream. `about` is what it asked for; `follow` keeps it when the stream stops.

    `incarnation` is that of the stream it reads, or empty while there is none: another stream under the same id is not
    what the client asked for.
    """

    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self.at, self.follow, self.about, announced, self.incarnation = decode(socket.deserializeAttachment())
        self.announced: Moment | None = announced and (announced[0], announced[1])

    def send(self, rows: list[StoredText], incarnation: str) -> None:
        """Send those of these chunks that the client lacks."""
        if rows[-1].sequence <= self.at:
            return
        with suppress(Exception):  # a closed socket must not affect the others
            for row in rows:
                if row.sequence > self.at:
                    self._socket.send(f'{{"event":"chunk","id":{row.sequence},"data":{row.text}}}')
        self.at, self.incarnation = rows[-1].sequence, incarnation
        self._keep()

    def say(self, event: str, data: Json, moment: Moment | None = None) -> None:
        """Send the final event, once; then close, unless it follows and there may be more."""
        if moment is not None and self.announced == moment:
            return
        self.announced = moment
        self._keep()
        with suppress(Exception):  # as above
            self._socket.send(_frame(event, data))
            if not self.follow or event not in ("end", "pause"):
                self._socket.close(NORMAL_CLOSURE)

    def _keep(self) -> None:
        with suppress(Exception):  # as above
            attachment = _attachment(self.at, self.follow, self.about, self.announced, self.incarnation)
            self._socket.serializeAttachment(attachment)


def listeners(ctx: Any, stream_id: str) -> list[Listener]:
    """Return the listeners of this stream."""
    return [Listener(socket) for socket in ctx.getWebSockets(_tag("stream", stream_id))]


def accept(
    ctx: Any, stream_id: str, opening: Json, *, at: int, follow: bool, about: str, incarnation: str, user_id: str = ""
) -> Any:
    """Return the client's end of a new socket that was sent `opening` and has all chunks up to `at`."""
    client, server = WebSocketPair.new().object_values()
    ctx.acceptWebSocket(server, to_js([_tag("stream", stream_id), _tag("user", user_id)]))
    server.serializeAttachment(_attachment(at, follow, about, None, incarnation))
    server.send(_frame("open", opening))
    return client


def count_of_user(ctx: Any, user_id: str) -> int:
    """Return how many sockets a user has open here."""
    return len(ctx.getWebSockets(_tag("user", user_id)))


def accept_reader(ctx: Any) -> Any:
    """Return the client's end of a new socket for a Worker that reads."""
    client, server = WebSocketPair.new().object_values()
    ctx.acceptWebSocket(server, to_js([READER]))
    return client


def wake_readers(ctx: Any, stream_id: str) -> None:
    """Notify every Worker that reads here that a stream has changed."""
    for socket in ctx.getWebSockets(READER):
        with suppress(Exception):  # as above
            socket.send(stream_id)


def close_all(ctx: Any) -> None:
    """Close every socket: browsers receive `gone`, Workers check again."""
    readers = list(ctx.getWebSockets(READER))
    for socket in ctx.getWebSockets():
        with suppress(Exception):  # as above
            if socket in readers:
                socket.close(GOING_AWAY)
            else:
                socket.send(_frame("gone", {}))
                socket.close(NORMAL_CLOSURE)


def _frame(event: str, data: Json) -> str:
    return encode({"event": event, "id": None, "data": data})


def _attachment(at: int, follow: bool, about: str, announced: Moment | None, incarnation: str) -> str:
    return encode([at, follow, about, None if announced is None else list(announced), incarnation])


def _tag(kind: str, name: str) -> str:
    """Return the tag for an id. A tag has at most 256 bytes, and an id may be longer."""
    return hashlib.sha256(f"{kind} {name}".encode("utf-8", "surrogatepass")).hexdigest()
