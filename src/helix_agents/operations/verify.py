"""`helix verify`: read everything back and check that it is consistent.

Works on any backend, through the contract only. Reads page by page, so a store of any size can be verified.
`repair_session` completes what a dead process left unfinished if there is only one way to complete it; anything that
could lose data is only reported.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from ..codec import encode
from ..errors import HelixError
from ..executor import UNCLOSED, SessionStores, Standing, close, close_stream, find, stream_of
from ..stores.state.contract import StateStore
from ..streams.contract import StreamManager
from ..types import SessionState

PAGE = 200


async def verify_sessions(
    state_store: StateStore, session_id: str | None = None
) -> AsyncIterator[tuple[str, list[str]]]:
    """Yield each session's id with its problems, for all sessions or one."""
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
            break
    for orphan in await state_store.list_orphans():
        yield orphan, ["it has stored rows, but there is no such session"]


async def session_problems(state_store: StateStore, session_id: str) -> list[str]:
    """Return the problems of one session; an empty list if there are none."""
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
    # Runs may share a turn, and a restore goes back to an earlier one; none is skipped.
    if any(not 1 <= turn <= 1 + max(turns[:place], default=0) for place, turn in enumerate(turns)):
        yield f"the turns of its runs are {turns}"
    async for problem in _checkpoint_problems(state_store, session_id, counted, state.version):
        yield problem
    async for problem in _family_problems(state_store, state):
        yield problem
    seen = (await find(SessionStores(state_store, None), session_id)).seen
    if seen.standing in UNCLOSED:
        yield f"is {state.status}, but the record of its run {seen.run_id} says that it is running"


async def _family_problems(state_store: StateStore, state: SessionState) -> AsyncIterator[str]:
    """Return dangling links: a session whose parent is gone, or a reference to a child that does not exist."""
    for what, other in (("parent", state.parent_session_id), ("root", state.root_session_id)):
        if other is not None and not await state_store.session_exists(other):
            yield f"its {what} {other!r} is missing"
    for ref in await state_store.list_sub_session_refs(state.session_id):
        if ref.remote is None and not await state_store.session_exists(ref.sub_session_id):
            yield f"notes a child {ref.sub_session_id!r} that is missing"


async def repair_session(state_store: StateStore, stream_manager: StreamManager, session_id: str) -> list[str]:
    """Close the run and the stream that a session which has stopped left open; return what was done. *Idempotent.*

    If the session does not exist, remove what is left of it. Raises `AlreadyRunning` or `RunLost` if another process
    continues the session at the same time.
    """
    stores = SessionStores(state_store, stream_manager)
    found = await find(stores, session_id)
    if found.session is None:
        return ["removed what was left of it"] if await state_store.drop_orphan(session_id) else []
    done: list[str] = []
    if found.seen.standing in UNCLOSED and found.run is not None:
        await close(stores, found)
        done.append(f"closed the record of run {found.run.run_id} and its stream")
    elif found.seen.standing in (Standing.COMPLETED, Standing.FAILED):
        info = await stream_of(stream_manager, found.session)
        if info is not None and info.status in ("active", "paused"):
            # Under the fence of the last owner: a process that continues the session has a higher one.
            await close_stream(stream_manager, found.session, None, found.session.owner_epoch, rewind=False)
            done.append(f"ended the stream {found.session.stream_id!r}")
    return done


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
