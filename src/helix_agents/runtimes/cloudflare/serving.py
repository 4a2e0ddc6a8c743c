"""`serve`: the routes of the HTTP server for Workers whose sessions are in D1, such as those that run by Workflows.

As in `route`, a stranger costs little: the token is checked before the body is read, and its length before it is
parsed. A WebSocket is served by the object of the stream, which may hibernate. Imported only inside a Worker.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...executor import AgentExecutor, drop_leftover
from ...server.app import HelixApp, create_app
from ...server.auth import Authenticate
from ...server.limits import Limits
from ...server.problems import Problem
from ...server.requests import start_of_stream
from ...server.routes.streams import socket_query
from . import web
from .web import Address, body_of, connection_of, is_upgrade, not_a_hook, rejection, with_body

DEFAULTS = Limits()
MAX_UPLOAD_BYTES = 5_000_000


async def serve(
    executor: AgentExecutor,
    request: Any,
    *,
    authenticate: Authenticate | None = None,
    allow_unauthenticated: bool = False,
    allow_origins: Sequence[str] = (),
    max_body_bytes: int = DEFAULTS.max_body_bytes,
    max_upload_bytes: int = MAX_UPLOAD_BYTES,
    max_streams_per_user: int = DEFAULTS.max_streams_per_user,
) -> Any:
    """Return the response to a request of a Worker. Takes the options of `create_app`; see docs/server.md.

    `/ws/{session_id}` needs a `DurableObjectStreamManager` on a namespace binding; `max_streams_per_user` counts its
    WebSockets per session.
    """
    app = create_app(
        executor,
        authenticate=authenticate,
        allow_unauthenticated=allow_unauthenticated,
        allow_origins=allow_origins,
        allow_hosts=["*"],  # the host name is the one under which Cloudflare serves the Worker
        recover=False,
        max_body_bytes=max_body_bytes,
        inspector=False,
    )
    address = Address(request)
    try:
        if address.token is not None:
            if executor.services.hook_tokens.read(address.token) is None:
                raise not_a_hook()
        elif not address.is_public:
            user = await app.context.user(connection_of(request, None))
            if is_upgrade(request):
                return await _open_socket(app, executor, request, address, user, max_streams_per_user)
        if address.is_change:
            body = await body_of(request, max_upload_bytes if address.is_upload else max_body_bytes)
            request = with_body(request, body)
    except Exception as error:
        return rejection(error)
    return await web.serve(app, request, None)


async def _open_socket(
    app: HelixApp, executor: AgentExecutor, request: Any, address: Address, user: Any, max_per_user: int
) -> Any:
    """Return the stream's object's response to a browser that asks for a WebSocket."""
    streams: Any = executor.services.streams
    if address.kind != "ws" or len(address.rest) != 1 or not hasattr(streams, "websocket"):
        raise Problem(404, "not_found", "There is no WebSocket here: ask for /ws/{session_id}.")
    connection = connection_of(request, None)
    query = socket_query(connection)
    session = await app.context.session(user, address.rest[0])
    await drop_leftover(streams, session)
    if session.status != "active" and await streams.get_stream_info(session.stream_id) is None:
        raise Problem(404, "not_found", "The stream of this session has expired: ask for /result/{session_id}.")
    return await streams.websocket(
        session.stream_id,
        from_sequence=start_of_stream(connection, query.from_sequence),
        follow=query.follow,
        tell={"session_id": session.session_id, "status": session.status, "step_count": session.step_count},
        user_id=user.id,
        max_per_user=max_per_user,
    )
