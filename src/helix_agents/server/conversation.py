"""Find what is new in a conversation that the client sends in full with every request (AG-UI, the AI SDK).

The conversation is stored here. A request continues it if its user messages start with the stored ones; the rest is
new. Anything else is a conversation that has diverged, and is rejected: appending it would show the model a mix of two.
The assistant's messages are not compared: only the server's copy counts. A client may also ask for another reply, or
send a stored user message with new content: then the conversation continues on a new branch. AG-UI has no word for
another reply: its clients remove the old one, so that the list ends with the stored user message.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..content import Content
from ..errors import InvalidArgument
from ..executor import stream_of
from ..lifecycle import SUSPENDED
from ..messages import Message, is_from_user
from ..types import SessionState
from .answers import ToolResult, submit_answer
from .context import ServerContext
from .endpoints import Call
from .problems import Problem
from .wire.translate import UiMessageStream
from .wire.ui_messages import reply_id


class Said(NamedTuple):
    """A user message from a client: its position in the client's list, its content, and the client's id for it."""

    position: int
    content: Content
    id: Any = None


class Rewrite(NamedTuple):
    """A rewritten turn: new content for a user message or, without content, another reply.

    `message_id`: the user message, or the reply that is not wanted; None: the last reply. `position`: how many user
    messages come before the one that is replied to.
    """

    message_id: str | None
    content: Content | None
    position: int


class Continued(NamedTuple):
    """The current position of a client's conversation: the session, and the position from which its stream is new.

    `user_message_count`: how many user messages it has by now. `continues`: the client has the start of the reply.
    """

    session: SessionState
    from_sequence: int
    user_message_count: int
    continues: bool


async def session_of(call: Call, session_id: str) -> SessionState | None:
    """Return the session of a chat with the agent of the path; None if it is new."""
    agent = call.context.agent(call.path("agent"))
    session = await call.context.session_or_new(call.user, session_id)
    if session is not None and session.agent_type != agent.name:
        raise InvalidArgument(f"Session {session_id!r} belongs to agent {session.agent_type!r}, not to {agent.name!r}.")
    return session


async def continue_conversation(
    call: Call,
    session: SessionState | None,
    session_id: str,
    said: Sequence[Said],
    answers: Sequence[ToolResult],
    *,
    edits: str | None = None,
    regenerates: bool = False,
    key: str | None = None,
) -> Continued:
    """Run what a client's conversation adds to the stored one: answers to pending calls, or new user messages.

    `edits`: the stored message that the last one may replace. `regenerates`: the last one gets another reply. `key`:
    identifies the request; given by clients that also ask for another reply by leaving the old one out. If the
    conversation adds nothing, the client has missed the response to an earlier request: its stream is repeated.
    """
    context = call.context
    stored = [] if session is None else await stored_user_messages(context, session)
    change = None if answers else edited(stored, said, edits)
    if session is not None and key is not None and change is None and not answers:
        regenerates = regenerates or _leaves_reply_out(session, stored, len(said) - 1, edits)
        regenerates = regenerates and not await _has_started_run(context, session, key)
    if session is not None and regenerates:
        change = await _regenerated(context, session, stored, said)
    if session is not None and change is not None:
        return await _rewrite(call, session, change, key)
    new = new_messages(stored, said)
    if answers and new:
        raise InvalidArgument("Send the responses to pending calls first, then the new message.")
    if session is not None and answers:
        receipts = [await submit_answer(context, call.user, session, answer) for answer in answers]
        resumed = any(receipt.run_id for receipt in receipts)
        return await _current(call, session_id, len(stored), resumed=resumed, continues=True)
    if new:
        return await _start(call, session, session_id, len(stored), new, key)
    if session is None:
        raise InvalidArgument("The request has no user message and no response to a pending call.")
    return await _current(call, session_id, len(stored), resumed=True, continues=False)


async def stored_user_messages(context: ServerContext, session: SessionState) -> list[Message]:
    """Return the user messages of a session, including those that no run has read yet."""
    page = await context.store.get_messages(session.session_id, limit=None)
    queued = [entry["message"] for entry in session.queued_messages]
    return [message for message in [*page.items, *queued] if is_from_user(message)]


async def ui_message_stream(
    context: ServerContext, session: SessionState, *, can_reset: bool = True
) -> UiMessageStream:
    """Return the form of a stream of the session's current turn, from its start, for the AI SDK."""
    count = len(await stored_user_messages(context, session)) - len(session.queued_messages)
    return UiMessageStream(reply_id(session.session_id, count), can_reset=can_reset)


def new_messages(stored: Sequence[Message], said: Sequence[Said]) -> list[Message]:
    """Return the user messages after the stored ones, ready to be sent. Raises a 409 `Problem` if they differ.

    A client that sends none of them has none to add.
    """
    for position, message in enumerate(stored if said else ()):
        if position >= len(said):
            raise _diverged(said[-1].position + 1)
        if not _is_same(message, said[position]):
            raise _diverged(said[position].position)
    return [{"role": "user", "content": each.content, "id": each.id} for each in said[len(stored) :]]


def edited(stored: Sequence[Message], said: Sequence[Said], message_id: str | None) -> Rewrite | None:
    """Return the edit that the last user message is; None if it is not one.

    It must have the id and the position of a stored one, after the same messages, and other content.
    """
    place = len(said) - 1
    if message_id is None or not 0 <= place < len(stored) or stored[place].get("id") != message_id:
        return None
    if _is_same(stored[place], said[place]) or not all(map(_is_same, stored[:place], said)):
        return None
    return Rewrite(message_id, said[place].content, place)


async def _regenerated(
    context: ServerContext, session: SessionState, stored: Sequence[Message], said: Sequence[Said]
) -> Rewrite:
    """Return the turn of the last user message, to run again. Raises a 409 `Problem` if it is not a stored one."""
    place = len(said) - 1
    if not said or not all(map(_is_same, stored, said)) or place >= len(stored):
        same = next((at for at, pair in enumerate(zip(stored, said, strict=False)) if not _is_same(*pair)), place)
        raise _diverged(said[same].position if said else 0)
    if place == len(stored) - 1:
        return Rewrite(None, None, place)
    page = await context.store.get_messages(session.session_id, limit=None)
    users = [at for at, message in enumerate(page.items) if is_from_user(message)]
    replies = [each for each in page.items[users[place] : users[place + 1]] if each["role"] == "assistant"]
    if not replies:
        raise _diverged(said[place].position)
    return Rewrite(replies[0].get("id"), None, place)


def _leaves_reply_out(session: SessionState, stored: Sequence[Message], place: int, message_id: str | None) -> bool:
    """Return whether a conversation ends with a stored user message whose turn is over."""
    if message_id is None or not 0 <= place < len(stored) or stored[place].get("id") != message_id:
        return False
    is_open = session.status == "active" or session.status in SUSPENDED
    return place < len(stored) - 1 or not is_open


async def _has_started_run(context: ServerContext, session: SessionState, key: str) -> bool:
    return any(run.idempotency_key == key for run in await context.store.list_runs(session.session_id))


def _is_same(stored: Message, said: Said) -> bool:
    return bool(_comparable(said.content) == _comparable(stored.get("content")))


def _comparable(content: Any) -> Any:
    """Return the parts of a content that must be equal in both conversations."""
    if not isinstance(content, list):
        return content
    return [part.get("text", _file(part)) for part in content if isinstance(part, dict)]


def _file(part: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what identifies a file. Its bytes may have been stored as a blob since: their digest is the same."""
    digest = part.get("blob")
    if (data := part.get("data")) is not None:
        with contextlib.suppress(ValueError):
            digest = f"sha256:{hashlib.sha256(base64.b64decode(data)).hexdigest()}"
    return part.get("type"), part.get("media_type"), digest, part.get("url")


def _diverged(first_difference: int) -> Problem:
    return Problem(
        409,
        "conversation_diverged",
        "The conversation does not continue the stored one: load it again (GET /sessions/{id}/messages?format=...).",
        first_difference=first_difference,
    )


async def _start(
    call: Call,
    session: SessionState | None,
    session_id: str,
    stored_count: int,
    new: list[Message],
    key: str | None,
) -> Continued:
    with call.starting_run():
        handle = await call.context.executor.execute(
            call.context.agent(call.path("agent")),
            new,
            session_id=session_id,
            user_id=call.user.owner_id if session is None else session.user_id,
            if_exists="reject" if session is None else "continue",
            idempotency_key=key,
        )
    current = await call.context.session(call.user, session_id)
    return Continued(current, handle.start_sequence, stored_count + len(new), continues=False)


async def _rewrite(call: Call, session: SessionState, change: Rewrite, key: str | None) -> Continued:
    executor, session_id = call.context.executor, session.session_id
    agent = call.context.agent(call.path("agent"))
    options: Any = {"agent": agent, "user_id": session.user_id, "idempotency_key": key}
    with call.starting_run():
        if change.content is None or change.message_id is None:
            handle = await executor.regenerate(session_id, message_id=change.message_id, **options)
        else:
            handle = await executor.edit(session_id, change.message_id, change.content, **options)
    current = await call.context.session(call.user, session_id)
    return Continued(current, handle.start_sequence, change.position + 1, continues=False)


async def _current(call: Call, session_id: str, count: int, *, resumed: bool, continues: bool) -> Continued:
    """Return the session's position: the start of its latest run or, if the client has seen that, its end."""
    session = await call.context.session(call.user, session_id)
    if resumed or session.status == "active":
        run = await call.context.store.get_current_run(session_id)
        return Continued(session, run.start_sequence if run else 0, count, continues)
    info = await stream_of(call.context.streams, session)
    return Continued(session, info.latest_sequence if info else 0, count, continues)
