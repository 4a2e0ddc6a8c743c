"""Who is asking: users, and bearer tokens as the simplest way to know them.

`authenticate` is a function of the connection; what a user may see is decided in `desk.py`.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Awaitable, Callable, Mapping

import msgspec
from starlette.requests import HTTPConnection

from ..errors import InvalidArgument
from ..ids import ensure_id

QUERY_TOKEN = "helix_agents.query_token"
"""Where the app puts a token that came as `?access_token=`, on the routes that take one (`cleaning.py`)."""


class User(msgspec.Struct, frozen=True):
    """Somebody who may use the server: sees the sessions with this `user_id`; an admin sees all."""

    id: str
    is_admin: bool = False


ANONYMOUS = User("", is_admin=True)
"""Whoever asks an app that was built with `allow_unauthenticated=True`. Its sessions have no `user_id`."""

Authenticate = Callable[[HTTPConnection], User | Awaitable[User | None] | None]


def bearer_tokens(tokens: Mapping[str, User]) -> Authenticate:
    """Know users by `Authorization: Bearer <token>`, and by `?access_token=` on streams.

    Tokens are compared in constant time, and only their digests are kept.
    """
    known: list[tuple[bytes, User]] = []
    for token, user in tokens.items():
        if not isinstance(token, str) or not token:
            raise InvalidArgument("A token is a non-empty text.")
        ensure_id(user.id, "the id of a user")
        known.append((_digest(token), user))

    def authenticate(connection: HTTPConnection) -> User | None:
        given = bearer_token(connection)
        if given is None:
            return None
        digest = _digest(given)
        found: User | None = None
        for other, user in known:  # all of them, whether found or not
            if hmac.compare_digest(digest, other):
                found = user
        return found

    return authenticate


def bearer_token(connection: HTTPConnection) -> str | None:
    """The token of a request; None if it has none."""
    scheme, _, token = connection.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    given: str | None = connection.scope.get(QUERY_TOKEN)
    return given


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
