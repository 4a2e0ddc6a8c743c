"""Convert sessions, runs and refs between structs and rows. The columns are in the order of `queries.sql`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from ....codec import Json, decode, encode, escape_text, to_struct, unescape_text
from ....stores.state.commit import Slot, StoredCheckpoint, StoredConversation, StoredSession
from ....stores.state.run_details import DETAILS, details_from_text, details_to_text
from ....types import (
    Claimable,
    ForkOrigin,
    InterruptFlag,
    Owner,
    PendingClientToolCall,
    RunRecord,
    RunStatus,
    SessionState,
    SessionStatus,
    SubSessionRef,
    SuspendedChildWait,
    TracingContext,
)
from ..driver import Row, Value


def _json_or_null(value: Json) -> str | None:
    return None if value is None else encode(value)


def _text_or_null(value: str | None) -> str | None:
    return None if value is None else escape_text(value)


def _value_or_none(text: str | None) -> Json:
    return None if text is None else decode(text)


def _string_or_none(text: str | None) -> str | None:
    return None if text is None else unescape_text(text)


# -- sessions


def identity_columns(state: SessionState) -> tuple[Value, ...]:
    """Return the columns that never change: incarnation, agent_type, user_id."""
    return state.incarnation, state.agent_type, state.user_id


def origin_column(state: SessionState) -> Value:
    """Return what a session was forked from."""
    return None if state.forked_from is None else encode(msgspec.to_builtins(state.forked_from))


def label_columns(state: SessionState, due_at: int | None) -> tuple[Value, ...]:
    """Return the other indexed columns: stream_id, parent, root, status, expires_at, due_at, tags, metadata."""
    return (
        state.stream_id or state.session_id,
        state.parent_session_id,
        state.root_session_id,
        state.status,
        state.expires_at,
        due_at,
        encode(list(map(escape_text, state.tags))) if state.tags else "[]",
        encode({escape_text(key): escape_text(text) for key, text in state.metadata.items()})
        if state.metadata
        else "{}",
    )


def content_columns(state: SessionState) -> tuple[Value, ...]:
    """Return the columns that are not indexed, from step_count to interrupt_context."""
    calls = state.pending_client_tool_calls
    return (
        state.step_count,
        state.resume_count,
        _json_or_null(state.output),
        _text_or_null(state.error),
        _text_or_null(state.failure_reason),
        encode(msgspec.to_builtins(calls)) if calls else None,
        encode(state.completed_client_tool_calls) if state.completed_client_tool_calls else None,
        _suspension_text(state),
        _json_or_null(state.interrupt_context),
    )


def _suspension_text(state: SessionState) -> str | None:
    packed: dict[str, Any] = {}
    if state.suspended_awaiting_children:
        packed["suspended_awaiting_children"] = state.suspended_awaiting_children
    if state.suspended_step_id is not None:
        packed["suspended_step_id"] = state.suspended_step_id
    if state.client_tool_call_ownership:
        packed["client_tool_call_ownership"] = state.client_tool_call_ownership
    if state.tracing_context is not None:
        packed["tracing_context"] = state.tracing_context
    if state.queued_messages:
        packed["queued_messages"] = state.queued_messages
    if state.wake_at is not None:
        packed["wake_at"] = state.wake_at
    return encode(msgspec.to_builtins(packed)) if packed else None


class _Suspension(msgspec.Struct):
    suspended_awaiting_children: dict[str, SuspendedChildWait] = {}
    suspended_step_id: str | None = None
    client_tool_call_ownership: dict[str, str] = {}
    tracing_context: TracingContext | None = None
    queued_messages: list[dict[str, Any]] = []
    wake_at: int | None = None


_NOT_SUSPENDED = _Suspension()


class SessionRow(NamedTuple):
    """A row of `read_session`."""

    session_id: str
    agent_type: str
    stream_id: str
    parent_session_id: str | None
    root_session_id: str | None
    step_count: int
    status: SessionStatus
    output: str | None
    error: str | None
    failure_reason: str | None
    pending_client_tool_calls: str | None
    completed_client_tool_calls: str | None
    suspension_context: str | None
    interrupt_context: str | None
    expires_at: int | None
    user_id: str | None
    tags: str
    metadata: str
    version: int
    resume_count: int
    created_at: int
    updated_at: int
    message_count: int
    checkpoint_count: int
    flagged_at: int | None
    flag_reason: str | None
    flag_run_id: str | None
    flag_abort: int | None
    incarnation: str
    owner_epoch: int
    forked_from: str | None


def session_from_row(row: Row, custom_state: dict[str, Json] | None = None) -> StoredSession:
    """Return a row of `read_session`."""
    found = SessionRow(*row)
    packed, calls, done = found.suspension_context, found.pending_client_tool_calls, found.completed_client_tool_calls
    suspension = _NOT_SUSPENDED if packed is None else to_struct(_Suspension, decode(packed))
    state = SessionState(
        session_id=found.session_id,
        agent_type=found.agent_type,
        stream_id=found.stream_id,
        parent_session_id=found.parent_session_id,
        root_session_id=found.root_session_id,
        custom_state=custom_state,
        step_count=found.step_count,
        status=found.status,
        output=_value_or_none(found.output),
        error=_string_or_none(found.error),
        failure_reason=_string_or_none(found.failure_reason),
        suspended_awaiting_children=suspension.suspended_awaiting_children,
        suspended_step_id=suspension.suspended_step_id,
        pending_client_tool_calls={} if calls is None else to_struct(dict[str, PendingClientToolCall], decode(calls)),
        completed_client_tool_calls={} if done is None else decode(done),
        client_tool_call_ownership=suspension.client_tool_call_ownership,
        interrupt_context=_value_or_none(found.interrupt_context),
        interrupt_flag=flag_from_row((found.flagged_at, found.flag_reason, found.flag_run_id, found.flag_abort)),
        tracing_context=suspension.tracing_context,
        queued_messages=suspension.queued_messages,
        wake_at=suspension.wake_at,
        expires_at=found.expires_at,
        user_id=found.user_id,
        tags=() if found.tags == "[]" else tuple(map(unescape_text, decode(found.tags))),
        metadata={}
        if found.metadata == "{}"
        else {unescape_text(key): unescape_text(text) for key, text in decode(found.metadata).items()},
        version=found.version,
        resume_count=found.resume_count,
        created_at=found.created_at,
        updated_at=found.updated_at,
        incarnation=found.incarnation,
        owner_epoch=found.owner_epoch,
        forked_from=None if found.forked_from is None else to_struct(ForkOrigin, decode(found.forked_from)),
    )
    return StoredSession(state, found.message_count, found.checkpoint_count)


def owner_columns(owner: Owner | None) -> tuple[Value, Value]:
    """Return incarnation and owner epoch, or NULLs."""
    return (None, None) if owner is None else (owner.incarnation, owner.epoch)


def swap_columns(also: Mapping[str, Any]) -> tuple[Value, ...]:
    """Return interrupt_context, error and failure_reason; NULL where nothing is given."""
    return (
        _json_or_null(also.get("interrupt_context")),
        _text_or_null(also.get("error")),
        _text_or_null(also.get("failure_reason")),
    )


def flag_columns(flag: InterruptFlag) -> tuple[Value, ...]:
    """Return reason, run_id, timestamp and abort."""
    return _text_or_null(flag.reason), flag.run_id, flag.set_at, int(flag.abort)


def flag_from_row(row: Row) -> InterruptFlag | None:
    """Return a row of `read_flag`."""
    set_at, reason, run_id, abort = row
    return None if set_at is None else InterruptFlag(_string_or_none(reason), run_id, set_at, abort=bool(abort))


# -- custom state


def slot_text(slot: Slot) -> str:
    """Return a slot as its column: '' a key itself, '#0000000007' an item, '.name' a member."""
    if slot is None:
        return ""
    return f"#{slot:010d}" if isinstance(slot, int) else "." + escape_text(slot)


def slot_of(text: str) -> Slot:
    """Return what `slot_text` was given."""
    if not text:
        return None
    return int(text[1:]) if text[0] == "#" else unescape_text(text[1:])


# -- checkpoints, runs, refs


def checkpoint_from_row(row: Row) -> StoredCheckpoint:
    """Return a row of `read_checkpoint`."""
    return StoredCheckpoint(*row)


def run_columns(run: RunRecord) -> tuple[Value, ...]:
    """Return the columns from turn to details, in the order of `insert_run`."""
    counts = (run.turn, run.status, run.step_count, run.start_sequence, run.started_at)
    return (*counts, encode(run.metadata), run.lease_until, details_to_text(run))


def run_changes(changes: Mapping[str, Any], run: RunRecord | None = None) -> tuple[Value, ...]:
    """Return the columns from status to details, in the order of `update_run`; None where nothing is given.

    `run`: the record with all its details, if some of these change: they are one text.
    """
    return (
        changes.get("status"),
        changes.get("step_count"),
        _text_or_null(changes.get("error")),
        _json_or_null(changes.get("output")),
        changes.get("completed_at"),
        changes.get("lease_until"),
        changes.get("start_sequence"),
        None if changes.get("metadata") is None else encode(changes["metadata"]),
        None if run is None or changes.keys().isdisjoint(DETAILS) else details_to_text(run),
    )


class RunRow(NamedTuple):
    """A row of `read_run`."""

    run_id: str
    session_id: str
    turn: int
    status: RunStatus
    step_count: int
    start_sequence: int
    started_at: int
    completed_at: int | None
    error: str | None
    output: str | None
    metadata: str
    lease_until: int | None
    details: str


def run_from_row(row: Row) -> RunRecord:
    """Return a row of `read_run`."""
    found = RunRow(*row)
    return RunRecord(
        run_id=found.run_id,
        session_id=found.session_id,
        turn=found.turn,
        status=found.status,
        step_count=found.step_count,
        start_sequence=found.start_sequence,
        started_at=found.started_at,
        completed_at=found.completed_at,
        error=_string_or_none(found.error),
        output=_value_or_none(found.output),
        metadata=decode(found.metadata),
        lease_until=found.lease_until,
        **details_from_text(found.details),
    )


def conversation_from_rows(
    stored: StoredSession, messages: list[str], runs: list[Row], checkpoints: list[Row]
) -> StoredConversation:
    """Return a session with what was read beside it: at most one run and one checkpoint."""
    run = run_from_row(runs[0]) if runs else None
    return StoredConversation(stored, messages, run, checkpoint_from_row(checkpoints[0]) if checkpoints else None)


RUN_COLUMNS = ", ".join(f"r.{name}" for name in RunRow._fields)


def claimable_from_row(row: Row) -> Claimable:
    """Return a row of a claimable listing: a session, its latest run (or NULL), and since when it is due."""
    width = len(SessionRow._fields)
    *run, due_at = row[width:]
    return Claimable(session_from_row(row[:width]).state, None if run[0] is None else run_from_row(tuple(run)), due_at)


def ref_columns(ref: SubSessionRef) -> tuple[Value, ...]:
    """Return all columns of a ref but its position, in the order of `put_ref`."""
    return (
        ref.sub_session_id,
        ref.agent_type,
        ref.parent_tool_call_id,
        escape_text(ref.status),
        ref.mode,
        _text_or_null(ref.name),
        _json_or_null(ref.remote),
        ref.started_at,
        ref.completed_at,
    )


REF_COLUMNS = {"remote": "remote_json"}
"""Fields of a ref whose column has another name."""


def ref_value(field: str, value: Any) -> Value:
    """Return one field of a ref as its column holds it."""
    if field == "remote":
        return _json_or_null(value)
    if field in ("name", "status"):
        return _text_or_null(value)
    checked: Value = value
    return checked


def ref_from_row(row: Row) -> SubSessionRef:
    """Return a row of `read_refs`."""
    sub_session_id, agent_type, parent_tool_call_id, status, mode, name, remote, started_at, completed_at = row
    return SubSessionRef(
        sub_session_id=sub_session_id,
        agent_type=agent_type,
        parent_tool_call_id=parent_tool_call_id,
        status=unescape_text(status),
        mode=mode,
        name=_string_or_none(name),
        remote=_value_or_none(remote),
        started_at=started_at,
        completed_at=completed_at,
    )
