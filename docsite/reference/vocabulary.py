"""Statuses with their transitions, and the chunks of a stream."""

from __future__ import annotations

import inspect
from typing import Any, get_args, get_type_hints

from helix_agents import chunks, lifecycle
from helix_agents.failures import FailureReason

from . import meanings
from .markdown import cell, code, table
from .python import shown_type

KINDS = (
    ("Session", lifecycle.SESSION_TRANSITIONS, lifecycle.SESSION_TERMINAL, meanings.SESSION_STATUSES),
    ("Run", lifecycle.RUN_TRANSITIONS, lifecycle.RUN_TERMINAL, meanings.RUN_STATUSES),
    ("Stream", lifecycle.STREAM_TRANSITIONS, frozenset({"ended", "failed"}), meanings.STREAM_STATUSES),
)

FAILURE_NOTE = (
    "`failure_reason` of a failed session is one of these, or a code that your program stored. "
    "`helix_agents.failures` has a constant for each."
)


def statuses_page() -> str:
    """Return every status, and what it can become."""
    parts = ["# Statuses", (inspect.getdoc(lifecycle) or "").partition("\n\n")[2]]
    for kind, transitions, terminal, meaning in KINDS:
        rows = [
            [
                code(status),
                meaning[status],
                "yes" if status in terminal else "",
                ", ".join(code(each) for each in sorted(targets - {status})) or "nothing",
            ]
            for status, targets in transitions.items()
        ]
        parts += [f"## {kind}", table(["status", "meaning", "final", "can become"], rows)]
    reasons = [[code(reason), meanings.FAILURE_REASONS[reason]] for reason in get_args(FailureReason)]
    parts += ["## Failure reasons", FAILURE_NOTE, table(["failure_reason", "meaning"], reasons)]
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
