"""Endpoints: one table row per route, from which both the app and its OpenAPI document are made.

A handler gets the context, the request and the user, and returns a response or raises. Exceptions become problems here
and nowhere else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from ..types import Conversation, SessionState
from .auth import ANONYMOUS, User
from .context import ServerContext
from .problems import problem_of
from .requests import T, read_body


@dataclass(frozen=True)
class Call:
    """One request as it passes through a handler."""

    context: ServerContext
    request: Request
    user: User

    def path(self, name: str) -> str:
        """Return a parameter of the path."""
        value: str = self.request.path_params[name]
        return value

    async def body(self, kind: type[T]) -> T:
        """Return the body as a struct."""
        return await read_body(self.request, kind, max_bytes=self.context.limits.max_body_bytes)

    def starting_run(self) -> AbstractContextManager[None]:
        """Count a run while it starts. Raises 429 for a user who has too many."""
        runs = self.context.executor.runs
        return self.context.occupancy.starting_run(self.user, lambda: runs.count(self.user.owner_id))

    async def session(self) -> SessionState:
        """Return the session that the path names, without custom state. Raises `SessionNotFound`."""
        return (await self.found()).session

    async def found(self, *, custom_state: bool = False) -> Conversation:
        """Return that session with its latest run, if the user may see it. Raises `SessionNotFound`."""
        return await self.context.found(self.user, self.path("session_id"), custom_state=custom_state)


Handler = Callable[[Call], Awaitable[Response | ASGIApp]]


@dataclass(frozen=True)
class Endpoint:
    """One route: its path and method, its input, its output."""

    method: str
    path: str
    handler: Handler
    summary: str
    status: int = 200
    body: type[msgspec.Struct] | None = None
    query: type[msgspec.Struct] | None = None
    returns: Any = None
    """The type of the JSON value, for the OpenAPI document; None: any object, `bytes`: an event stream,
    `str`: OpenMetrics text."""
    public: bool = False
    large: bool = False
    """Whether the response may be large. Only a few of these are built for one user at a time."""
    headers: tuple[str, ...] = ()
    tag: str = "sessions"


def as_routes(endpoints: Sequence[Endpoint]) -> list[Route]:
    """Return the endpoints as routes, one per path, so that the router knows all methods that a path accepts.

    Apps share them: a route finds the context of the app that it is called for.
    """
    by_path: dict[str, dict[str, Endpoint]] = {}
    for endpoint in endpoints:
        by_path.setdefault(endpoint.path, {})[endpoint.method] = endpoint
    return [Route(path, _dispatcher(methods), methods=list(methods)) for path, methods in by_path.items()]


def _dispatcher(methods: Mapping[str, Endpoint]) -> Callable[[Request], Awaitable[Response]]:
    async def dispatch(request: Request) -> Response:
        context: ServerContext = request.app.context
        endpoint = methods.get(request.method) or methods["GET"]  # HEAD is a GET whose body the server leaves out
        try:
            user = ANONYMOUS if endpoint.public else await context.user(request)
            async with context.occupancy.reading(user) if endpoint.large else nullcontext():
                found = await endpoint.handler(Call(context, request, user))
            if isinstance(found, Response):
                found = context.occupancy.hold(user, found)
        except Exception as error:
            return problem_of(error).response()
        return found  # type: ignore[return-value]  # Starlette calls it as an ASGI app, which an EventStream is too

    return dispatch
