"""X3: pending questions that a branch switch or a checkpoint brings back."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from ...executor import AgentExecutor, Follower, StreamPlace, outcome_without_stream
from ...llm.contract import ModelRequest
from ...llm.scripted import Call, Line, ScriptedLLM
from ..expect import expect, expect_same
from ..harness import Harness, StoreSet
from .harness import check, chunks_of, custom_state, executing, make_executor, of_type, transcript
from .mortal import Died, Life
from .view import View
from .x3_people import People

PATIENCE_SECONDS = 20
CALLS = [Call("ask", {"question": "Color?"}), Call("work"), Call("delete", {"path": "/tmp"})]


def _reply(request: ModelRequest) -> Line:
    return CALLS if request.messages[-1]["content"] == "Go" else "Done."


async def _branch(executor: AgentExecutor, session_id: str) -> None:
    """Switch to another branch with the same questions, and back."""
    left = await executor.regenerate(session_id)
    await left.result()
    branches = await executor.list_branches(session_id)
    await executor.switch_branch(session_id, next(it.branch_id for it in branches if not it.is_active))


async def _checkpoint(executor: AgentExecutor, session_id: str) -> None:
    """Abort the session while it waits, and restore it."""
    latest = (await executor.services.store.list_checkpoints(session_id, limit=1)).items[0]
    await executor.abort(session_id, "never mind")
    await executor.restore(session_id, latest.checkpoint_id)


WAYS: tuple[Callable[[AgentExecutor, str], Awaitable[None]], ...] = (_branch, _checkpoint)


@check("X3", "questions restored by a branch or checkpoint wait on a paused stream, which then shows their calls")
async def questions_come_back(harness: Harness) -> None:
    stores = await harness.open_stores()
    for come_back in WAYS:
        for approved in (True, False):
            people, session_id = People(), f"{come_back.__name__}-{approved}"
            async with executing(stores, ScriptedLLM(_reply), agents=[people.agent]) as executor:
                await executor.run("main", "Go", session_id=session_id)
                await come_back(executor, session_id)
                await _expect_waiting(stores, executor, session_id)
                await executor.submit_tool_result(session_id, "call_1_1", result="blue")
                await executor.submit_tool_result(session_id, "call_1_3", approved=approved)
                await (await executor.resume("main", session_id)).result()
            await _expect_whole(stores, session_id)


async def _expect_waiting(stores: StoreSet, executor: AgentExecutor, session_id: str) -> None:
    info = await stores.streams.get_stream_info(session_id)
    expect_same(info and info.status, "paused", f"{session_id}: the stream")
    async with executor.watch(session_id) as view:
        roles = [message["role"] for message in view.messages]
        pending = sorted(view.session.pending_client_tool_calls)
    expect_same(roles, ["user", "assistant"], f"{session_id}: the messages of a snapshot, which no chunk repeats")
    expect_same(pending, ["call_1_1", "call_1_3"], f"{session_id}: the questions")


async def _expect_whole(stores: StoreSet, session_id: str) -> None:
    view, chunks = View(), await chunks_of(stores, session_id)
    for chunk in chunks:
        view.take(chunk)
    ended = [chunk["tool_call_id"] for chunk in of_type(chunks, "tool_end")]
    shown = {chunk["tool_call_id"] for chunk in of_type(chunks, "tool_arg_delta")}
    expect_same(sorted(ended), ["call_1_1", "call_1_2", "call_1_3"], f"{session_id}: the outcomes on the stream")
    expect_same(sorted(shown), sorted(ended), f"{session_id}: the calls on the stream")
    expect_same(view.summary()["output"], "Done.", f"{session_id}: the output on the stream")
    wanted: Any = await custom_state(stores, session_id)
    expect_same(view.state({"n": 0}), wanted, f"{session_id}: the state of a reader")
    roles = [message["role"] for message in await transcript(stores, session_id)]
    expect_same(roles, ["user", "assistant", "tool", "tool", "tool", "assistant"], f"{session_id}: the conversation")


@check("X3", "a reader stops wherever the process that restored the session it reads died", kind="faults")
async def no_reader_waits_for_a_dead_restore(harness: Harness) -> None:
    stores, people = await harness.open_stores(), People()
    restored: list[str] = []
    async with executing(stores, ScriptedLLM(_reply), agents=[people.agent]) as executor:
        for prepare in (_aborted, _two_turns):
            for last in itertools.count(1):
                session_id, life = f"{prepare.__name__}-{last}", Life(last, reply_lost=True)
                checkpoint_id = await prepare(executor, session_id)
                dying = make_executor(life.wrap(stores), ScriptedLLM([]), agents=[people.agent])
                with suppress(Died):
                    await dying.restore(session_id, checkpoint_id)
                restored.append(session_id)
                if not life.over:
                    break
        await asyncio.gather(*(_expect_readers_stop(stores, executor, session_id) for session_id in restored))


async def _aborted(executor: AgentExecutor, session_id: str) -> str:
    """Abort a session that waits; return the checkpoint before that."""
    await executor.run("main", "Go", session_id=session_id)
    checkpoint_id = await _latest(executor, session_id)
    await executor.abort(session_id, "never mind")
    return checkpoint_id


async def _two_turns(executor: AgentExecutor, session_id: str) -> str:
    """Complete a turn, and begin another one; return the checkpoint between them."""
    await executor.run("main", "Be quick.", session_id=session_id)
    checkpoint_id = await _latest(executor, session_id)
    await executor.run("main", "Go", session_id=session_id)
    return checkpoint_id


async def _latest(executor: AgentExecutor, session_id: str) -> str:
    return (await executor.services.store.list_checkpoints(session_id, limit=1)).items[0].checkpoint_id


async def _expect_readers_stop(stores: StoreSet, executor: AgentExecutor, session_id: str) -> None:
    """Read a stream as a server does and as a handle does, each until it stops."""
    session = await stores.state.load_state(session_id)
    info = await stores.streams.get_stream_info(session_id)
    handle = await executor.get_handle("main", session_id)
    assert session is not None
    assert info is not None
    assert handle is not None
    place = StreamPlace(session_id, session_id, info.first_sequence - 1)
    follower = Follower(executor.services, place, heartbeat_seconds=0.05)
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while follower.outcome is None:
                await follower.read()
            async for _ in handle.stream(from_sequence=place.from_sequence):
                pass
    except TimeoutError:
        expect(False, f"{session_id}: readers wait, the stream is {info.status}, the session {session.status}")
    finally:
        await follower.close()
    if info.status == "active":
        expect_same(follower.outcome, outcome_without_stream(session), f"{session_id}: the outcome")
