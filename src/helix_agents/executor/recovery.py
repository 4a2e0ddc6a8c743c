"""Making a stream ready for the next run of its session, so that readers who stayed attached lose and double nothing.

A crash leaves chunks of a step that was never committed: they are dropped (`stream_rewound` tells the readers), and the
resumed run shows the step again from what is durable. It may also have cost the chunk that tells of the last commit.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..chunks import Chunk
from ..codec import encode
from ..streams.contract import StreamManager
from ..types import SessionState
from .openstep import OpenStep


async def fresh_stream(streams: StreamManager, stream_id: str) -> int:
    """Begin a turn with an empty stream; the sequence after which its chunks come."""
    info = await streams.get_stream_info(stream_id)
    if info is None:
        return await _open_stream(streams, stream_id)
    await streams.reset_stream(stream_id)
    info = await streams.get_stream_info(stream_id)
    return info.latest_sequence if info else 0


async def ready_stream(
    streams: StreamManager, stream_id: str, *, rewind_to: int | None, checkpoint_id: str | None
) -> tuple[bool, int]:
    """Make the stream of an unfinished turn active, after a crash back to its last commit (`rewind_to`).

    Answers whether chunks of an open step are gone, and the latest sequence.
    """
    info = await streams.get_stream_info(stream_id)
    if info is None:
        return True, await _open_stream(streams, stream_id)
    if info.status in ("ended", "failed"):
        # The crash came between the claim of a turn and its fresh stream.
        return True, await fresh_stream(streams, stream_id)
    if info.status == "paused":
        await streams.resume_stream(stream_id)
    if rewind_to is None:
        return False, info.latest_sequence
    kept = await streams.get_chunks_from_step(stream_id, rewind_to)
    if any(stored.chunk.get("step", 0) > rewind_to for stored in kept):
        await streams.cleanup_to_step(stream_id, rewind_to)
    told = any(
        stored.chunk["type"] == "step_committed" and stored.chunk.get("step_count") == rewind_to for stored in kept
    )
    if rewind_to > 0 and not told and checkpoint_id is not None:
        async with await streams.create_writer(stream_id, "recovery", "recovery") as writer:
            await writer.write(step_committed_chunk(checkpoint_id, rewind_to))
    info = await streams.get_stream_info(stream_id)
    return True, info.latest_sequence if info else 0


async def _open_stream(streams: StreamManager, stream_id: str) -> int:
    """Open a stream that is new or has expired; where its counter stands, which an expired one keeps."""
    async with await streams.create_writer(stream_id, "recovery", "recovery"):
        info = await streams.get_stream_info(stream_id)
    return info.latest_sequence if info else 0


def step_committed_chunk(
    checkpoint_id: str, step_count: int, *, warnings: Sequence[str] = (), finish_reason: str | None = None
) -> Chunk:
    """The chunk that tells of a commit, of the writes that were lost in it, and of why the model stopped."""
    chunk: Chunk = {"type": "step_committed", "checkpoint_id": checkpoint_id, "step_count": step_count}
    chunk["step"] = step_count
    if warnings:
        chunk["warnings"] = list(warnings)
    if finish_reason is not None:
        chunk["finish_reason"] = finish_reason
    return chunk


def shown_again(step: OpenStep) -> list[Chunk]:
    """The chunks of an answer that was shown once and then rewound: whole, not in the pieces it came in."""
    chunks: list[Chunk] = []
    answer = step.answer
    if answer.get("thinking"):
        chunks.append({"type": "thinking", "content": answer["thinking"], "is_complete": False})
        chunks.append({"type": "thinking", "content": "", "is_complete": True})
    if answer.get("content"):
        chunks.append({"type": "text_delta", "delta": answer["content"]})
    for call in step.calls:
        text = call.get("invalid_arguments") or encode(call["arguments"])
        chunks.append({"type": "tool_arg_delta", "tool_call_id": call["id"], "delta": text})
    return chunks


async def close_stream(streams: StreamManager, session: SessionState, checkpoint_id: str | None) -> None:
    """Tell the end of a session that is over, as far as its stream does not tell it yet."""
    info = await streams.get_stream_info(session.stream_id)
    if info is None or info.status in ("ended", "failed"):
        return
    if info.status == "paused":
        await streams.resume_stream(session.stream_id)
    kept = [stored.chunk for stored in await streams.get_chunks_from_step(session.stream_id, session.step_count)]
    types = {
        chunk["type"] for chunk in kept if chunk.get("step") == session.step_count and "sub_session_id" not in chunk
    }
    async with await streams.create_writer(session.stream_id, "recovery", session.agent_type) as writer:
        if checkpoint_id is not None and "step_committed" not in types:
            await writer.write(step_committed_chunk(checkpoint_id, session.step_count))
        if session.status == "completed" and "output" not in types:
            await writer.write({"type": "output", "output": session.output, "step": session.step_count})
        if session.status == "failed" and "error" not in types:
            await writer.write({"type": "error", "error": session.error, "step": session.step_count})
    if session.status == "completed":
        await streams.end_stream(session.stream_id, session.output)
    else:
        await streams.fail_stream(session.stream_id, session.error or "failed")
