"""`helix verify`: read everything back and compare what a store says about itself with what it holds.

Works on any backend, through the contract alone. Reads page by page, so a store of any size can be verified.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from .codec import encode
from .errors import HelixError
from .stores.state.contract import StateStore

PAGE = 200


async def verify_sessions(
    state_store: StateStore, session_id: str | None = None
) -> AsyncIterator[tuple[str, list[str]]]:
    """Each session's id with the problems found in it; all sessions, or only one."""
    if session_id is not None:
        yield session_id, await session_problems(state_store, session_id)
        return
    cursor = None
    while True:
        page = await state_store.list_sessions(limit=PAGE, cursor=cursor, count=False)
        for session in page.items:
            yield session.session_id, await session_problems(state_store, session.session_id)
        cursor = page.next_cursor
        if cursor is None:
            return


async def session_problems(state_store: StateStore, session_id: str) -> list[str]:
    """What is wrong with one session; an empty list if nothing is."""
    try:
        return [problem async for problem in _problems(state_store, session_id)]
    except HelixError as error:
        return [f"cannot be read: {error}"]


async def _problems(state_store: StateStore, session_id: str) -> AsyncIterator[str]:
    state = await state_store.load_state(session_id)
    if state is None:
        yield "there is no such session"
        return
    encode(state.custom_state)
    counted = await state_store.get_message_count(session_id)
    found = 0
    for offset in range(0, counted, PAGE):
        found += len((await state_store.get_messages(session_id, offset=offset, limit=PAGE)).items)
    if found != counted:
        yield f"counts {counted} messages and holds {found}"
    turns = [run.turn for run in await state_store.list_runs(session_id)]
    if turns != list(range(1, len(turns) + 1)):
        yield f"the turns of its runs are {turns}"
    async for problem in _checkpoint_problems(state_store, session_id, counted, state.version):
        yield problem


async def _checkpoint_problems(
    state_store: StateStore, session_id: str, messages: int, version: int
) -> AsyncIterator[str]:
    offset, later = 0, version
    while True:
        page = await state_store.list_checkpoints(session_id, limit=PAGE, offset=offset)
        for listed in page.items:
            whole = await state_store.get_checkpoint(session_id, listed.checkpoint_id)
            if whole is None:
                yield f"lists checkpoint {listed.checkpoint_id} but cannot get it"
            elif whole.state.custom_state is None:
                yield f"checkpoint {listed.checkpoint_id} has no custom state"
            if listed.version > later:
                yield f"checkpoint {listed.checkpoint_id} has version {listed.version}, a later one {later}"
            later = listed.version
            if listed.message_count > messages:
                yield f"checkpoint {listed.checkpoint_id} counts {listed.message_count} messages, there are {messages}"
        offset += len(page.items)
        if not page.has_more:
            return
