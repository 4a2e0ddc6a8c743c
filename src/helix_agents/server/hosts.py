"""The hosts and pages that may talk to the server, checked by the `Host` and `Origin` headers of a browser.

A page of another site can make a browser send requests, and a rebound domain name makes them look like same-origin
ones. Programs can send any header: these checks protect people who have a browser, tokens protect the rest.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

from ..errors import InvalidArgument
from .problems import Problem

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
ANY = "*"


class HostRules:
    """The hosts under which an app may be addressed, and the origins whose pages may use it."""

    def __init__(self, *, allow_hosts: Sequence[str], allow_origins: Sequence[str], loopback_only: bool) -> None:
        for name, given in (("allow_hosts", allow_hosts), ("allow_origins", allow_origins)):
            if isinstance(given, str):
                raise InvalidArgument(f"{name} must be a list of strings, not one string: {given!r}.")
        if loopback_only and ANY in allow_origins:
            raise InvalidArgument(
                "allow_origins=['*'] requires authenticate=: otherwise any page could use the server."
            )
        self._origins = frozenset(allow_origins)
        self._hosts = frozenset(host.lower() for host in allow_hosts)
        self._any_host = ANY in self._hosts or not (self._hosts or loopback_only)

    def ensure_host(self, connection: HTTPConnection) -> None:
        """Raise a 421 `Problem` if the request names a host that is not this server's."""
        if self._any_host:
            return
        host = host_name(connection.headers.get("host", ""))
        if host not in self._hosts and not is_loopback(host):
            raise Problem(
                421,
                "misdirected_request",
                "This server does not serve the host that the request names: allow_hosts= lists those it serves.",
            )

    def ensure_origin(self, connection: HTTPConnection) -> None:
        """Raise a 403 `Problem` for a change, or a WebSocket, that a page of another site asks for."""
        origin = connection.headers.get("origin")
        if origin is None or (connection.scope["type"] == "http" and connection.scope["method"] in SAFE_METHODS):
            return
        if origin in self._origins or ANY in self._origins:
            return
        if urlsplit(origin).netloc.lower() != connection.headers.get("host", "").lower():
            raise Problem(403, "forbidden", "Pages of this origin may not use this server: see allow_origins=.")


def host_name(header: str) -> str:
    """Return the name or address in a `Host` header, without the port."""
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.partition(":")[0].rstrip(".").lower()


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach the address."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
