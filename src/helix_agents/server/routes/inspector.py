"""Files for browsers: the inspector (a page at `/`, its modules below `/inspector/`) and the client, `/client.js`.

The files contain no data, so anyone may load them; what they show comes from the other routes, with a token. The
content security policy lets the page load itself and ask this server, and nothing more.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    # Browsers revalidate modules each time and get a 304, so an upgrade of the server takes effect immediately.
    "Cache-Control": "no-cache",
    "Vary": "Accept-Encoding",
}


class Asset:
    """One file, ready to be sent: plain, compressed, and with an ETag."""

    def __init__(self, name: str, content: bytes) -> None:
        self.content = content
        self.packed = gzip.compress(content, mtime=0)
        suffix = name[name.rindex(".") :]
        etag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
        self.headers = {**HEADERS, "Content-Type": f"{KINDS[suffix]}; charset=utf-8", "ETag": etag}

    def response(self, request: Request) -> Response:
        """Return the file, or 304 if the browser has it already."""
        if request.headers.get("if-none-match") == self.headers["ETag"]:
            return Response(status_code=304, headers=self.headers)
        if "gzip" in request.headers.get("accept-encoding", ""):
            return Response(self.packed, headers={**self.headers, "Content-Encoding": "gzip"})
        return Response(self.content, headers=self.headers)


def _found(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, bytes]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _found(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(tuple(KINDS)):
            yield prefix + entry.name, entry.read_bytes()


def _with_preloads(page: bytes, paths: Iterable[str]) -> bytes:
    """List all modules in the page, so that a browser requests them in parallel."""
    links = "".join(f'<link rel="modulepreload" href="{path}">' for path in sorted(paths) if path.endswith(".js"))
    return page.replace(b"<!-- modules -->", links.encode())


@cache
def page_routes() -> tuple[BaseRoute, ...]:
    """Return the files as routes. They are read once: a request touches no disk."""
    package = files("helix_agents.server")
    found = dict(_found(package.joinpath("inspector"), "inspector/")) | dict(_found(package.joinpath("client")))
    page = _with_preloads(found.pop("inspector/index.html"), found)

    def route(path: str, asset: Asset) -> Route:
        async def send(request: Request) -> Response:
            return asset.response(request)

        return Route(path, send, methods=["GET"])

    modules = [route(f"/{path}", Asset(path, content)) for path, content in found.items()]
    return (route("/", Asset("index.html", page)), *modules)
