"""Erase one user: every session with its forks and descendants, streams, usage, memories.

Sessions are deleted through the executor, which stops their runs first. What carries no user id cannot be found here:
usage kept on purpose when its session was deleted, memories of entities with other names, exports, backups and logs.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ..errors import StoreUnavailable
from ..executor import AgentExecutor
from ..ids import ensure_id
from ..stores.memory.contract import MemoryStore
from ..stores.paging import MAX_PAGE
from ..stores.state.contract import StateStore

MAX_ROUNDS = 1_000
"""How many pages of sessions are deleted before a user who keeps creating new ones is reported."""


class Erased(msgspec.Struct):
    """What `erase_user` deleted. `sessions` counts those named by the user, not their descendants."""

    user_id: str
    sessions: int = 0
    memories: int = 0


async def erase_user(
    executor: AgentExecutor,
    state_store: StateStore,
    memory_store: MemoryStore,
    user_id: str,
    *,
    entities: Iterable[str] = (),
) -> Erased:
    """Delete everything stored for a user. *Idempotent:* after an error, call it again.

    Memories are deleted for the entity named like the user, where `ToolContext.memory` stores them, and for
    `entities`. Raise `StoreUnavailable` if the user's sessions keep appearing: revoke the user's access first.
    """
    erased = Erased(ensure_id(user_id, "user_id"))
    names = {user_id, *(ensure_id(entity, "entity") for entity in entities)}
    for _ in range(MAX_ROUNDS):
        page = await state_store.list_sessions(user_id=user_id, limit=MAX_PAGE, count=False)
        if not page.items:
            break
        for session in page.items:
            erased.sessions += await executor.delete_session(session.session_id)
    else:
        raise StoreUnavailable(f"User {user_id!r} keeps creating sessions: revoke access, then erase again.")
    for name in sorted(names):  # last: a run that was still going could have stored one more
        erased.memories += await memory_store.delete_entity(name)
    return erased
