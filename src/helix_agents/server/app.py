"""create_app: the routes, who may use them, and what surrounds them, as one Starlette app."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, WebSocketRoute
from starlette.websockets import WebSocket

from ..errors import InvalidArgument
from ..executor import AgentExecutor
from .auth import Authenticate
from .context import Desk
from .endpoints import Call, Endpoint, as_routes
from .middleware import Cleaning
from .problems import Problem, problem_of
from .requests import reply
from .routes import chat, runs, sessions, streams, system
from .routes.inspector import page_routes
from .routes.openapi import document

HEARTBEAT_SECONDS = 15.0
MAX_BODY_BYTES = 1_000_000
MAX_STREAMS_PER_USER = 1_000

ENDPOINTS = (*runs.ENDPOINTS, *sessions.ENDPOINTS, *streams.ENDPOINTS, *chat.ENDPOINTS, *system.ENDPOINTS)


def create_app(
    executor: AgentExecutor,
    *,
    authenticate: Authenticate | None = None,
    allow_unauthenticated: bool = False,
    allow_origins: Sequence[str] = (),
    max_body_bytes: int = MAX_BODY_BYTES,
    max_streams_per_user: int = MAX_STREAMS_PER_USER,
    heartbeat_seconds: float = HEARTBEAT_SECONDS,
) -> Starlette:
    """An ASGI app that serves the agents which `executor` knows.

    `authenticate(connection) -> User | None` decides who asks; `bearer_tokens({...})` is one. Without it the app is
    refused unless `allow_unauthenticated=True`, since then everybody who can reach it may do everything.
    `allow_origins`: the sites whose pages may use it from a browser. The executor stays the caller's: it is not closed.
    """
    if authenticate is None and not allow_unauthenticated:
        raise InvalidArgument(
            "create_app() needs authenticate=..., for example bearer_tokens({...}). "
            "To let everybody in who can reach the server, say allow_unauthenticated=True."
        )
    if isinstance(allow_origins, str):
        raise InvalidArgument("allow_origins is a list of origins, for example ['https://app.example.com'].")
    if max_body_bytes < 1 or max_streams_per_user < 1 or heartbeat_seconds <= 0:
        raise InvalidArgument("max_body_bytes, max_streams_per_user and heartbeat_seconds must be above zero.")
    desk = Desk(
        executor,
        authenticate=authenticate,
        allow_origins=allow_origins,
        max_body_bytes=max_body_bytes,
        max_streams_per_user=max_streams_per_user,
        heartbeat_seconds=heartbeat_seconds,
    )
    app = Starlette(
        routes=_routes(desk),
        middleware=_middleware(allow_origins),
        exception_handlers={HTTPException: _not_routed, Exception: _failed},
    )
    app.state.desk = desk
    return app


def _routes(desk: Desk) -> list[BaseRoute]:
    async def openapi(call: Call) -> Response:
        return reply(openapi_document)

    async def websocket(socket: WebSocket) -> None:
        await streams.serve_websocket(desk, socket)

    described = Endpoint("GET", "/openapi.json", openapi, "This document", public=True, tag="server")
    endpoints = (*ENDPOINTS, described)
    openapi_document = document(endpoints)
    return [*as_routes(desk, endpoints), WebSocketRoute("/ws/{session_id:id}", websocket), *page_routes()]


def _middleware(allow_origins: Sequence[str]) -> list[Middleware]:
    layers = [Middleware(Cleaning)]
    if allow_origins:
        layers.append(
            Middleware(
                CORSMiddleware,
                allow_origins=list(allow_origins),
                allow_methods=["GET", "POST", "DELETE"],
                allow_headers=["Authorization", "Content-Type", "Last-Event-ID", "Idempotency-Key"],
                expose_headers=["Retry-After"],
            )
        )
    return layers


async def _not_routed(request: Request, error: Exception) -> Response:
    """What the router itself refuses: an unknown path, or a method that a path does not have."""
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "")
        return Problem(405, "method_not_allowed", f"This path takes {allowed}.", headers={"Allow": allowed}).response()
    if error.status_code == 404:
        return Problem(404, "not_found", "There is nothing here: /openapi.json lists the routes.").response()
    return Problem(error.status_code, "invalid_argument", error.detail).response()


async def _failed(request: Request, error: Exception) -> Response:
    return problem_of(error).response()
