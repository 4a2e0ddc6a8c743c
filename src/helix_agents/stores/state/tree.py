"""Find the descendants of a session, through the contract only."""

from __future__ import annotations

from ...types import SessionState
from ..paging import MAX_PAGE
from .contract import StateStore


async def session_tree(store: StateStore, session_id: str) -> list[SessionState]:
    """Return a session and its descendants by `parent_session_id`, without custom state; empty if there is no such
    session."""
    top = await store.load_state(session_id)
    found = {} if top is None else {session_id: top}
    waiting = list(found)
    while waiting:
        parent, cursor = waiting.pop(), None
        while True:
            page = await store.list_sessions(parent_session_id=parent, limit=MAX_PAGE, cursor=cursor, count=False)
            for child in page.items:
                if child.session_id not in found:  # parents may form a cycle
                    found[child.session_id] = child
                    waiting.append(child.session_id)
            cursor = page.next_cursor
            if cursor is None:
                break
    return list(found.values())
