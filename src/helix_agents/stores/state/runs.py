"""Runs: the public methods that start, change and read them, and the checks on runs that other commits carry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ...codec import Json, ensure_count, ensure_json, ensure_storable
from ...errors import InvalidArgument, RunNotFound
from ...ids import ensure_id
from ...lifecycle import RUN_TERMINAL, ensure_status, illegal_transition, may_become
from ...types import Owner, RunRecord, RunStatus
from . import validate
from .commit import Commit, CommitRefused, RunChange
from .refusals import require_session
from .run_details import DETAILS, RunDetails
from .statuses import StatusStore

CHANGEABLE = frozenset(
    {"status", "step_count", "error", "output", "completed_at", "lease_until", "start_sequence", "metadata"}
)
"""The fields of a run that change after its start, besides its details. None of these can be unset."""


class RunStore(StatusStore):
    """The part of the state store that stores runs."""

    async def create_run(
        self,
        session_id: str,
        run_id: str,
        *,
        turn: int = 0,
        start_sequence: int = 0,
        metadata: Mapping[str, Json] | None = None,
        lease_until: int | None = None,
        expected_version: int | None = None,
        owner: Owner | None = None,
        **details: Any,
    ) -> RunRecord:
        ensure_id(session_id, "session_id")
        validate.ensure_guards(expected_version=expected_version, owner=owner)
        now = self._clock()
        _ensure_details(details)
        wanted = RunRecord(run_id, session_id, turn, start_sequence=start_sequence, lease_until=lease_until)
        wanted = msgspec.structs.replace(wanted, **details)
        run = new_run(session_id, wanted, now, {} if metadata is None else metadata)
        applied = await self._write(
            Commit(session_id=session_id, now=now, owner=owner, expected_version=expected_version, run=run)
        )
        return msgspec.structs.replace(run, turn=applied.turn)

    async def update_run_status(
        self,
        run_id: str,
        status: RunStatus,
        *,
        step_count: int | None = None,
        error: str | None = None,
        output: Json = None,
        completed_at: int | None = None,
        lease_until: int | None = None,
        start_sequence: int | None = None,
        metadata: Mapping[str, Json] | None = None,
        expected_status: RunStatus | None = None,
        owner: Owner | None = None,
    ) -> RunRecord:
        ensure_id(run_id, "run_id")
        validate.ensure_guards(owner=owner)
        ensure_status("run", status)
        _ensure_changeable(
            error=error,
            output=output,
            metadata=metadata,
            step_count=step_count,
            start_sequence=start_sequence,
            completed_at=completed_at,
            lease_until=lease_until,
        )
        if completed_at is None and status in RUN_TERMINAL:
            completed_at = self._clock()
        given = {
            "status": status,
            "step_count": step_count,
            "error": error,
            "output": output,
            "completed_at": completed_at,
            "lease_until": lease_until,
            "start_sequence": start_sequence,
            "metadata": None if metadata is None else dict(metadata),
        }
        changes = {name: value for name, value in given.items() if value is not None}
        allowed = may_become("run", status)
        if expected_status is not None:
            ensure_status("run", expected_status)
            allowed = tuple(each for each in allowed if each == expected_status)
        changed, run = await self._update_run(run_id, changes, allowed, owner)
        if run is None:
            raise RunNotFound(run_id)
        if not changed:
            if owner is not None and run.status in allowed:
                commit = Commit(session_id=run.session_id, now=self._clock(), owner=owner)
                await self._explain(commit, CommitRefused("epoch"))
            raise illegal_transition("run", run_id, run.status, status)
        return run

    async def get_current_run(self, session_id: str) -> RunRecord | None:
        ensure_id(session_id, "session_id")
        runs = await self._read_runs(session_id, last=True)
        return runs[-1] if runs else None

    async def list_runs(self, session_id: str) -> list[RunRecord]:
        ensure_id(session_id, "session_id")
        return require_session(session_id, await self._read_runs(session_id, last=False))


def new_run(session_id: str, run: RunRecord, now: int, metadata: Mapping[str, Json] | None = None) -> RunRecord:
    """Check a run that is about to start; return it with only the fields that its caller may choose."""
    ensure_id(run.run_id, "run_id")
    ensure_count(run.start_sequence, "start_sequence")
    validate.ensure_optional(counts={"lease_until": run.lease_until})
    noted = run.metadata if metadata is None else metadata
    validate.ensure_run_metadata(noted)
    details = {name: getattr(run, name) for name in DETAILS}
    _ensure_details(details)
    return RunRecord(
        run.run_id,
        session_id,
        turn=ensure_count(run.turn, "turn"),
        start_sequence=run.start_sequence,
        started_at=now,
        metadata=dict(noted),
        lease_until=run.lease_until,
        **details,
    )


def with_run(session_id: str, run: RunRecord | None, now: int) -> RunRecord | None:
    """Check the run that starts with a write, if there is one."""
    return None if run is None else new_run(session_id, run, now)


def checked_change(session_id: str, change: RunChange | None, now: int) -> RunChange | None:
    """Check a change of a run that a write carries; a run that ends gets its end time."""
    if change is None:
        return None
    if not (isinstance(change, RunChange) and isinstance(change.seen, RunRecord)):
        raise InvalidArgument(f"change_run must be a RunChange of two RunRecords, not {type(change).__name__}.")
    seen, wanted = change
    if seen.session_id != session_id:
        raise InvalidArgument(f"Run {seen.run_id!r} belongs to session {seen.session_id!r}, not to {session_id!r}.")
    details = {name: value for name, value in change.changes.items() if name in DETAILS}
    if fixed := sorted(change.changes.keys() - CHANGEABLE - details.keys()):
        raise InvalidArgument(f"Field {fixed[0]!r} of run {seen.run_id!r} cannot change.")
    if unset := sorted(name for name, value in change.changes.items() if value is None and name not in details):
        raise InvalidArgument(f"Field {unset[0]!r} of run {seen.run_id!r} cannot be unset.")
    ensure_status("run", wanted.status)
    if seen.status not in may_become("run", wanted.status):
        raise illegal_transition("run", seen.run_id, seen.status, wanted.status)
    _ensure_changeable(
        error=wanted.error,
        output=wanted.output,
        step_count=wanted.step_count,
        start_sequence=wanted.start_sequence,
        completed_at=wanted.completed_at,
        lease_until=wanted.lease_until,
        metadata=wanted.metadata,
    )
    _ensure_details(details)
    if wanted.completed_at is None and wanted.status in RUN_TERMINAL:
        wanted = msgspec.structs.replace(wanted, completed_at=now)
    return RunChange(seen, wanted)


def _ensure_details(details: Mapping[str, Any]) -> None:
    """Check details of a run: fields that only the executor reads."""
    if unknown := sorted(details.keys() - set(DETAILS)):
        raise InvalidArgument(f"A run has no field {unknown[0]!r} that can be given here.")
    try:
        msgspec.convert(msgspec.structs.asdict(RunDetails(**details)), RunDetails)
    except msgspec.ValidationError as error:
        raise InvalidArgument(f"Details of a run do not fit: {error}.") from error
    for name in ("attempt", "first_step", "first_message", "claimed_step", "crashes", "open_step", "not_before"):
        if details.get(name) is not None:
            ensure_count(details[name], name)
    for name in ("resumes", "engine", "worker", "idempotency_key", "request_digest"):
        if details.get(name) is not None:
            validate.ensure_text(details[name], name)
    for name in ("limits", "follow_up"):
        ensure_json(details.get(name), f"/{name}")
    if (call := details.get("parent_call")) is not None:
        ensure_id(call.tool_call_id, "parent_call.tool_call_id")
        ensure_json(call.input, "/parent_call/input")


def _ensure_changeable(
    *,
    error: str | None,
    output: Json,
    metadata: Mapping[str, Json] | None,
    **counts: int | None,
) -> None:
    """Check the fields of a run that may change; None means unchanged."""
    ensure_storable(output, "/output")
    validate.ensure_optional(texts={"error": error}, counts=counts)
    if metadata is not None:
        validate.ensure_run_metadata(metadata)
