"""Routes that stream: Server-Sent Events and WebSocket. What they say is in `feed.py`, how it looks in `framing.py`."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp
from starlette.websockets import WebSocket

from ...errors import InvalidArgument
from ..auth import User
from ..context import Desk, Seat
from ..endpoints import Call, Endpoint
from ..problems import problem_of
from ..requests import MAX_SEQUENCE, read_query, start_of_stream
from ..wire.feed import Feed, open_feed
from ..wire.framing import EventStream, HelixEvents, pump_websocket
from ..wire.translate import translated


class StreamQuery(msgspec.Struct):
    """`Last-Event-ID` goes before `from_sequence`. `follow`: stay open into the next turn (our own format only)."""

    from_sequence: Annotated[int, msgspec.Meta(ge=0, le=MAX_SEQUENCE)] = 0
    follow: bool = False
    format: Literal["helix", "ag-ui", "ai-sdk"] = "helix"


async def stream(call: Call) -> ASGIApp:
    query = read_query(call.request, StreamQuery)
    if query.format != "helix":
        session = await call.desk.session(call.user, call.path("session_id"))
        place = start_of_stream(call.request, query.from_sequence)
        return await translated(call, session, query.format, from_sequence=place)
    seat = call.desk.take_seat(call.user)
    try:
        feed = await _open(call.desk, call.user, call.request, call.path("session_id"), seat)
    except BaseException:
        seat.free()
        raise
    return EventStream(feed, HelixEvents(), seat.free)


async def _open(desk: Desk, user: User, connection: HTTPConnection, session_id: str, seat: Seat) -> Feed:
    query = read_query(connection, StreamQuery)
    from_sequence = start_of_stream(connection, query.from_sequence)
    session = await desk.session(user, session_id)
    feed = await open_feed(
        desk.executor,
        session,
        from_sequence=from_sequence,
        follow=query.follow,
        heartbeat_seconds=desk.heartbeat_seconds,
    )
    return seat.attend(feed)


def socket_query(connection: HTTPConnection) -> StreamQuery:
    """What a WebSocket asks for. Raises `InvalidArgument`."""
    query = read_query(connection, StreamQuery)
    if query.format != "helix":
        raise InvalidArgument("format= is for /stream: a WebSocket carries frames of our own format only.")
    return query


async def serve_websocket(desk: Desk, socket: WebSocket) -> None:
    """The WebSocket form of the same stream. What goes wrong before it is accepted is told as over HTTP."""
    seat = None
    try:
        try:
            user = await desk.user(socket)
            socket_query(socket)
            seat = desk.take_seat(user)
            feed = await _open(desk, user, socket, socket.path_params["session_id"], seat)
        except Exception as error:
            await socket.send_denial_response(problem_of(error).response())
            return
        await socket.accept()
        await pump_websocket(socket, feed)
    finally:
        if seat is not None:
            seat.free()


ENDPOINTS = (
    Endpoint(
        "GET",
        "/stream/{session_id:id}",
        stream,
        "A session's chunks, kept and live, as Server-Sent Events",
        query=StreamQuery,
        gives=bytes,
        headers=("Last-Event-ID",),
        tag="streams",
    ),
)
