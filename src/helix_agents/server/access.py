"""Who may see a session: the one rule, used by every route, stream and list.

A user sees the sessions that have its `user_id`; sub-agents pass it on to their sessions. An admin sees all. Another
user's session looks exactly like one that does not exist, and so do the library's internal streams.
"""

from __future__ import annotations

from typing import NamedTuple

from ..errors import InvalidArgument, SessionNotFound
from ..ids import RESERVED_PREFIX, ensure_id
from ..stores.state.contract import StateStore
from ..types import Conversation, SessionState
from .auth import User


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


async def find_session(
    store: StateStore, user: User, session_id: str, *, custom_state: bool = False
) -> Conversation | None:
    """Load a session and its latest run for a user; None if there is no such session.

    Raises `SessionNotFound` for a session that the user may not see. Custom state is None unless asked for.
    """
    ensure_id(session_id, "session_id")
    if session_id.startswith(RESERVED_PREFIX):
        return None
    found = await store.load_conversation(session_id, last=0, custom_state=custom_state)
    if found is not None:
        ensure_visible(user, found.session)
    return found


def ensure_visible(user: User, session: SessionState) -> None:
    """Raise `SessionNotFound` for a session that the user may not see."""
    if not may_see(user, session):
        raise SessionNotFound(session.session_id)


async def reload_session(store: StateStore, seen: SessionState) -> Conversation:
    """Load a session again, without custom state. Raises `SessionNotFound` if it is gone or has been replaced."""
    found = await store.load_conversation(seen.session_id, last=0, custom_state=False)
    if found is None or (found.session.incarnation, found.session.user_id) != (seen.incarnation, seen.user_id):
        raise SessionNotFound(seen.session_id)
    return found


def ensure_new_id(session_id: str) -> str:
    """Return an id under which a client may create a session, or raise `InvalidArgument`."""
    if "/" in ensure_id(session_id, "session_id"):
        raise InvalidArgument(f"{session_id!r} contains '/': such ids are reserved for sub-agents. Choose another one.")
    return session_id
