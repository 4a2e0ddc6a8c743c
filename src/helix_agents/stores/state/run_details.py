"""The details of a run: fields that only the executor reads, so that no query needs a column for them."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from ...codec import Json, decode, encode, to_struct
from ...types import ParentCall, RunRecord


class RunDetails(msgspec.Struct, frozen=True, omit_defaults=True):
    """The details of a run, as `RunRecord` describes them. Those with their defaults are not written."""

    attempt: int = 1
    first_step: int = 0
    first_message: int = 0
    claimed_step: int = 0
    resumes: str | None = None
    crashes: int = 0
    engine: str | None = None
    worker: str | None = None
    queued: bool = False
    limits: Json = None
    follow_up: list[dict[str, Any]] = []
    open_step: int | None = None
    not_before: int | None = None
    idempotency_key: str | None = None
    request_digest: str | None = None
    parent_call: ParentCall | None = None


DETAILS: Final = RunDetails.__struct_fields__


def details_to_text(run: RunRecord) -> str:
    """Return the details of a run as one JSON text."""
    return encode(RunDetails(**{name: getattr(run, name) for name in DETAILS}))


def details_from_text(text: str) -> dict[str, Any]:
    """Return the details that `details_to_text` was given, by name; those with their defaults may be missing."""
    return {} if text == "{}" else msgspec.structs.asdict(to_struct(RunDetails, decode(text)))
