"""Running a failed turn again: whether that is possible, and what of the failed run holds for the new one."""

from __future__ import annotations

from ...codec import Json
from ...errors import NotResumable
from ...types import RunRecord, SessionState
from ..run.guardrails import INPUT_REFUSED


def retry_of(session: SessionState, run: RunRecord | None) -> dict[str, Json]:
    """What the record of the new run says. Raises `NotResumable` if there is nothing to run again."""
    if session.status != "failed":
        raise NotResumable(session.session_id, f"it is {session.status}, not failed")
    if run is None:
        raise NotResumable(session.session_id, "nothing to retry")
    if session.failure_reason == INPUT_REFUSED:
        raise NotResumable(session.session_id, "its input was refused and is gone; execute() begins another turn")
    metadata: dict[str, Json] = {"retries": run.run_id}
    return {**metadata, "limits": run.metadata["limits"]} if "limits" in run.metadata else metadata
