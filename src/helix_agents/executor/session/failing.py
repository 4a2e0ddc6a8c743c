"""Ending a session from outside, because nobody will go on with it: it was aborted, it expired, or its parent ended.

What its run had shown of a step that will never be committed is taken back, so that readers have what is stored.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from ...clock import Clock
from ...errors import IllegalTransition, StreamNotActive, VersionConflict
from ...messages import Message
from ...stores.state.contract import StateStore
from ...streams.contract import StreamManager
from ...types import RunRecord, SessionState
from ..step.decisions import step_id_of, unanswered_calls
from ..step.open_step import OpenStep


class GivenUp(NamedTuple):
    """A session that has just failed, as it was before."""

    session: SessionState
    error: str
    version: int


async def give_up(store: StateStore, session: SessionState, error: str, reason: str) -> GivenUp | None:
    """Let a session fail; None if it has come to rest or changed its status by itself. Then `close_given_up`."""
    swapped = await store.compare_and_set_status(
        session.session_id, [session.status], "failed", error=error, failure_reason=reason
    )
    return GivenUp(session, error, swapped.new_version) if swapped.ok else None


async def close_given_up(store: StateStore, streams: StreamManager | None, given_up: GivenUp, *, clock: Clock) -> None:
    """Close the stream, drop what is staged, and last of all close the run: until then the session can be tidied up."""
    session, error, version = given_up
    run = await store.get_current_run(session.session_id)
    if streams is not None and await streams.get_stream_info(session.stream_id) is not None:
        with suppress(StreamNotActive):  # somebody has closed it already
            await _take_back(store, streams, session, run)
        await streams.fail_stream(session.stream_id, error)
    with suppress(VersionConflict):  # then somebody has begun the next turn
        await store.discard_staging(session.session_id, expected_version=version)
    if run is not None and run.status == "running":
        with suppress(IllegalTransition):
            await store.update_run_status(
                run.run_id, "failed", error=error, completed_at=clock(), expected_status="running"
            )


async def _take_back(store: StateStore, streams: StreamManager, session: SessionState, run: RunRecord | None) -> None:
    """Let readers have the committed state. What was put aside in good order stays told, but for its writes."""
    if run is None or run.status == "running":
        await streams.cleanup_to_step(session.stream_id, session.step_count)
        return
    messages: list[Message] = list((await store.get_messages(session.session_id, limit=None)).items)
    answer, calls = unanswered_calls(messages)
    if answer is None or not calls:
        return
    step = OpenStep(step_id_of(session, run.run_id), session.step_count + 1, answer, session.custom_state or {})
    step.take_up(await store.list_staged(session.session_id, step.step_id))
    patches = step.sequencer.take_back()
    if not patches:
        return
    await streams.resume_stream(session.stream_id)
    async with await streams.create_writer(session.stream_id, run.run_id, session.agent_type) as writer:
        await writer.write({"type": "state_patch", "patches": patches, "step": step.number})
