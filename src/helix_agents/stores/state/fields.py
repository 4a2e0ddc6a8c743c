"""What a checkpoint records as one JSON text: the session's fields that differ from their defaults, and the fingerprint
of the request that led to the step.

Left out are custom state (it is in cells), the flag and the owner epoch (they belong to the current session), the
incarnation and what the checkpoint's row holds.
"""

from __future__ import annotations

import msgspec

from ...codec import Json, decode, encode, to_struct
from ...types import SessionState


class _Fields(SessionState, frozen=True, omit_defaults=True):
    """A session that is encoded without fields that have their defaults."""

    request: dict[str, Json] | None = None


def fields_to_text(state: SessionState, request: dict[str, Json] | None = None) -> str:
    """Return a session's fields and the request as one JSON text."""
    fields = _Fields(*msgspec.structs.astuple(state))
    left_out = {"custom_state": None, "interrupt_flag": None, "version": 0, "updated_at": 0}
    return encode(msgspec.structs.replace(fields, **left_out, incarnation="", owner_epoch=0, request=request))


def fields_from_text(text: str) -> SessionState:
    """Return the session that was given to `fields_to_text`, without the fields it leaves out."""
    return to_struct(SessionState, decode(text))


def recorded_in(text: str) -> tuple[SessionState, dict[str, Json] | None]:
    """Return the session and the request that were given to `fields_to_text`."""
    members = decode(text)
    return to_struct(SessionState, members), members.get("request")
