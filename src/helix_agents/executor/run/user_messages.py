"""User messages on the stream: a run announces each one once, when it reads it.

The chunk belongs to the last committed step, so neither a retried model call nor a crash drops it. A run that continues
another one reads from the stream what that one has announced.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...messages import Message, ids_of, is_from_user
from ..run_context import RunContext


async def announce(context: RunContext, read: Sequence[Message]) -> None:
    """Emit a `user_message` chunk for each message of this turn that has none yet. Sub-agents announce nothing."""
    session, messages = context.owned.session, context.owned.messages
    if session.parent_session_id is not None or not any(map(is_from_user, read)):
        return
    of_this_turn = ids_of(messages[context.run.first_message :])
    is_first_step = session.step_count == context.claim.session.step_count
    if is_first_step and not context.claim.starts:
        chunks = await context.stream.chunks_since(session.step_count)
        of_this_turn -= {chunk["message"]["id"] for chunk in chunks if chunk["type"] == "user_message"}
    for message in read:
        if is_from_user(message) and message.get("id") in of_this_turn:
            context.stream.emit({"type": "user_message", "message": message})
