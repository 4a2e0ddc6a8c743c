"""create_app: the routes, users and middleware as one Starlette app."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, WebSocketRoute
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from ..agent import Agent
from ..errors import InvalidArgument
from ..executor import AgentExecutor
from .auth import Authenticate
from .context import ServerContext
from .endpoints import Call, Endpoint, as_routes
from .hosts import HostRules
from .lifespan import Factory, ServerLifespan
from .limits import Limits
from .middleware import NormalizeRequest
from .problems import Problem, problem_of
from .requests import json_response
from .routes import agui, ai_sdk, blobs, branches, hooks, metrics, runs, sessions, streams, system
from .routes.inspector import page_routes
from .routes.openapi import document

DEFAULTS = Limits()
ROUTES = (runs, hooks, sessions, branches, blobs, streams, agui, ai_sdk, system, metrics)
ENDPOINTS = tuple(endpoint for module in ROUTES for endpoint in module.ENDPOINTS)


class HelixApp(Starlette):
    """The app that `create_app` returns. `context` is what its routes share."""

    context: ServerContext
    lifespan: ServerLifespan

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request; the first one starts an app that is mounted in another app."""
        if scope["type"] != "lifespan":
            await self.lifespan.ensure_started(mounted="app" in scope)
        await super().__call__(scope, receive, send)


def create_app(
    executor_or_factory: AgentExecutor | Factory,
    *,
    agents: Sequence[Agent | str] | None = None,
    authenticate: Authenticate | None = None,
    allow_unauthenticated: bool = False,
    allow_hosts: Sequence[str] = (),
    allow_origins: Sequence[str] = (),
    recover: bool = True,
    max_body_bytes: int = DEFAULTS.max_body_bytes,
    max_streams_per_user: int = DEFAULTS.max_streams_per_user,
    max_runs_per_user: int = DEFAULTS.max_runs_per_user,
    max_bytes_per_user: int = DEFAULTS.max_bytes_per_user,
    max_stream_seconds: float = DEFAULTS.max_stream_seconds,
    heartbeat_seconds: float = DEFAULTS.heartbeat_seconds,
    stall_seconds: float = DEFAULTS.stall_seconds,
    inspector: bool = True,
) -> HelixApp:
    """Return an ASGI app that serves agents.

    `executor_or_factory`: an executor, which the caller closes, or a factory, which the app opens and closes with its
    lifespan: an async context manager, or a function that returns one or returns an executor. So `uvicorn my_app:app`
    needs nothing else. `agents`: those that clients may start; the default is the executor's `agents=`, without the
    sub-agents that they use. `recover`: continue runs whose process died, and those that wait for a worker.

    `authenticate(connection) -> User | None` says who sends a request; `bearer_tokens({...})` is one. Without it,
    `create_app` raises unless `allow_unauthenticated=True`; then only requests to loopback hosts and `allow_hosts` are
    served. `allow_hosts`: the host names that requests may be addressed to. `allow_origins`: the sites whose pages
    may use the server from a browser. The limits hold per user and process; see docs/server.md.
    `inspector=False` leaves out the page at `/` and its scripts.
    """
    _ensure_authenticated(authenticate, allow_unauthenticated)
    context = ServerContext(
        lambda: lifespan.executor,
        agents=agents,
        authenticate=authenticate,
        hosts=HostRules(allow_hosts=allow_hosts, allow_origins=allow_origins, loopback_only=authenticate is None),
        limits=Limits(
            max_body_bytes=max_body_bytes,
            max_streams_per_user=max_streams_per_user,
            max_runs_per_user=max_runs_per_user,
            max_bytes_per_user=max_bytes_per_user,
            max_stream_seconds=max_stream_seconds,
            heartbeat_seconds=heartbeat_seconds,
            stall_seconds=stall_seconds,
        ),
    )
    lifespan = ServerLifespan(executor_or_factory, context, recover=recover)
    app = HelixApp(
        routes=[*_routes(), *(page_routes() if inspector else ())],
        middleware=_middleware(context, allow_origins),
        exception_handlers={HTTPException: _not_routed, Exception: _failed},
        lifespan=lifespan.context,
    )
    app.context = context
    app.lifespan = lifespan
    return app


def _ensure_authenticated(authenticate: Authenticate | None, allow_unauthenticated: bool) -> None:
    if authenticate is None and not allow_unauthenticated:
        raise InvalidArgument(
            "create_app() needs authenticate=..., for example bearer_tokens({...}). To admit everyone who can reach "
            "the server, pass allow_unauthenticated=True."
        )


@cache
def _routes() -> tuple[BaseRoute, ...]:
    """Return the routes of all apps. Built once: in a Worker, many objects of one isolate have an app each."""

    async def openapi(call: Call) -> Response:
        return json_response(openapi_document)

    async def websocket(socket: WebSocket) -> None:
        await streams.serve_websocket(socket.app.context, socket)

    described = Endpoint("GET", "/openapi.json", openapi, "This document", public=True, tag="server")
    endpoints = (*ENDPOINTS, described)
    openapi_document = document(endpoints)
    return (*as_routes(endpoints), WebSocketRoute("/ws/{session_id:id}", websocket))


def _middleware(context: ServerContext, allow_origins: Sequence[str]) -> list[Middleware]:
    layers = [Middleware(NormalizeRequest, hosts=context.hosts)]
    if allow_origins:
        layers.append(
            Middleware(
                CORSMiddleware,
                allow_origins=list(allow_origins),
                allow_methods=["GET", "POST", "PATCH", "DELETE"],
                allow_headers=["Authorization", "Content-Type", "Last-Event-ID", "Idempotency-Key"],
                expose_headers=["Retry-After"],
            )
        )
    return layers


async def _not_routed(request: Request, error: Exception) -> Response:
    """Respond to what the router rejects: an unknown path, or a method that a path does not have."""
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "")
        return Problem(
            405, "method_not_allowed", f"This path accepts {allowed}.", headers={"Allow": allowed}
        ).response()
    if error.status_code == 404:
        return Problem(404, "not_found", "There is no such route: /openapi.json lists them.").response()
    return Problem(error.status_code, "invalid_argument", error.detail).response()


async def _failed(request: Request, error: Exception) -> Response:
    return problem_of(error).response()
