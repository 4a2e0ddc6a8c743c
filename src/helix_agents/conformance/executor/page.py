"""What must hold of a conversation at any time, and what a page that is loaded now must show of it."""

from __future__ import annotations

from ...executor import AgentExecutor
from ...lifecycle import SUSPENDED
from ...messages import Message
from ..expect import expect, expect_same
from ..harness import StoreSet
from .harness import chunks_of, of_type, transcript
from .play import expect_marked_gaps
from .view import View

STREAM_STATUS = {"completed": "ended", "failed": "failed"}
"""The status of the stream of a stopped session; paused if it is not listed."""


async def expect_sound(stores: StoreSet, session_id: str) -> None:
    """Fail if calls and results do not match, or if the stream has a gap without marker or shows something twice."""
    _expect_answered(await transcript(stores, session_id))
    await expect_marked_gaps(stores, session_id)
    view = View()
    for chunk in await chunks_of(stores, session_id):
        view.take(chunk)
    view.summary()  # raises if something is shown twice


def _expect_answered(messages: list[Message]) -> None:
    """Fail if a call has two results, or if a message that is not a result follows a call without one."""
    waiting: set[str] = set()
    for message in messages:
        if message["role"] == "tool":
            expect(message["tool_call_id"] in waiting, f"a second result of {message['tool_call_id']}")
            waiting.remove(message["tool_call_id"])
            continue
        expect(not waiting, f"a {message['role']} message follows calls without result: {sorted(waiting)}")
        waiting = {call["id"] for call in message.get("tool_calls", ())}


async def expect_page(stores: StoreSet, executor: AgentExecutor, session_id: str) -> None:
    """Fail unless a page that is loaded now shows a stopped session as it is stored."""
    async with executor.watch(session_id) as watched:
        session = watched.session
        if session.status == "active":
            return  # restored to the middle of a turn: nothing has stopped it
        info = await stores.streams.get_stream_info(session.stream_id)
        view, whole = View(), View()
        for each in await stores.streams.get_all_chunks(session.stream_id):
            whole.take(each.chunk)
            if each.sequence > watched.sequence:
                view.take(each.chunk)
    expect_same(info and info.status, STREAM_STATUS.get(session.status, "paused"), f"the stream while {session.status}")
    stored = (await stores.state.get_messages(session_id, limit=None)).items
    known = {message["id"] for message in stored if "id" in message}
    shown = {chunk["message"]["id"] for chunk in of_type(whole.chunks, "user_message")}
    expect(shown <= known, f"user messages that are not stored: {sorted(shown - known)}")
    replies = {message["content"] for message in stored if message["role"] == "assistant"}
    texts = {text for key, text in view.summary().items() if key.endswith("text_delta ")}
    expect(texts <= replies, f"replies that are not stored: {texts - replies}")
    if session.status not in SUSPENDED:
        committed = await stores.state.load_state(session_id)
        state = view.state(session.custom_state or {})
        expect_same(state, committed and committed.custom_state, "the state on the page")
