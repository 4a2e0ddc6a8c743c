"""`helix verify`: read everything back and check that it is consistent.

Works on any backend, through the contract only. Reads page by page, so a store of any size can be verified.
`repair_session` completes what a dead process left unfinished if there is only one way to complete it; anything that
could lose data is only reported.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from ..clock import system_clock
from ..codec import encode
from ..errors import HelixError
from ..lifecycle import SESSION_TERMINAL
from ..stores.state.contract import StateStore
from ..streams.contract import StreamManager
from ..types import RunRecord, RunStatus, SessionState

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
        yield orphan, ["rows are kept of it, but there is no such session"]


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
    for run in await _unclosed_runs(state_store, state):
        yield f"is {state.status}, but the record of its run {run.run_id} says that it is running"


async def _family_problems(state_store: StateStore, state: SessionState) -> AsyncIterator[str]:
    """Return dangling links: a session whose parent is gone, or a reference to a child that does not exist."""
    for what, other in (("parent", state.parent_session_id), ("root", state.root_session_id)):
        if other is not None and not await state_store.session_exists(other):
            yield f"its {what} {other!r} is missing"
    for ref in await state_store.list_sub_session_refs(state.session_id):
        if ref.remote is None and not await state_store.session_exists(ref.sub_session_id):
            yield f"notes a child {ref.sub_session_id!r} that is missing"


async def _unclosed_runs(state_store: StateStore, state: SessionState, now: int | None = None) -> list[RunRecord]:
    """Runs of a session that has ended which nobody closed, and nobody is closing now."""
    if state.status not in SESSION_TERMINAL:
        return []
    moment = system_clock() if now is None else now
    runs = await state_store.list_runs(state.session_id)
    return [run for run in runs if run.status == "running" and (run.lease_until or 0) <= moment]


async def repair_session(
    state_store: StateStore, stream_manager: StreamManager, session_id: str, *, now: int | None = None
) -> list[str]:
    """Close the runs and the stream that an ended session left open; return what was done. *Idempotent.*

    If the session does not exist, remove what is left of it.
    """
    state = await state_store.load_state(session_id)
    if state is None:
        return ["removed what was left of it"] if await state_store.drop_orphan(session_id) else []
    if state.status not in SESSION_TERMINAL:
        return []
    done: list[str] = []
    runs = await state_store.list_runs(session_id)
    unclosed = await _unclosed_runs(state_store, state, now)
    if any(run.status == "running" and run not in unclosed for run in runs):
        return []  # somebody is at it
    for run in unclosed:
        status: RunStatus = "completed" if state.status == "completed" else "failed"
        await state_store.update_run_status(run.run_id, status, error=state.error, output=state.output)
        done.append(f"closed the record of run {run.run_id}")
    info = await stream_manager.get_stream_info(state.stream_id)
    if info is not None and info.status in ("active", "paused"):
        if state.status == "completed":
            await stream_manager.end_stream(state.stream_id, state.output)
        else:
            await stream_manager.fail_stream(state.stream_id, state.error or "failed")
        done.append(f"ended the stream {state.stream_id!r}")
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
