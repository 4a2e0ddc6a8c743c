"""Who may see a session: the one rule, used by every route, stream and list.

A user sees the sessions that have its `user_id`; sub-agents pass it on to their sessions. An admin sees all. Another
user's session looks exactly like one that does not exist, and so do the library's internal streams.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from ..errors import InvalidArgument, SessionNotFound
from ..ids import RESERVED_PREFIX, ensure_id
from ..types import SessionState
from .auth import User

LoadState = Callable[[str], Awaitable[SessionState | None]]


class ListScope(NamedTuple):
    """Which owner's sessions a list shows; None: every owner's. `is_empty`: it shows none at all."""

    user_id: str | None
    is_empty: bool = False


def may_see(user: User, session: SessionState) -> bool:
    """Return whether a user may read and change a session."""
    return user.is_admin or session.user_id == user.id


def list_scope(user: User, asked: str | None) -> ListScope:
    """Return what a list may show to a user who filters by `asked`, the id of an owner."""
    if user.is_admin:
        return ListScope(asked)
    return ListScope(user.id, is_empty=asked not in (None, user.id))


async def visible_session(load: LoadState, user: User, session_id: str) -> SessionState:
    """Load a session for a user. Raises `SessionNotFound` if there is none, or none that the user may see."""
    ensure_id(session_id, "session_id")
    session = None if session_id.startswith(RESERVED_PREFIX) else await load(session_id)
    if session is None or not may_see(user, session):
        raise SessionNotFound(session_id)
    return session


async def reload_session(load: LoadState, seen: SessionState) -> SessionState:
    """Load a session again. Raises `SessionNotFound` if it is gone or has been replaced by another one."""
    session = await load(seen.session_id)
    if session is None or (session.incarnation, session.user_id) != (seen.incarnation, seen.user_id):
        raise SessionNotFound(seen.session_id)
    return session


def ensure_new_id(session_id: str) -> str:
    """Return an id under which a client may create a session, or raise `InvalidArgument`."""
    if "/" in ensure_id(session_id, "session_id"):
        raise InvalidArgument(f"{session_id!r} contains '/': such ids are reserved for sub-agents. Choose another one.")
    return session_id
