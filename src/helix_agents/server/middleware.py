"""Normalize a request before it reaches a route: check its host, remove tokens from the address, keep slashes in ids.

Plain ASGI around the whole app, because an access log reads the address from the scope that it shares with us.
"""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, unquote, urlencode

from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from .auth import QUERY_TOKEN
from .hosts import HostRules
from .problems import Problem

TOKEN_PARAMETER = "access_token"
TAKES_QUERY_TOKEN = re.compile(r"/(stream|ws)/[^/]+")
ENCODED_SLASH = re.compile(rb"%2f", re.IGNORECASE)
SLASH_MARK = "\x1f"
"""Stands for a slash inside an id until the route has been found. No id may contain a control character."""


class IdConvertor(Convertor[str]):
    """One id in a path. It may contain a slash, sent as `%2F`."""

    regex = "[^/]+"

    def convert(self, value: str) -> str:
        """Return the id in a part of the path."""
        return value.replace(SLASH_MARK, "/")

    def to_string(self, value: str) -> str:
        """Return the part of a path for an id."""
        return value


register_url_convertor("id", IdConvertor())


class NormalizeRequest:
    """The outermost layer of the app."""

    def __init__(self, app: ASGIApp, hosts: HostRules) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check and normalize a request, then pass it on."""
        if scope["type"] in ("http", "websocket"):
            try:
                self._hosts.ensure_host(HTTPConnection(scope))
            except Problem as problem:
                await _reject(problem, scope, receive, send)
                return
            normalize(scope)
        await self._app(scope, receive, send)


async def _reject(problem: Problem, scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await WebSocket(scope, receive, send).send_denial_response(problem.response())
    else:
        await problem.response()(scope, receive, send)


def normalize(scope: Scope) -> None:
    """Normalize the address of one request, in place."""
    _keep_slashes(scope)
    _take_token(scope)


def _keep_slashes(scope: Scope) -> None:
    raw: bytes = scope.get("raw_path") or b""
    if ENCODED_SLASH.search(raw):
        path = unquote(ENCODED_SLASH.sub(SLASH_MARK.encode(), raw).decode("latin-1"))
        root: str = scope.get("root_path", "")
        scope["path"] = path if path.startswith(root) else root + path


def _take_token(scope: Scope) -> None:
    query: bytes = scope.get("query_string", b"")
    if TOKEN_PARAMETER.encode() not in query:
        return
    pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
    tokens = [value for name, value in pairs if name == TOKEN_PARAMETER]
    if not tokens:
        return
    kept = [(name, value) for name, value in pairs if name != TOKEN_PARAMETER]
    scope["query_string"] = urlencode(kept).encode("latin-1")
    route = scope["path"].removeprefix(scope.get("root_path", ""))
    if TAKES_QUERY_TOKEN.fullmatch(route):
        scope[QUERY_TOKEN] = tokens[-1]
