"""Prepare a stream for the next run of its session, so that attached readers neither lose nor repeat chunks.

A crash leaves chunks of a step that was never committed. They are dropped (readers get `stream_rewound`), and the
resumed run shows the step again from what is durable. A crash may also lose the chunk that announces the last
commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from ...chunks import AnyChunk, BranchSwitched, StepCommitted, as_chunk
from ...codec import encode
from ...errors import StreamFenced, StreamNotActive
from ...lifecycle import SESSION_TERMINAL
from ...messages import message_id
from ...stores.state.contract import StateStore
from ...streams.contract import StreamInfo, StreamManager
from ...types import Checkpoint, RunRecord, SessionState
from ..step.open_step import OpenStep


class ReadyStream(NamedTuple):
    """A prepared stream: whether chunks of an open step were dropped, and the sequence before the next chunk."""

    rewound: bool
    latest_sequence: int


async def fresh_stream(streams: StreamManager, stream_id: str, fence: int, *, seen: StreamInfo | None) -> ReadyStream:
    """Start a turn with an empty stream. `seen`: the stream as it was before the claim."""
    if seen is None:
        info = await _fenced(streams, stream_id, fence)
        if info.status == "active" and info.total_chunks == 0:
            return ReadyStream(False, info.latest_sequence)
    await streams.reset_stream(stream_id, fence=fence)
    # One chunk announces the reset. The stream had no writer since it was read, or the fence has cut that writer
    # off.
    return ReadyStream(False, (seen or info).latest_sequence + 1)


async def ready_stream(
    streams: StreamManager,
    stream_id: str,
    fence: int,
    *,
    seen: StreamInfo | None,
    rewind_to: int | None,
    committed: Checkpoint | None,
) -> ReadyStream:
    """Make the stream of an unfinished turn active; after a crash, rewind it to its last commit (`rewind_to`).

    Raises the fence first, so that no earlier owner can change what is read afterwards.
    """
    if rewind_to is None and seen is not None and seen.status == "paused":
        await streams.resume_stream(stream_id, fence=fence)  # a paused stream has no writer
        return ReadyStream(False, seen.latest_sequence)
    info = await _fenced(streams, stream_id, fence)
    if seen is None and info.total_chunks == 0:
        return ReadyStream(True, info.latest_sequence)
    if info.status in ("ended", "failed"):
        # The crash happened between claiming the turn and resetting its stream.
        return ReadyStream(True, (await fresh_stream(streams, stream_id, fence, seen=info)).latest_sequence)
    if info.status == "paused":
        await streams.resume_stream(stream_id, fence=fence)
    if rewind_to is None:
        return ReadyStream(False, info.latest_sequence)
    found = await streams.get_chunks_from_step(stream_id, rewind_to)
    dropped = any(stored.chunk.get("step", 0) > rewind_to for stored in found)
    if dropped:
        await streams.cleanup_to_step(stream_id, rewind_to, fence=fence)
    announced = any(
        stored.chunk["type"] == "step_committed" and stored.chunk.get("step_count") == rewind_to for stored in found
    )
    unannounced = None if announced or rewind_to == 0 or _is_older(committed, info) else committed
    if not dropped and unannounced is None:
        return ReadyStream(True, info.latest_sequence)
    if unannounced is not None:
        async with await streams.create_writer(stream_id, "recovery", "recovery", fence=fence) as writer:
            await writer.write(as_chunk(_committed_chunk(unannounced, rewind_to)))
    after = await streams.get_stream_info(stream_id)
    return ReadyStream(True, after.latest_sequence if after else 0)


async def drop_orphan(store: StateStore, streams: StreamManager, session: SessionState, fence: int) -> bool:
    """Delete the stream of a deleted session; return False if the session still exists.

    Needed if a process stalls, and opens the stream only after the session was deleted. A stream that also
    has the id of another session stays.
    """
    for session_id in {session.session_id: None, session.stream_id: None}:
        if await store.session_exists(session_id):
            return session_id != session.session_id
    with suppress(StreamFenced):  # the stream belongs to a session created since then
        await streams.delete_stream(session.stream_id, fence=fence)
    return True


async def _fenced(streams: StreamManager, stream_id: str, fence: int) -> StreamInfo:
    """Raise the fence of a stream, creating it if necessary; return its metadata afterwards.

    An expired stream is restored with its counter.
    """
    with suppress(StreamNotActive):  # the fence is raised anyway
        await (await streams.create_writer(stream_id, "recovery", "recovery", fence=fence)).close()
    info = await streams.get_stream_info(stream_id)
    return info or StreamInfo(stream_id, "active", 0, 1, 0)


def _is_older(committed: Checkpoint | None, info: StreamInfo) -> bool:
    """Return whether a stream was reset after a commit: it shows nothing of that step, and need not announce it."""
    return committed is not None and info.first_sequence > committed.stream_sequence + 1


def _committed_chunk(committed: Checkpoint, step_count: int) -> StepCommitted:
    return step_committed_chunk(committed.checkpoint_id, step_count, message_id(committed.step_id))


def step_committed_chunk(
    checkpoint_id: str,
    step_count: int,
    message_id: str | None,
    *,
    warnings: Sequence[str] = (),
    finish_reason: str | None = None,
) -> StepCommitted:
    """Return the chunk that announces a commit, the writes it lost, and why the model stopped."""
    chunk: StepCommitted = {
        "type": "step_committed",
        "checkpoint_id": checkpoint_id,
        "step_count": step_count,
        "step": step_count,
    }
    if message_id is not None:
        chunk["message_id"] = message_id
    if warnings:
        chunk["warnings"] = list(warnings)
    if finish_reason is not None:
        chunk["finish_reason"] = finish_reason
    return chunk


def chunks_of_reply(step: OpenStep) -> list[AnyChunk]:
    """Return the chunks of a reply that was shown once and then rewound: whole, not in its original pieces."""
    chunks: list[AnyChunk] = []
    answer = step.answer
    if answer.get("thinking"):
        chunks.append({"type": "thinking", "content": answer["thinking"], "is_complete": False})
        chunks.append({"type": "thinking", "content": "", "is_complete": True})
    if answer.get("content"):
        chunks.append({"type": "text_delta", "delta": answer["content"]})
    for call in step.calls:
        text = str(call.get("invalid_arguments") or encode(call["arguments"]))
        chunks.append({"type": "tool_arg_delta", "tool_call_id": call["id"], "tool_name": call["name"], "delta": text})
    return chunks


async def announce_branch(
    streams: StreamManager, session: SessionState, branch_id: str, message_count: int, fence: int
) -> None:
    """Announce the new branch to the readers of a stream that was reset."""
    chunk: BranchSwitched = {
        "type": "branch_switched",
        "branch_id": branch_id,
        "message_count": message_count,
        "step": session.step_count,
    }
    async with await streams.create_writer(session.stream_id, "branch", session.agent_type, fence=fence) as writer:
        await writer.write(as_chunk(chunk))


async def close_stream(
    streams: StreamManager, session: SessionState, latest: Checkpoint | None, fence: int, *, rewind: bool = True
) -> None:
    """Announce the end of an ended session, as far as its stream does not show it yet, and close the stream.

    `rewind`: drop the chunks of a step that was never committed.
    """
    stream_id, step_count = session.stream_id, session.step_count
    info = await _opened(streams, stream_id, fence)
    if info is None:
        return
    found = [stored.chunk for stored in await streams.get_chunks_from_step(stream_id, step_count)]
    if rewind and any(chunk.get("step", 0) > step_count for chunk in found):
        await streams.cleanup_to_step(stream_id, step_count, fence=fence)
        found = [chunk for chunk in found if chunk.get("step", 0) <= step_count]
    types = {chunk["type"] for chunk in found if chunk.get("step") == step_count and "sub_session_id" not in chunk}
    async with await streams.create_writer(stream_id, "recovery", session.agent_type, fence=fence) as writer:
        if latest is not None and "step_committed" not in types:
            await writer.write(as_chunk(_committed_chunk(latest, step_count)))
        if session.status == "completed" and "output" not in types:
            await writer.write({"type": "output", "output": session.output, "step": step_count})
        if session.status == "failed" and "error" not in types:
            await writer.write({"type": "error", "error": session.error, "step": step_count})
    if session.status == "completed":
        await streams.end_stream(stream_id, session.output, fence=fence)
    else:
        await streams.fail_stream(stream_id, session.error or "failed", fence=fence)


async def pause_stopped(streams: StreamManager, session: SessionState, fence: int) -> None:
    """Pause the stream of a session that may be resumed; drop the chunks of an abandoned step."""
    if await streams.get_stream_info(session.stream_id) is None:
        return
    info = await _fenced(streams, session.stream_id, fence)  # also if it is paused: now it is not behind its session
    if info.status != "active":
        return
    if session.status == "interrupted":
        await streams.cleanup_to_step(session.stream_id, session.step_count, fence=fence)
    await streams.pause_stream(session.stream_id, fence=fence)


def is_behind(stream: StreamInfo, session: SessionState, run: RunRecord | None) -> bool:
    """Return whether a process died between the change of a session and that of its stream. `run`: its open run.

    A restore or a switch changes the session first, so the stream keeps its earlier fence. A run that starts a turn or
    a branch is claimed first, so the stream ends before the run starts.
    """
    return stream.fence < session.owner_epoch if run is None else stream.latest_sequence < run.start_sequence


async def replace_stream(streams: StreamManager, session: SessionState, fence: int) -> None:
    """Reset a stream whose session has another branch or checkpoint now, and leave it in the session's status."""
    await streams.reset_stream(session.stream_id, fence=fence)
    await stop_stream(streams, session, fence)


async def stop_stream(streams: StreamManager, session: SessionState, fence: int) -> None:
    """Leave a stream that was reset in the status of its session."""
    if session.status in SESSION_TERMINAL:
        await close_stream(streams, session, None, fence, rewind=False)
    elif session.status != "active":
        await pause_stopped(streams, session, fence)


async def revert_patches(streams: StreamManager, step: OpenStep | None, session: SessionState, fence: int) -> None:
    """Emit patches that revert an abandoned step to the committed state. The step's chunks stay."""
    patches = step.sequencer.take_back() if step is not None else []
    if step is None or not patches or await _opened(streams, session.stream_id, fence) is None:
        return
    async with await streams.create_writer(session.stream_id, "recovery", session.agent_type, fence=fence) as writer:
        await writer.write({"type": "state_patch", "patches": patches, "step": step.number})


async def _opened(streams: StreamManager, stream_id: str, fence: int) -> StreamInfo | None:
    """Raise the fence of a stream and make it active; None if it does not exist or has ended or failed."""
    if await streams.get_stream_info(stream_id) is None:
        return None
    info = await _fenced(streams, stream_id, fence)
    if info.status in ("ended", "failed"):
        return None
    if info.status == "paused":
        await streams.resume_stream(stream_id, fence=fence)
    return info
