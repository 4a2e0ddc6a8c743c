"""Print output: one line per item for people, one JSON document per line for programs, problems on stderr."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Any

import msgspec

from ..codec import encode
from ..types import SessionState


def say(text: str) -> None:
    """Print one line for people."""
    print(text)


def complain(text: str) -> None:
    """Print one line about a problem."""
    print(text, file=sys.stderr)


def emit(value: Any) -> None:
    """Print one JSON document on one line, for programs."""
    print(encode(msgspec.to_builtins(value)))


def when(epoch_ms: int) -> str:
    """Return a time in readable form."""
    return datetime.fromtimestamp(epoch_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def session_line(session: SessionState) -> str:
    """Return the line of a session in a listing."""
    return (
        f"{when(session.created_at)}  {session.status:<12} {session.session_id}  {session.agent_type}  "
        f"step {session.step_count}, version {session.version}"
    )


def say_document(document: dict[str, Any]) -> None:
    """Print a document for people: each member as a title, with its items or fields below."""
    for title, value in document.items():
        say(f"\n{title}")
        for line in value if isinstance(value, list) else _fields(value):
            say(f"  {line if isinstance(line, str) else encode(line)}")


def _fields(value: Any) -> list[str]:
    if not isinstance(value, dict):
        return [encode(value)]
    return [f"{name}: {encode(member)}" for name, member in value.items() if member not in (None, [], {}, ())]
