"""HTTP as a Worker sees it: addresses, bodies that are read up to a limit, and errors as responses.

The SDK's bridge to ASGI reads a whole body before the app sees any of it, and wasm memory never shrinks. So a body is
read here, with a limit, before anything else is done with it. Imported only inside a Worker.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp
from workers import Request, Response, asgi

from ...server.middleware import normalize
from ...server.problems import Problem, problem_of
from ...server.requests import parse_json, read_limited

STARTS_SESSION = {"execute": "session_id", "chat": "id", "agui": "threadId"}
"""The first part of the paths that may start a session, and the member of their body that names it."""
OF_A_SESSION = frozenset({"stream", "ws", "result", "sessions", "chat", "waiting", "stats"})
"""The first part of the paths that are about sessions that exist."""
PUBLIC = frozenset({"healthz", "openapi.json"})


class Address:
    """What a request's method, path and query say about where it goes."""

    def __init__(self, request: Any) -> None:
        url = urlsplit(str(request.url))
        self.kind, *self.rest = [unquote(part) for part in url.path.split("/")[1:]]
        self.object = parse_qs(url.query).get("object", [""])[0]
        self.is_public = self.kind in PUBLIC or request.method == "OPTIONS"
        self.is_change = request.method not in ("GET", "HEAD", "OPTIONS")
        is_post = request.method == "POST"
        self.starts_session = is_post and self.kind in STARTS_SESSION
        self.is_upload = is_post and self.kind == "sessions" and self.rest[1:] == ["blobs"]
        self.token = self.rest[0] if is_post and self.kind == "hooks" and len(self.rest) == 1 else None
        """The token that completes a deferred call. It is the only credential needed."""


def is_upgrade(request: Any) -> bool:
    """Return whether a request asks for a WebSocket."""
    return (request.headers.get("upgrade") or "").lower() == "websocket"


def connection_of(request: Any, env: Any) -> HTTPConnection:
    """Return a request as `authenticate` expects it."""
    scope = asgi.request_to_scope(request, env, ws=is_upgrade(request))
    normalize(scope)
    return HTTPConnection(scope)


async def body_of(request: Any, max_bytes: int) -> bytes:
    """Return the body. Raises a `Problem` if it is longer than `max_bytes`."""

    async def parts() -> AsyncIterator[bytes]:
        if request.body:
            async for part in request.body:
                yield part.to_bytes()

    return await read_limited(parts(), request.headers.get("content-length"), max_bytes)


def session_in(body: bytes, address: Address) -> tuple[Any, str]:
    """Return the value of a body that may start a session, and the session that it names, or an empty string."""
    value = parse_json(body) if body else {}
    given = value.get(STARTS_SESSION[address.kind]) if isinstance(value, dict) else None
    return value, given if isinstance(given, str) else ""


def with_body(request: Any, body: bytes) -> Request:
    """Return the same request with a body that has been read."""
    headers = {name: text for name, text in request.headers.items() if name.lower() != "content-length"}
    return Request(request.url, method=request.method, headers=headers, body=body)


async def serve(app: ASGIApp, request: Any, env: Any) -> Any:
    """Return the app's response. Its lifespan is not run: it would begin and end with every request."""
    response, _ = await asgi.process_request(app, request, env, None)
    return response


def not_a_hook() -> Problem:
    """Return the error for a token that completes nothing."""
    return Problem(404, "not_found", "There is no such route: /openapi.json lists them.")


def rejection(error: Exception) -> Any:
    """Return an error as the response that the HTTP server sends."""
    response = problem_of(error).response()
    return Response(bytes(response.body).decode(), status=response.status_code, headers=dict(response.headers))
