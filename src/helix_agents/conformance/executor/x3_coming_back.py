"""X3: pending questions that a branch switch or a checkpoint brings back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from ...executor import AgentExecutor
from ...llm.contract import ModelRequest
from ...llm.scripted import Call, Line, ScriptedLLM
from ..expect import expect_same
from ..harness import Harness, StoreSet
from .harness import check, chunks_of, custom_state, executing, of_type, transcript
from .view import View
from .x3_people import People

CALLS = [Call("ask", {"question": "Color?"}), Call("work"), Call("delete", {"path": "/tmp"})]


def _reply(request: ModelRequest) -> Line:
    return CALLS if request.messages[-1]["role"] == "user" else "Done."


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
