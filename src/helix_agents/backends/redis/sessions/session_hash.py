"""Convert a session between the struct and the fields of the main hash.

What a script or a status swap changes on its own has a field of its own; the rest is one JSON text, `state`, the same
text that a checkpoint keeps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ....codec import decode, encode, to_struct
from ....errors import StoreCorrupt
from ....stores.state.fields import fields_from_text, fields_to_text
from ....types import ForkOrigin, InterruptFlag, RunRecord, SessionState

IDENTITY = ("agent_type", "user_id")
"""Fields that never change after a session is created: stored separately, so that a guard can compare them."""

SWAPPED = ("error", "failure_reason", "interrupt_context")
"""Fields that a status swap may set: stored separately, as JSON."""


def to_hash(state: SessionState, text: str | None = None) -> tuple[dict[str, Any], list[str]]:
    """Return the fields to set and those to remove when `save_state` changes a session, except status and counters."""
    kept: dict[str, Any] = {"state": fields_to_text(state) if text is None else text}
    gone: list[str] = []
    if state.stream_id:
        kept["stream_id"] = state.stream_id
    if state.expires_at is None:
        gone.append("expires_at")
    else:
        kept["expires_at"] = state.expires_at
    for name in SWAPPED:
        value = getattr(state, name)
        if value is None:
            gone.append(name)
        else:
            kept[name] = encode(value)
    return kept, gone


def from_hash(session_id: str, fields: Mapping[str, str]) -> SessionState:
    """Return the session, without custom state."""
    try:
        flag, origin = fields.get("interrupt_flag"), fields.get("forked_from")
        changed: dict[str, Any] = {
            "session_id": session_id,
            "status": fields["status"],
            "step_count": int(fields.get("step_count", 0)),
            "resume_count": int(fields.get("resume_count", 0)),
            "stream_id": fields.get("stream_id", session_id),
            "version": int(fields["version"]),
            "created_at": int(fields["created_at"]),
            "updated_at": int(fields["updated_at"]),
            "incarnation": fields["incarnation"],
            "owner_epoch": int(fields["owner_epoch"]),
            "forked_from": None if origin is None else to_struct(ForkOrigin, decode(origin)),
            "interrupt_flag": None if flag is None else to_struct(InterruptFlag, decode(flag)),
        }
        for name in SWAPPED:
            text = fields.get(name)
            changed[name] = None if text is None else decode(text)
        return msgspec.structs.replace(fields_from_text(fields["state"]), **changed)
    except (KeyError, ValueError) as error:
        raise StoreCorrupt(f"Session {session_id!r} cannot be read from Redis: {error!r}") from error


def struct_text(value: msgspec.Struct) -> str:
    """Return a struct as JSON, lone surrogates included."""
    return encode(msgspec.to_builtins(value))


def as_fields(reply: Any) -> dict[str, str]:
    """Return the reply to HGETALL, a flat list (RESP 2) or a map (RESP 3), as texts."""
    pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)
    return {name.decode(): text.decode() for name, text in pairs}


def as_texts(reply: Any) -> list[str]:
    """Return a list of bulk replies as texts."""
    return [each.decode() for each in reply]


def text_or_none(reply: Any) -> str | None:
    """Return one bulk reply as text."""
    return None if reply is None else str(reply.decode())


class _Record(RunRecord, frozen=True, omit_defaults=True):
    """A run that is encoded without fields that have their defaults."""


def run_text(run: RunRecord) -> str:
    """Return a run's record without its turn, which the write prepends: equal runs have equal texts."""
    return struct_text(_Record(*msgspec.structs.astuple(msgspec.structs.replace(run, turn=0))))


def numbered_run(run: RunRecord) -> str:
    """Return a run whose turn is known, as it is stored."""
    return f"{run.turn}:{run_text(run)}"


def run_from(text: str) -> RunRecord:
    """Return what `numbered_run` was given."""
    turn, _, record = text.partition(":")
    return msgspec.structs.replace(to_struct(RunRecord, decode(record)), turn=int(turn))
