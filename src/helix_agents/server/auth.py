"""Who sends a request: users, and bearer tokens as the simplest way to know them.

`authenticate` is a function of the connection. What a user may see is decided in `access.py`.
"""

from __future__ import annotations

import hashlib
import hmac
import inspect
from collections.abc import Awaitable, Callable, Mapping

import msgspec
from starlette.requests import HTTPConnection

from ..errors import InvalidArgument
from ..ids import ensure_id
from ..safe_text import get_logger
from .problems import Problem

logger = get_logger("helix_agents.server")

QUERY_TOKEN = "helix_agents.query_token"
"""The scope key of a token that came as `?access_token=`, on the routes that accept one (`middleware.py`)."""

MIN_TOKEN_LENGTH = 16
"""Shorter tokens can be guessed. `helix serve` rejects them; `bearer_tokens` logs a warning."""


class User(msgspec.Struct, frozen=True):
    """A user of the server, who sees the sessions that have this `user_id`. An admin sees all."""

    id: str
    is_admin: bool = False

    @property
    def owner_id(self) -> str | None:
        """The `user_id` of the sessions that this user creates."""
        return self.id or None


ANONYMOUS = User("", is_admin=True)
"""The user of every request to an app that has no `authenticate`. Its sessions have no `user_id`."""

Authenticate = Callable[[HTTPConnection], User | Awaitable[User | None] | None]


def bearer_tokens(tokens: Mapping[str, User]) -> Authenticate:
    """Return an `authenticate` that knows users by `Authorization: Bearer <token>`, on streams also `?access_token=`.

    Tokens are compared in constant time, and only their digests are kept. Give a user two tokens to replace one.
    """
    known: list[tuple[bytes, User]] = []
    for token, user in tokens.items():
        if not isinstance(token, str) or not token.strip():
            raise InvalidArgument("A token must be a non-empty string that is not blank.")
        if len(token) < MIN_TOKEN_LENGTH:
            logger.warning("The token of user %r has fewer than %d characters.", user.id, MIN_TOKEN_LENGTH)
        ensure_id(user.id, "The id of a user")
        known.append((_digest(token), user))

    def authenticate(connection: HTTPConnection) -> User | None:
        given = bearer_token(connection)
        if given is None:
            return None
        digest = _digest(given)
        found: User | None = None
        for other, user in known:  # compare with all of them, whether found or not
            if hmac.compare_digest(digest, other):
                found = user
        return found

    return authenticate


def bearer_token(connection: HTTPConnection) -> str | None:
    """Return the token of a request, or None."""
    scheme, _, token = connection.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    given: str | None = connection.scope.get(QUERY_TOKEN)
    return given


async def authenticated(authenticate: Authenticate | None, connection: HTTPConnection) -> User:
    """Return the user of a request. Raises a 401 `Problem` for a stranger.

    A user without an id is a bug of `authenticate` (a missing claim, perhaps) and raises an error that becomes a 500:
    as a filter, such an id would match everybody's sessions.
    """
    if authenticate is None:
        return ANONYMOUS
    found = authenticate(connection)
    user = await found if inspect.isawaitable(found) else found
    if user is None:
        raise Problem(
            401, "not_authenticated", "This request needs a valid token.", headers={"WWW-Authenticate": "Bearer"}
        )
    if not isinstance(user, User) or not isinstance(user.is_admin, bool):
        raise TypeError(f"authenticate() must return a User or None, not {type(user).__name__}.")
    try:
        ensure_id(user.id, "The id of a user")
    except InvalidArgument as error:
        raise TypeError(f"authenticate() returned a user without a valid id: {error}") from error
    return user


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
