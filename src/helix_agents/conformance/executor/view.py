"""A reader of a stream: it stores what it sees, drops what is rewound, and must end with the committed state.

`View` models a careful client. Two runs are the same for their readers if their views are equal.
"""

from __future__ import annotations

import asyncio
from typing import Any

from ...chunks import Chunk
from ...state import apply_patch
from ...streams.contract import StreamManager

LOOK_AGAIN_SECONDS = 0.005


class View:
    """All chunks that were not rewound, in order."""

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []
        self.last_sequence = 0

    def take(self, chunk: Chunk) -> None:
        """Apply one chunk."""
        match chunk:
            case {"type": "stream_rewound", "step_count": kept}:
                self.chunks = [seen for seen in self.chunks if seen.get("step", 0) <= kept]
            case {"type": "stream_resync"}:
                self.chunks = []
            case _:
                self.chunks.append(chunk)

    def state(self, initial: dict[str, Any]) -> Any:
        """Return the custom state that results from applying the patches to the initial one."""
        state: Any = initial
        for chunk in self.chunks:
            if chunk["type"] == "state_patch":
                state = apply_patch(state, chunk["patches"])
        return state

    def summary(self) -> dict[str, Any]:
        """Return a value that does not depend on how text was split or in which order parallel tools ran.

        Raises `AssertionError` if something was announced twice.
        """
        told: dict[str, Any] = {}
        for chunk in self.chunks:
            place = f"{chunk.get('step', 0)} {chunk.get('sub_session_id', '')}"
            match chunk:
                case {"type": "text_delta" | "thinking" | "tool_arg_delta" as kind}:
                    key = f"{place} {kind} {chunk.get('tool_call_id', '')}"
                    told[key] = told.get(key, "") + chunk.get("delta", chunk.get("content", ""))
                case {"type": "tool_start" | "tool_end" as kind}:
                    _once(told, f"{place} {kind} {chunk['tool_call_id']}", _bare(chunk))
                case {"type": "subagent_start" | "subagent_end" as kind}:
                    _once(told, f"{place} {kind}", chunk.get("status"))
                case {"type": "client_tool_request" | "tool_approval_request" | "tool_outcome_request" as kind}:
                    _once(told, f"{place} {kind} {chunk['tool_call_id']}", chunk["input"])
                case {"type": "step_committed"}:
                    _once(told, f"{place} committed", chunk["step_count"])
                case {"type": "user_message", "message": message}:
                    _once(told, f"{place} said {message['content']}", message["id"] != "")
                case {"type": "output"}:
                    _once(told, "output", chunk["output"])
                case {"type": "error"}:
                    _once(told, "error", chunk["error"])
        return told


def _once(told: dict[str, Any], key: str, value: Any) -> None:
    if key in told:
        raise AssertionError(f"the stream tells {key!r} twice")
    told[key] = value


def _bare(chunk: Chunk) -> Any:
    return [chunk.get(key) for key in ("tool_name", "arguments", "result", "success", "error")]


async def follow(streams: StreamManager, stream_id: str, view: View) -> None:
    """Read a stream to its end, attaching again where it was paused."""
    while True:
        info = await streams.get_stream_info(stream_id)
        if info is None or (info.status == "paused" and info.latest_sequence == view.last_sequence):
            await asyncio.sleep(LOOK_AGAIN_SECONDS)
            continue
        reader = await streams.create_resumable_reader(stream_id, from_sequence=view.last_sequence)
        if reader is None:
            continue
        async with reader:
            async for stored in reader.stored():
                if stored.sequence <= view.last_sequence:
                    raise AssertionError(f"chunk {stored.sequence} came after {view.last_sequence}")
                view.last_sequence = stored.sequence
                view.take(stored.chunk)
            if reader.outcome is not None and reader.outcome.status in ("ended", "failed"):
                return
