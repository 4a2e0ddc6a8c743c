"""Print a conversation, as `helix chat` does: text continuously, calls on a line each."""

from __future__ import annotations

import json
from typing import Any, TextIO

from ..codec import Json
from ..safe_text import escaped
from .tail import short, visible

ENDS = {"interrupted": "(stopped; send a message to continue)", "failed": "(failed: {error})"}


class Transcript:
    """Prints to a terminal, with control characters escaped."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._is_open = False

    def message(self, message: dict[str, Any]) -> None:
        """Print a stored message; results of tools are left out."""
        content = message.get("content")
        text = content if isinstance(content, str) else json.dumps(content)
        if message["role"] in ("user", "assistant") and text:
            self._line(f"{'> ' if message['role'] == 'user' else ''}{visible(text)}")

    def show(self, chunk: dict[str, Any]) -> None:
        """Print a chunk; those of sub-agents are left out."""
        match chunk:
            case {"sub_session_id": _}:
                return
            case {"type": "text_delta", "delta": delta}:
                self._write(visible(str(delta)))
                self._is_open = True
            case {"type": "tool_start", "tool_name": name, "arguments": arguments}:
                self._line(f"  {name} {_brief(arguments)}")
            case {"type": "tool_end", "tool_name": name, "success": True, "result": result}:
                self._line(f"  {name} -> {_brief(result)}")
            case {"type": "tool_end", "tool_name": name, "error": error}:
                self._line(f"  {name} failed: {_brief(error)}")
            case {"type": "stream_rewound"}:
                self._line("(another process stopped; this step starts again)")

    def end(self, status: str, error: str | None) -> None:
        """Finish the line, and say how the run ended unless it is obvious."""
        if self._is_open:
            self._write("\n")
        self._is_open = False
        if status in ENDS:
            self._line(ENDS[status].format(error=escaped(error or "")))

    def _line(self, text: str) -> None:
        self._write(f"{chr(10) if self._is_open else ''}{text}\n")
        self._is_open = False

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()


def _brief(value: Json) -> str:
    return escaped(short(value))


def in_full(value: Json) -> str:
    """Return a value as JSON that shows every character: what a person is about to approve."""
    lines = json.dumps(value, indent=2, ensure_ascii=False).split("\n")
    return "\n".join(escaped(line) for line in lines)
