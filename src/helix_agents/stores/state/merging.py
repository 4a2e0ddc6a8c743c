"""All changes of custom state that merge: staging, the step commit, promotion, `merge_custom_state`.

A merge is computed here, from the cells that the writes touch, and stored under the guard that those cells have not
changed since. This store object caches its own writes, so a commit whose tools ran in this process is one round trip;
if the cache was stale, the backend rejects the commit, and the second try reads first. Within a process, merges of one
session are queued, so that only other processes can force a retry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet

import msgspec

from ...clock import Clock, IdSource, pause_seconds, random_id, system_clock
from ...codec import Json, decode, encode, ensure_count, ensure_json
from ...errors import InvalidArgument, StoreUnavailable
from ...ids import checkpoint_id, ensure_id
from ...lifecycle import guarded_sources
from ...messages import Message
from ...retry import CONTENTION
from ...state import StepWrites, merge_step_writes
from ...types import CheckpointKind, CheckpointMeta, Committed, Owner, RunRecord, SessionState, StagedChanges
from ..along import Along
from . import validate
from .cache import CellCache, PreparedStep, StagedCall, StagingCache, prepare_step, staged_call, writes_of
from .cells import plan_merge, prepare, replacement
from .commit import (
    Applied,
    CellName,
    CellTexts,
    CheckpointRow,
    Commit,
    CommitRefused,
    CustomChanges,
    RunChange,
    StagedRow,
)
from .due import due_at
from .fields import fields_to_text
from .keyed_lock import KeyedLock
from .lost_reply import outcome_of
from .refusals import require_session
from .runs import RunStore, checked_change, with_run


class MergingStore(RunStore):
    """The part of the state store that merges."""

    def __init__(self, *, clock: Clock = system_clock, ids: IdSource = random_id) -> None:
        super().__init__(clock=clock, ids=ids)
        self._cells = CellCache()
        self._staging = StagingCache()
        self._locks = KeyedLock()

    # -- staging

    async def stage_calls(
        self,
        session_id: str,
        step_id: str,
        calls: Sequence[StagedChanges],
        *,
        expected_version: int | None = None,
        owner: Owner | None = None,
        along: Along | None = None,
    ) -> int:
        ensure_id(session_id, "session_id")
        ensure_id(step_id, "step_id")
        validate.ensure_guards(expected_version=expected_version, owner=owner)
        now = self._clock()
        rows = {(row.kind, row.tool_call_id): row for row in [self._row(call, now) for call in calls]}
        if not rows and along is None:
            return 0
        # Prepare the data of the commit here; this write also returns the cells, which saves a read.
        ready = [staged_call(row) for row in rows.values()]
        touched = frozenset[CellName]().union(*(call.prepared.touched for call in ready))
        want = touched - self._cells.get(session_id, touched).keys()
        commit = Commit(
            session_id=session_id,
            now=now,
            owner=owner,
            expected_version=expected_version,
            stage=(step_id, tuple(rows.values())),
            along=along,
        )
        try:
            applied, cells = await self._apply(commit, want)
        except CommitRefused as failed:
            await self._explain(commit, failed)
        self._cells.put(session_id, cells)
        for call in ready:
            self._staging.put(session_id, step_id, call)
        return applied.sequence

    def _row(self, call: StagedChanges, now: int) -> StagedRow:
        validate.ensure_staged_name(call)
        ensure_count(call.index, "index")
        validate.ensure_writes(call.writes)
        ensure_json(call.result, "/result")
        text = encode([list(call.writes.ops), list(call.writes.warnings)])
        return StagedRow(call.kind, call.tool_call_id, call.index, text, encode(call.result), self._ids()[:12], now)

    async def list_staged(self, session_id: str, step_id: str) -> list[StagedChanges]:
        ensure_id(session_id, "session_id")
        ensure_id(step_id, "step_id")
        rows = require_session(session_id, await self._read_staged(session_id, step_id))
        return [
            StagedChanges(row.tool_call_id, row.position, writes_of(row), decode(row.result), row.staged_at, row.kind)
            for row in sorted(rows, key=lambda row: (row.position, row.kind, row.tool_call_id))
        ]

    async def discard_staging(
        self,
        session_id: str,
        step_id: str | None = None,
        *,
        expected_version: int | None = None,
        owner: Owner | None = None,
    ) -> int:
        ensure_id(session_id, "session_id")
        if step_id is not None:
            ensure_id(step_id, "step_id")
        validate.ensure_guards(expected_version=expected_version, owner=owner)
        commit = Commit(
            session_id=session_id,
            now=self._clock(),
            owner=owner,
            expected_version=expected_version,
            discard_step=step_id,
            discard_all=step_id is None,
        )
        applied = await self._write(commit)
        self._staging.forget(session_id, step_id)
        return applied.removed

    # -- merging

    async def merge_custom_state(self, session_id: str, writes: StepWrites, *, owner: Owner | None = None) -> list[str]:
        ensure_id(session_id, "session_id")
        validate.ensure_guards(owner=owner)
        ready = prepare(validate.ensure_writes(writes))
        touched = ready.touched
        await self._locks.take(session_id)
        try:
            for attempt in CONTENTION.attempts():
                known = self._cells.get(session_id, touched)
                if len(known) < len(touched):
                    known = await self._completed(session_id, known, touched)
                changes, warnings = plan_merge(ready, known, in_order=True)
                commit = Commit(session_id=session_id, now=self._clock(), owner=owner, custom=changes)
                try:
                    await self._apply(commit)
                except CommitRefused as failed:
                    if failed.reason != "cells":
                        await self._explain(commit, failed)
                    await self._after_refusal(session_id, failed, attempt)
                    continue
                self._cells.learn(session_id, changes)
                return warnings
        finally:
            self._locks.give(session_id)
        raise _contended(session_id)

    async def promote_staging(self, session_id: str, step_id: str) -> list[str]:
        ensure_id(session_id, "session_id")
        ensure_id(step_id, "step_id")
        blank = Commit(session_id=session_id, now=self._clock())
        _, warnings = await self._promote(blank, step_id, None)
        return warnings

    async def save_state_and_promote_staging(
        self,
        session_id: str,
        state: SessionState,
        append_messages: Sequence[Message],
        checkpoint: CheckpointMeta,
        *,
        expected_version: int | None = None,
        unstaged: Sequence[StagedChanges] = (),
        run: RunRecord | None = None,
        change_run: RunChange | None = None,
        owner: Owner | None = None,
        new_epoch: int | None = None,
        along: Along | None = None,
    ) -> Committed:
        ensure_id(session_id, "session_id")
        validate.ensure_state(session_id, state)
        validate.ensure_guards(expected_version=expected_version, owner=owner, new_epoch=new_epoch)
        texts = validate.encoded_messages(append_messages)
        state = msgspec.structs.replace(state, step_count=checkpoint.step_count)
        now = self._clock()
        row = self._row_of_checkpoint(state, checkpoint, now)
        blank = Commit(
            session_id=session_id,
            now=now,
            owner=owner,
            expected_version=expected_version,
            new_epoch=new_epoch,
            allowed_from=guarded_sources(state.status),
            state=state,
            due_at=due_at(state, now),
            bump_version=True,
            messages=texts,
            checkpoint=row,
            run=with_run(session_id, run, now),
            change_run=checked_change(session_id, change_run, now),
            along=along,
        )
        extra = [staged_call(self._row(call, now)) for call in unstaged]
        promoted = checkpoint.step_id if checkpoint.kind == "step" else None
        applied, warnings = await self._promote(blank, promoted, state.custom_state, extra)
        return Committed(row.checkpoint_id, applied.version, applied.message_count, warnings, applied.sequence)

    def _row_of_checkpoint(self, state: SessionState, meta: CheckpointMeta, now: int) -> CheckpointRow:
        """Return the checkpoint for a write of these fields."""
        _ensure_meta(meta)
        return CheckpointRow(
            checkpoint_id(state.session_id, meta.step_count, now, self._ids()),
            meta.step_id,
            meta.step_count,
            meta.stream_sequence,
            meta.kind,
            fields_to_text(state, meta.request),
        )

    async def _promote(
        self,
        blank: Commit,
        step_id: str | None,
        custom_state: dict[str, Json] | None,
        unstaged: Sequence[StagedCall] = (),
    ) -> tuple[Applied, list[str]]:
        """Merge the staged and `unstaged` writes of the step, add the result to `blank`, and store it."""
        session_id = blank.session_id
        if not self._locks.take_if_free(session_id):
            await self._locks.take(session_id)
        try:
            step: PreparedStep | None = (
                prepare_step("", (), unstaged) if step_id is None else self._staging.get(session_id, step_id, unstaged)
            )
            for attempt in CONTENTION.attempts():
                if step is None:
                    assert step_id is not None
                    step = await self._stored_step(session_id, step_id, unstaged)
                if custom_state is None:
                    touched = step.prepared.touched
                    known = self._cells.get(session_id, touched)
                    if len(known) < len(touched):
                        known = await self._completed(session_id, known, touched)
                    changes, warnings = plan_merge(step.prepared, known)
                else:
                    changes, warnings = _merged_into(custom_state, step.prepared.writes)
                commit = msgspec.structs.replace(blank, promote=None if step_id is None else step.guard, custom=changes)
                if commit.along is not None and commit.checkpoint is not None:
                    along = commit.along.with_announcement(commit.checkpoint.checkpoint_id, warnings)
                    commit = msgspec.structs.replace(commit, along=along)
                try:
                    try:
                        applied, _ = await self._apply(commit)
                    except StoreUnavailable as error:
                        applied = await self._outcome(commit, error)
                except CommitRefused as failed:
                    if failed.reason not in ("cells", "staged"):
                        await self._explain(commit, failed)
                    await self._after_refusal(session_id, failed, attempt)
                    if failed.reason == "staged":
                        step = None
                    continue
                if step_id is not None:
                    self._staging.forget(session_id, step_id)
                self._cells.learn(session_id, changes)
                return applied, warnings
        finally:
            self._locks.give(session_id)
        raise _contended(session_id)

    async def _outcome(self, commit: Commit, error: StoreUnavailable) -> Applied:
        """Find out whether a commit happened whose reply was lost (S12)."""
        return await outcome_of(self, commit, error)

    # -- what is known

    async def _completed(self, session_id: str, known: CellTexts, names: AbstractSet[CellName]) -> CellTexts:
        """Return the texts of these cells; read those that are not cached."""
        found = require_session(session_id, await self._read_cells(session_id, names - known.keys()))
        self._cells.put(session_id, found)
        return known | found

    async def _stored_step(self, session_id: str, step_id: str, unstaged: Sequence[StagedCall]) -> PreparedStep:
        rows = require_session(session_id, await self._read_staged(session_id, step_id))
        return prepare_step(step_id, map(staged_call, rows), unstaged)

    async def _after_refusal(self, session_id: str, failed: CommitRefused, attempt: int) -> None:
        """Drop stale cache entries, and wait briefly if there are many writers."""
        self._cells.forget(session_id)
        if attempt > 1:
            await asyncio.sleep(pause_seconds(attempt))

    def _forget(self, session_id: str) -> None:
        self._cells.forget(session_id)
        self._staging.forget(session_id)


def _merged_into(custom_state: dict[str, Json], writes: Iterable[StepWrites]) -> tuple[CustomChanges, list[str]]:
    from_given, warnings = merge_step_writes(custom_state, writes)
    return replacement(from_given), warnings


def _ensure_meta(checkpoint: object) -> None:
    if not isinstance(checkpoint, CheckpointMeta):
        raise InvalidArgument(f"checkpoint must be a CheckpointMeta, not {type(checkpoint).__name__}.")
    ensure_id(checkpoint.step_id, "step_id")
    ensure_count(checkpoint.step_count, "step_count")
    ensure_count(checkpoint.stream_sequence, "stream_sequence")
    validate.ensure_choice(checkpoint.kind, CheckpointKind, "kind of a checkpoint")
    if checkpoint.request is not None and not isinstance(checkpoint.request, dict):
        raise InvalidArgument(f"The request of a checkpoint must be a dict, not {type(checkpoint.request).__name__}.")
    ensure_json(checkpoint.request, "/request")


def _contended(session_id: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"The custom state of session {session_id!r} changed {CONTENTION.tries} times during the write. Try again."
    )
