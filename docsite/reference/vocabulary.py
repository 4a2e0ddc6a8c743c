"""Statuses with their transitions, and the chunks of a stream."""

from __future__ import annotations

import inspect
from typing import Any, get_args, get_type_hints

from helix_agents import chunks, lifecycle

from .markdown import cell, code, table
from .python import shown_type

KINDS = (
    ("Session", lifecycle.SESSION_TRANSITIONS, lifecycle.SESSION_TERMINAL),
    ("Run", lifecycle.RUN_TRANSITIONS, lifecycle.RUN_TERMINAL),
    ("Stream", lifecycle.STREAM_TRANSITIONS, frozenset({"ended", "failed"})),
)


def statuses_page() -> str:
    """Return every status, and what it can become."""
    parts = ["# Statuses", (inspect.getdoc(lifecycle) or "").partition("\n\n")[2]]
    for kind, transitions, terminal in KINDS:
        rows = [
            [
                code(status),
                "yes" if status in terminal else "",
                ", ".join(code(each) for each in sorted(targets - {status})) or "nothing",
            ]
            for status, targets in transitions.items()
        ]
        parts += [f"## {kind}", table(["status", "final", "can become"], rows)]
    return "\n\n".join(parts) + "\n"


def chunks_page() -> str:
    """Return every chunk that the library writes."""
    parts = [
        "# Chunks",
        "What the library writes to streams. Every chunk is a JSON object with a `type`; any other object with a "
        "`type` may be written too. "
        "[Chunks](../chunks.md) tells when each appears.",
        "Every chunk may also carry " + ", ".join(code(name) for name in get_type_hints(chunks.Stamped)) + ".",
    ]
    for kind in sorted(get_args(chunks.AnyChunk), key=type_of):
        hints = get_type_hints(kind, include_extras=True)
        own = {
            name: hint for name, hint in hints.items() if name not in get_type_hints(chunks.Stamped) and name != "type"
        }
        rows = [
            [code(name), cell(code(shown_type(hint))), "" if name in kind.__required_keys__ else "optional"]
            for name, hint in own.items()
        ]
        parts += [f"## {type_of(kind)}", inspect.getdoc(kind) or "", table(["field", "type", ""], rows)]
    return "\n\n".join(part for part in parts if part) + "\n"


def type_of(kind: Any) -> str:
    """Return the `type` of a chunk."""
    return str(get_args(get_type_hints(kind)["type"])[0])
