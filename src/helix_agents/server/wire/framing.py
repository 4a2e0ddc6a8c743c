"""Framing: the items of a feed as Server-Sent Events or as WebSocket messages. The only module that knows either.

A chunk is encoded once for all clients of a process (`StoredText.frame`); chunks that are ready together leave in one
write. A slow client delays only itself: its `send` waits, and what it misses since then comes from storage.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from typing import Protocol

from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from ...codec import Json, encode
from ...streams.records import StoredText
from ..requests import END_MARK
from .feed import Chunks, Event, Feed, Item

HEARTBEAT = b": hb\n\n"
RETRY = b"retry: 1000\n\n"
EVENT_STREAM_HEADERS = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
    (b"x-content-type-options", b"nosniff"),
)
FINISHED = frozenset({"end", "fail"})
"""Final events after which nothing comes until the next turn."""

NORMAL_CLOSURE = 1000
SERVICE_RESTART = 1012


class Encoder(Protocol):
    """Turns the items of a feed into the bytes of one SSE body."""

    headers: tuple[tuple[bytes, bytes], ...]

    def encode(self, item: Item) -> bytes:
        """Return the bytes for one item; none if this format has no frame for it."""


class HelixEvents:
    """Our own format: chunks as they are, with their sequence as the event id.

    The end of a finished stream has an id as well: a client that has seen it can reconnect and get 204.
    """

    headers: tuple[tuple[bytes, bytes], ...] = ()

    def __init__(self, from_sequence: int) -> None:
        self._reached = from_sequence

    def encode(self, item: Item) -> bytes:
        """Return the frames for one item."""
        if isinstance(item, Chunks):
            self._reached = item.rows[-1].sequence
            return b"".join([row.frame or chunk_frame(row) for row in item.rows])
        if isinstance(item, Event):
            frame = sse(item.name, item.data, f"{self._reached}{END_MARK}" if item.name in FINISHED else None)
            return RETRY + frame if item.name == "open" else frame
        return HEARTBEAT


def chunk_frame(row: StoredText) -> bytes:
    """Return the event of one chunk, and keep it with the row for the next client."""
    row.frame = f"event: chunk\nid: {row.sequence}\ndata: {row.text}\n\n".encode()
    return row.frame


def sse(event: str, data: Json, event_id: str | None = None) -> bytes:
    """Return one event. JSON has no line breaks, so one `data` line is enough."""
    id_line = "" if event_id is None else f"id: {event_id}\n"
    return f"event: {event}\n{id_line}data: {encode(data)}\n\n".encode()


def websocket_messages(item: Item) -> list[str]:
    """Return the same as text messages. A WebSocket has its own pings, so it needs no heartbeats."""
    if isinstance(item, Chunks):
        return [f'{{"event":"chunk","id":{row.sequence},"data":{row.text}}}' for row in item.rows]
    if isinstance(item, Event):
        return [encode({"event": item.name, "id": None, "data": item.data})]
    return []


class EventStream:
    """An SSE response: pumps a feed into the connection until either ends."""

    def __init__(self, feed: Feed, encoder: Encoder, on_end: Callable[[], None]) -> None:
        self._feed = feed
        self._encoder = encoder
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream."""
        disconnect = asyncio.create_task(self._watch(receive))
        try:
            headers = [*EVENT_STREAM_HEADERS, *self._encoder.headers]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            if scope["method"] != "HEAD":
                await self._pump(send)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            disconnect.cancel()
            self._on_end()

    async def _pump(self, send: Send) -> None:
        async with aclosing(self._feed.items()) as items:
            async for item in items:
                if body := self._encoder.encode(item):
                    await send({"type": "http.response.body", "body": body, "more_body": True})

    async def _watch(self, receive: Receive) -> None:
        """Close the feed when the client disconnects. The run continues."""
        while (await receive())["type"] != "http.disconnect":
            pass
        self._feed.close()


async def pump_websocket(socket: WebSocket, feed: Feed) -> None:
    """Send a feed over an accepted WebSocket, then close it."""
    disconnect = asyncio.create_task(_watch_websocket(socket, feed))
    is_final = False
    try:
        async with aclosing(feed.items()) as items:
            async for item in items:
                is_final = isinstance(item, Event) and item.name != "open"
                for message in websocket_messages(item):
                    await socket.send_text(message)
        await socket.close(NORMAL_CLOSURE if is_final else SERVICE_RESTART)
    except (WebSocketDisconnect, RuntimeError):
        pass  # the client disconnected in the middle of a message, or before the close
    finally:
        disconnect.cancel()


async def _watch_websocket(socket: WebSocket, feed: Feed) -> None:
    """Close the feed when the client disconnects. Messages from clients are ignored."""
    while (await socket.receive())["type"] != "websocket.disconnect":
        pass
    feed.close()
