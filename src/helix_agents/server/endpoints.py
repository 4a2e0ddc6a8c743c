"""Endpoints: one table row for each route, from which both the app and its OpenAPI document are made.

A handler gets the desk, the request and the user, and returns a response or raises; what it raises becomes a problem
here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from .auth import ANONYMOUS, User
from .context import Desk
from .problems import problem_of


@dataclass(frozen=True)
class Call:
    """One request on its way through a handler."""

    desk: Desk
    request: Request
    user: User

    def path(self, name: str) -> str:
        """A parameter of the path."""
        value: str = self.request.path_params[name]
        return value


Handler = Callable[[Call], Awaitable[Response | ASGIApp]]


@dataclass(frozen=True)
class Endpoint:
    """One route: how it is reached, what it takes, what it gives."""

    method: str
    path: str
    handler: Handler
    summary: str
    status: int = 200
    body: type[msgspec.Struct] | None = None
    query: type[msgspec.Struct] | None = None
    gives: Any = None
    """The type of the JSON value, for the OpenAPI document; None: any object, `bytes`: an event stream."""
    public: bool = False
    headers: tuple[str, ...] = ()
    tag: str = "sessions"


def as_routes(desk: Desk, endpoints: Sequence[Endpoint]) -> list[Route]:
    """The endpoints as routes of the app: one a path, so that the router knows all methods that a path takes."""
    by_path: dict[str, dict[str, Endpoint]] = {}
    for endpoint in endpoints:
        by_path.setdefault(endpoint.path, {})[endpoint.method] = endpoint
    return [Route(path, _answer(desk, methods), methods=list(methods)) for path, methods in by_path.items()]


def _answer(desk: Desk, methods: Mapping[str, Endpoint]) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        endpoint = methods.get(request.method) or methods["GET"]  # HEAD is a GET whose body the server leaves out
        try:
            user = ANONYMOUS if endpoint.public else await desk.user(request)
            found = await endpoint.handler(Call(desk, request, user))
        except Exception as error:
            return problem_of(error).response()
        return found  # type: ignore[return-value]  # Starlette calls it as an ASGI app, which an EventStream is too

    return answer
