"""Routes that stream: Server-Sent Events and WebSocket. The items come from `feed.py`, their form from `framing.py`."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import ASGIApp
from starlette.websockets import WebSocket

from ...errors import InvalidArgument
from ...executor import stream_of
from ...types import SessionState
from ..context import ServerContext
from ..conversation import ui_message_stream
from ..endpoints import Call, Endpoint
from ..limits import StreamSlot
from ..problems import problem_of
from ..requests import MAX_SEQUENCE, last_event_id, read_query, start_of_stream
from ..wire.feed import Feed, open_feed
from ..wire.framing import EventStream, HelixEvents, pump_websocket
from ..wire.translate import AgUiStream, translated


class StreamQuery(msgspec.Struct):
    """`Last-Event-ID` overrides `from_sequence`. `follow`: stay open into the next turn (our own format only)."""

    from_sequence: Annotated[int, msgspec.Meta(ge=0, le=MAX_SEQUENCE)] = 0
    follow: bool = False
    format: Literal["helix", "ag-ui", "ai-sdk"] = "helix"


async def stream(call: Call) -> ASGIApp:
    """Stream a session."""
    query = read_query(call.request, StreamQuery)
    session = await call.session()
    if query.format != "helix":
        position = start_of_stream(call.request, query.from_sequence)
        form = AgUiStream() if query.format == "ag-ui" else await ui_message_stream(call.context, session)
        return await translated(call, session, form, from_sequence=position)
    if not query.follow and await _has_seen_all(call, session):
        return Response(status_code=204)  # so that `EventSource` stops
    slot = call.context.occupancy.stream_slot(call.user)
    try:
        feed = await _open(call.context, call.request, session, slot)
    except BaseException:
        slot.release()
        raise
    return EventStream(feed, HelixEvents(feed.from_sequence), slot.release)


async def _has_seen_all(call: Call, session: SessionState) -> bool:
    """Return whether the client reconnects after the final event of a stream that has not continued since then."""
    reached = last_event_id(call.request)
    if reached is None or not reached.at_end:
        return False
    info = await stream_of(call.context.streams, session)
    return info is not None and info.status in ("ended", "failed") and info.latest_sequence == reached.sequence


async def _open(context: ServerContext, connection: HTTPConnection, session: SessionState, slot: StreamSlot) -> Feed:
    query = read_query(connection, StreamQuery)
    from_sequence = start_of_stream(connection, query.from_sequence)
    feed = await open_feed(
        context.executor,
        session,
        from_sequence=from_sequence,
        follow=query.follow,
        heartbeat_seconds=context.limits.heartbeat_seconds,
    )
    return slot.attach(feed)


def socket_query(connection: HTTPConnection) -> StreamQuery:
    """Return what a WebSocket asks for. Raises `InvalidArgument`."""
    query = read_query(connection, StreamQuery)
    if query.format != "helix":
        raise InvalidArgument("format= is for /stream: a WebSocket carries frames of our own format only.")
    return query


async def serve_websocket(context: ServerContext, socket: WebSocket) -> None:
    """Stream a session over a WebSocket. Errors before it is accepted are responses, as over HTTP."""
    slot = None
    try:
        try:
            user = await context.user(socket)
            socket_query(socket)
            slot = context.occupancy.stream_slot(user)
            session = await context.session(user, socket.path_params["session_id"])
            feed = await _open(context, socket, session, slot)
        except Exception as error:
            await socket.send_denial_response(problem_of(error).response())
            return
        await socket.accept()
        await pump_websocket(socket, feed)
    finally:
        if slot is not None:
            slot.release()


ENDPOINTS = (
    Endpoint(
        "GET",
        "/stream/{session_id:id}",
        stream,
        "A session's chunks, stored and live, as Server-Sent Events",
        query=StreamQuery,
        returns=bytes,
        headers=("Last-Event-ID",),
        tag="streams",
    ),
)
