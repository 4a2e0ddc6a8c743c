"""Effects of the part of a session that is abandoned by a restore, a fork or an end from outside."""

from __future__ import annotations

from collections.abc import Sequence

from ...messages import Message
from ...types import RunRecord, SessionState
from ..step.decisions import step_id_of
from ..step.ledger import abandoned_effects
from ..step.undo import is_undoing, undo_id, undo_messages
from .observe import Sessions, load_messages


async def abandoned_effects_message(
    services: Sessions, session: SessionState, run: RunRecord | None, checkpoint_id: str | None
) -> list[Message]:
    """Return the message that records the effects abandoned by a restore to a checkpoint or a fork from it."""
    messages = await load_messages(services.store, session.session_id)
    kept = len(messages)
    if checkpoint_id is not None:
        checkpoint = await services.store.get_checkpoint(session.session_id, checkpoint_id)
        kept = kept if checkpoint is None else checkpoint.message_count
    return await _left_by_step(services, session, run, messages, kept)


async def _left_by_step(
    services: Sessions, session: SessionState, run: RunRecord | None, messages: Sequence[Message], kept: int
) -> list[Message]:
    rows = await services.store.list_staged(session.session_id, step_id_of(session, run.run_id if run else ""))
    return abandoned_effects(messages, kept, rows)


async def left_at_failure(
    services: Sessions,
    session: SessionState,
    run: RunRecord | None,
    messages: Sequence[Message],
    failure: tuple[str | None, str | None],
    *,
    undo: bool,
) -> tuple[list[Message], str | None]:
    """Return the messages to append to a session that fails from outside, and the id of a new undo step, if any.

    `messages`: the conversation. `undo`: whether the turn's effects may be undone; then a step that undoes them is
    opened. Otherwise the id is None, and the messages record what the open step did.
    """
    left = await _left_by_step(services, session, run, messages, len(messages))
    if undo and run is not None and not is_undoing(session):
        own_id = undo_id(run.run_id, session.step_count)
        if plan := undo_messages(messages[run.first_message :], left, own_id, *failure):
            return plan, own_id
    return left, None
