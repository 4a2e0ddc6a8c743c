"""A file of users and their tokens, for `helix serve --users FILE`: one TOML table per user.

    [ann]
    token = "a long random string"

    [root]
    tokens = ["the new one", "the old one"]    # both are valid while clients change over
    is_admin = true

The file is read once. To revoke a token, change the file and restart the server.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec

from ..errors import InvalidArgument
from ..ids import ensure_id
from .auth import MIN_TOKEN_LENGTH, Authenticate, User, bearer_tokens


class UserEntry(msgspec.Struct, forbid_unknown_fields=True):
    """One user's table."""

    token: str | None = None
    tokens: list[str] = []
    is_admin: bool = False


def users_from_file(path: Path) -> Authenticate:
    """Return an `authenticate` that knows the users of a file. Raises `InvalidArgument`; its message has no token."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
        entries = msgspec.convert(tables, dict[str, UserEntry])
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"Cannot read the users in {path}: {error}.") from error
    except tomllib.TOMLDecodeError as error:
        raise InvalidArgument(f"{path} is not a TOML file: {error}.") from None
    except msgspec.ValidationError as error:
        raise InvalidArgument(
            f'{path} does not list users: {error}. Write a table for each user: [NAME], and below it token = "...".'
        ) from None
    tokens: dict[str, User] = {}
    for user_id, entry in entries.items():
        ensure_id(user_id, f"A user in {path}")
        given = [*entry.tokens, *([] if entry.token is None else [entry.token])]
        if not given:
            raise InvalidArgument(f"User {user_id!r} in {path} has no token.")
        for token in given:
            if token in tokens:
                raise InvalidArgument(f"Users {tokens[token].id!r} and {user_id!r} in {path} have the same token.")
            tokens[ensure_strong(token, f"The token of user {user_id!r}")] = User(user_id, is_admin=entry.is_admin)
    if not tokens:
        raise InvalidArgument(f"{path} has no users.")
    return bearer_tokens(tokens)


def ensure_strong(token: str, what: str) -> str:
    """Return a token that cannot be guessed by its length, or raise `InvalidArgument`."""
    if len(token.strip()) < MIN_TOKEN_LENGTH:
        raise InvalidArgument(
            f"{what} has fewer than {MIN_TOKEN_LENGTH} characters. Choose a random one: "
            'python -c "import secrets; print(secrets.token_urlsafe())"'
        )
    return token
