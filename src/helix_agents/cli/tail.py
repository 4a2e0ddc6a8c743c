"""Print a stream for people, as `helix tail` does: text continuously, tools and patches on lines of their own.

Knows chunks and readers, but no backend and no arguments. With `as_json` every chunk is one line of JSON with its
sequence, and the last line has the outcome, for programs.
"""

from __future__ import annotations

from typing import TextIO

from ..chunks import Chunk
from ..codec import Json, encode
from ..errors import StreamFailed, StreamTruncated
from ..streams.contract import StreamManager, StreamOutcome

MAX_SHOWN = 200
_FLOWING = frozenset({"text_delta", "thinking", "tool_arg_delta"})

OK, NO_STREAM, FAILED, TRUNCATED = 0, 1, 2, 3
"""Exit codes of `tail`."""


async def tail(
    manager: StreamManager, stream_id: str, *, from_sequence: int | None = None, as_json: bool = False, out: TextIO
) -> int:
    """Follow a stream until it ends; return an exit code.

    Without `from_sequence`, start at the first stored chunk, also of a failed stream; with it, after that chunk.
    """
    show = JsonLines(out) if as_json else Prose(out)
    try:
        cursor = await _cursor(manager, stream_id) if from_sequence is None else from_sequence
        reader = await manager.create_resumable_reader(stream_id, from_sequence=cursor)
        if reader is None:
            show.note("missing", f"There is no stream {stream_id!r}.")
            return NO_STREAM
        async with reader:
            async for stored in reader.stored():
                show.chunk(stored.sequence, stored.chunk)
    except StreamTruncated as error:
        show.note("truncated", str(error), first_sequence=error.first_sequence)
        return TRUNCATED
    except StreamFailed as error:
        show.note("failed", error.error)
        return FAILED
    return show.outcome(reader.outcome or StreamOutcome("ended"))


async def _cursor(manager: StreamManager, stream_id: str) -> int:
    """Return the cursor before the first stored chunk."""
    info = await manager.get_stream_info(stream_id)
    return 0 if info is None else info.first_sequence - 1


class JsonLines:
    """Prints one line of JSON per chunk."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def chunk(self, sequence: int, chunk: Chunk) -> None:
        self._line({"sequence": sequence, "chunk": chunk})

    def outcome(self, outcome: StreamOutcome) -> int:
        self._line({"outcome": outcome.status, "final_output": outcome.final_output, "error": outcome.error})
        return FAILED if outcome.status == "failed" else OK

    def note(self, outcome: str, error: str, **members: Json) -> None:
        self._line({"outcome": outcome, "error": error, **members})

    def _line(self, value: Json) -> None:
        self._out.write(encode(value) + "\n")
        self._out.flush()


class Prose:
    """Prints text as it arrives; everything else as a short line."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._flowing = ""

    def chunk(self, sequence: int, chunk: Chunk) -> None:
        kind = str(chunk.get("type"))
        if kind in _FLOWING:
            if self._flowing != kind:
                self._break()
                self._out.write("(thinking) " if kind == "thinking" else "  ... " if kind == "tool_arg_delta" else "")
            self._flowing = kind
            self._write(visible(str(chunk.get("content" if kind == "thinking" else "delta", ""))))
            return
        self._break()
        self._write(f"[{sequence}] {_sentence(kind, chunk)}\n")

    def outcome(self, outcome: StreamOutcome) -> int:
        self._break()
        if outcome.status == "failed":
            self._write(f"-- failed: {visible(outcome.error or '')}\n")
            return FAILED
        result = f": {short(outcome.final_output)}" if outcome.final_output is not None else ""
        self._write(f"-- {outcome.status}{result}\n")
        return OK

    def note(self, outcome: str, error: str, **_: Json) -> None:
        self._break()
        self._write(f"-- {outcome}: {visible(error)}\n")

    def _break(self) -> None:
        if self._flowing:
            self._out.write("\n")
        self._flowing = ""

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()


def _sentence(kind: str, chunk: Chunk) -> str:
    match chunk:
        case {"type": "tool_start", "tool_name": name}:
            return f"{name}({short(chunk.get('arguments'))})"
        case {"type": "tool_end", "tool_name": name, "success": False}:
            return f"{name} failed: {short(chunk.get('error'))}"
        case {"type": "tool_end", "tool_name": name}:
            return f"{name} -> {short(chunk.get('result'))}"
        case {"type": "tool_approval_request" | "client_tool_request" | "tool_outcome_request", "tool_name": name}:
            return f"{kind}: {name}({short(chunk.get('input'))})"
        case {"type": "state_patch", "patches": [*patches]}:
            return "state: " + "; ".join(_patch(each) for each in patches)
        case {"type": "custom", "name": name}:
            return f"{visible(str(name))}: {short(chunk.get('data'))}"
        case {"type": "error", "error": error}:
            return f"error: {short(error)}"
        case {"type": "output", "output": output}:
            return f"output: {short(output)}"
        case {"type": "step_committed", "step_count": step_count}:
            return f"step {step_count} committed"
    stamps = ("type", "agent_id", "agent_type", "timestamp", "step")
    rest = {key: value for key, value in chunk.items() if key not in stamps}
    return f"{visible(kind)} {short(rest)}" if rest else visible(kind)


def _patch(patch: Json) -> str:
    if not isinstance(patch, dict):
        return short(patch)
    value = f" = {short(patch['value'])}" if "value" in patch else ""
    return f"{patch.get('op')} {visible(str(patch.get('path')))}{value}"


def short(value: Json) -> str:
    """Return a value as text of a bounded length."""
    text = visible(value if isinstance(value, str) else encode(value))
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}... ({len(text)} characters)"


def visible(text: str) -> str:
    """Escape control characters, so that a stream cannot control the reader's terminal."""
    if text.isprintable():
        return text
    return "".join(
        char
        if char.isprintable() or char in "\n\t" or (ord(char) > 159 and not 0xD800 <= ord(char) < 0xE000)
        else "\ufffd"
        for char in text
    )
