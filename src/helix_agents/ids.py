"""Ids: which strings are allowed, and the format of checkpoint ids and step ids. Pure; random ids come from
`clock.py`."""

from __future__ import annotations

import re

from .errors import InvalidArgument, shown

MAX_ID_LENGTH = 256


def ensure_id(value: object, what: str) -> str:
    """Return the id. Raises `InvalidArgument` unless it has 1 to 256 characters, no control characters and no
    braces."""
    if not isinstance(value, str) or not value:
        raise InvalidArgument(f"{what} must be a non-empty string, not {shown(value)}.")
    if len(value) > MAX_ID_LENGTH:
        raise InvalidArgument(f"{what} has {len(value)} characters; at most {MAX_ID_LENGTH} are allowed.")
    return ensure_printable(value, what)


RESERVED_PREFIX = "helix/"
"""Ids that start with it belong to the library."""


def ensure_own_id(value: object, what: str) -> str:
    """Return the id. Raises `InvalidArgument`, also for an id that belongs to the library."""
    if isinstance(value, str) and value.startswith(RESERVED_PREFIX):
        raise InvalidArgument(f"{what} must not start with {RESERVED_PREFIX!r}, which is reserved: {shown(value)}")
    return ensure_id(value, what)


def ensure_printable(value: object, what: str) -> str:
    """Return the string. Raises `InvalidArgument` if it has control characters, lone surrogates or braces."""
    if not isinstance(value, str):
        raise InvalidArgument(f"{what} must be a string, not {shown(value)}.")
    if not value.isprintable() or "{" in value or "}" in value:
        for char in value:
            if char in "{}" or ord(char) < 32 or 127 <= ord(char) < 160 or 0xD800 <= ord(char) < 0xE000:
                raise InvalidArgument(f"{what} must not contain {char!r}: {shown(value)}")
    return value


def checkpoint_id(session_id: str, step_count: int, epoch_ms: int, unique: str) -> str:
    """Return the id of a checkpoint; `unique` supplies the last six digits."""
    return f"cpv1-{session_id}-s{step_count}-t{epoch_ms}-{unique[:6]}"


_BEHIND_SESSION = re.compile(r"-s\d+-t(\d{1,18})-")


def checkpoint_time(session_id: str, checkpoint_id: str) -> int | None:
    """Return when a checkpoint of that session was made, according to its id; None if the id has another form."""
    start = f"cpv1-{session_id}"
    found = _BEHIND_SESSION.match(checkpoint_id, len(start)) if checkpoint_id.startswith(start) else None
    return None if found is None else int(found[1])


def step_id(run_id: str, number: int) -> str:
    """Return the id of a run's step."""
    return f"{run_id}-{number}"
