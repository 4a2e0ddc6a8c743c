"""Making a stream ready for the next run of its session, so that readers who stayed attached lose and double nothing.

A crash leaves chunks of a step that was never committed: they are dropped (`stream_rewound` tells the readers), and the
resumed run shows the step again from what is durable. It may also have cost the chunk that tells of the last commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from ...chunks import AnyChunk, BranchSwitched, StepCommitted, as_chunk
from ...codec import encode
from ...errors import StreamFenced, StreamNotActive
from ...messages import message_id
from ...stores.state.contract import StateStore
from ...streams.contract import StreamInfo, StreamManager
from ...types import Checkpoint, SessionState
from ..step.open_step import OpenStep


class ReadyStream(NamedTuple):
    """A stream made ready: whether chunks of an open step are gone, and the sequence after which new ones come."""

    rewound: bool
    latest_sequence: int


async def fresh_stream(streams: StreamManager, stream_id: str, fence: int, *, seen: StreamInfo | None) -> ReadyStream:
    """Begin a turn with an empty stream. `seen`: the stream as it was before the claim."""
    if seen is None:
        info = await _fenced(streams, stream_id, fence)
        if info.status == "active" and info.total_chunks == 0:
            return ReadyStream(False, info.latest_sequence)
    await streams.reset_stream(stream_id, fence=fence)
    # One chunk announces the reset; the stream had no writer since it was read, or the fence has cut it off.
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
    """Make the stream of an unfinished turn active, after a crash back to its last commit (`rewind_to`).

    The fence comes first: what is looked at afterwards no earlier owner can change.
    """
    if rewind_to is None and seen is not None and seen.status == "paused":
        await streams.resume_stream(stream_id, fence=fence)  # no process can have written to it since it was read
        return ReadyStream(False, seen.latest_sequence)
    info = await _fenced(streams, stream_id, fence)
    if seen is None and info.total_chunks == 0:
        return ReadyStream(True, info.latest_sequence)
    if info.status in ("ended", "failed"):
        # The crash came between the claim of a turn and its fresh stream.
        return ReadyStream(True, (await fresh_stream(streams, stream_id, fence, seen=info)).latest_sequence)
    if info.status == "paused":
        await streams.resume_stream(stream_id, fence=fence)
    if rewind_to is None:
        return ReadyStream(False, info.latest_sequence)
    kept = await streams.get_chunks_from_step(stream_id, rewind_to)
    dropped = any(stored.chunk.get("step", 0) > rewind_to for stored in kept)
    if dropped:
        await streams.cleanup_to_step(stream_id, rewind_to, fence=fence)
    told = any(
        stored.chunk["type"] == "step_committed" and stored.chunk.get("step_count") == rewind_to for stored in kept
    )
    announces = rewind_to > 0 and not told and committed is not None
    if not dropped and not announces:
        return ReadyStream(True, info.latest_sequence)
    if announces and committed is not None:
        async with await streams.create_writer(stream_id, "recovery", "recovery", fence=fence) as writer:
            await writer.write(as_chunk(_committed_chunk(committed, rewind_to)))
    after = await streams.get_stream_info(stream_id)
    return ReadyStream(True, after.latest_sequence if after else 0)


async def drop_orphan(store: StateStore, streams: StreamManager, session: SessionState, fence: int) -> bool:
    """Delete the stream that a process opened for a session that has been deleted; return whether it has been.

    The process may have stalled before it opened the stream: the deletion did not find one. A stream that has the name
    of another session stays.
    """
    for session_id in {session.session_id: None, session.stream_id: None}:
        if await store.session_exists(session_id):
            return session_id != session.session_id
    with suppress(StreamFenced):  # a session that was created since then has the stream
        await streams.delete_stream(session.stream_id, fence=fence)
    return True


async def _fenced(streams: StreamManager, stream_id: str, fence: int) -> StreamInfo:
    """Shut earlier owners out of a stream, made if need be; the stream as it is then.

    One that has expired comes back with its counter.
    """
    with suppress(StreamNotActive):  # the fence is raised all the same
        await (await streams.create_writer(stream_id, "recovery", "recovery", fence=fence)).close()
    info = await streams.get_stream_info(stream_id)
    return info or StreamInfo(stream_id, "active", 0, 1, 0)


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
    """Return the chunk that announces a commit, the writes that were lost in it, and why the model stopped."""
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


def shown_again(step: OpenStep) -> list[AnyChunk]:
    """Return the chunks of an answer that was shown once and then rewound: whole, not in the pieces it came in."""
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
    """Tell the readers of a stream that was reset which branch follows."""
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
    """Announce the end of a session that has ended, as far as its stream does not show it yet, and close the stream.

    `rewind`: drop the chunks of a step that was never committed.
    """
    stream_id, step_count = session.stream_id, session.step_count
    info = await _opened(streams, stream_id, fence)
    if info is None:
        return
    kept = [stored.chunk for stored in await streams.get_chunks_from_step(stream_id, step_count)]
    if rewind and any(chunk.get("step", 0) > step_count for chunk in kept):
        await streams.cleanup_to_step(stream_id, step_count, fence=fence)
        kept = [chunk for chunk in kept if chunk.get("step", 0) <= step_count]
    types = {chunk["type"] for chunk in kept if chunk.get("step") == step_count and "sub_session_id" not in chunk}
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


async def pause_at_rest(streams: StreamManager, session: SessionState, fence: int) -> None:
    """Pause the stream of a session that may be resumed, without what it showed of a step that was given up."""
    info = await streams.get_stream_info(session.stream_id)
    if info is None or info.status != "active":
        return
    await _fenced(streams, session.stream_id, fence)
    if session.status == "interrupted":
        await streams.cleanup_to_step(session.stream_id, session.step_count, fence=fence)
    await streams.pause_stream(session.stream_id, fence=fence)


async def take_back(streams: StreamManager, step: OpenStep | None, session: SessionState, fence: int) -> None:
    """Let readers have the committed state of a session whose open step is given up; its chunks stay."""
    patches = step.sequencer.take_back() if step is not None else []
    if step is None or not patches or await _opened(streams, session.stream_id, fence) is None:
        return
    async with await streams.create_writer(session.stream_id, "recovery", session.agent_type, fence=fence) as writer:
        await writer.write({"type": "state_patch", "patches": patches, "step": step.number})


async def _opened(streams: StreamManager, stream_id: str, fence: int) -> StreamInfo | None:
    """Shut earlier owners out of a stream and make it active; None if there is none, or if it is closed for good."""
    if await streams.get_stream_info(stream_id) is None:
        return None
    info = await _fenced(streams, stream_id, fence)
    if info.status in ("ended", "failed"):
        return None
    if info.status == "paused":
        await streams.resume_stream(stream_id, fence=fence)
    return info
