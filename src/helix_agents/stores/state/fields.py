"""The fields of a session as one JSON text, for a checkpoint: only those that differ from their defaults.

Left out are custom state (it is in cells), the flag and the owner epoch (they belong to the present), the incarnation
and what the checkpoint's row holds.
"""

from __future__ import annotations

import msgspec

from ...codec import decode, encode, to_struct
from ...types import SessionState


class _Fields(SessionState, frozen=True, omit_defaults=True):
    """A session that is written without what has its default."""


def fields_to_text(state: SessionState) -> str:
    """The text of a session's fields."""
    fields = _Fields(*msgspec.structs.astuple(state))
    left_out = {"custom_state": None, "interrupt_flag": None, "version": 0, "updated_at": 0}
    return encode(msgspec.structs.replace(fields, **left_out, incarnation="", owner_epoch=0))


def fields_from_text(text: str) -> SessionState:
    """The session that `fields_to_text` was given, without what it left out."""
    return to_struct(SessionState, decode(text))
