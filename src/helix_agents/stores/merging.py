"""Everything that changes custom state by merging: staging, the step commit, promotion, `merge_custom_state`.

A merge is computed here, from the cells that the writes touch, and stored under the guard that those cells have not
changed since. What this store object wrote itself it still holds, so a commit whose tools ran in this process is one
round trip; if the guess was wrong the backend refuses, and the second try reads first. Within a process merges of one
session queue up, so that only other processes can make them retry.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet

import msgspec

from ..clock import Clock, IdSource, checkpoint_id, random_id, system_clock
from ..codec import Json, decode, encode, ensure_id, ensure_json
from ..errors import InvalidArgument, SessionNotFound, StoreUnavailable
from ..messages import Message
from ..state import StepWrites, merge_step_writes
from ..types import CheckpointMeta, Committed, SessionState, StagedChanges
from . import validate
from .cells import known_after, planned_changes, replacement, touched_cells
from .commit import (
    NO_CHANGES,
    Applied,
    CellName,
    CheckpointRow,
    Commit,
    CustomChanges,
    GuardFailed,
    StagedRow,
    StagedStep,
)
from .fields import fields_to_text
from .held import HeldCells, HeldStaging, StagedCall, in_tool_order, staged_call, writes_of
from .turns import Turns
from .verbs import StateStoreVerbs

MAX_MERGE_ATTEMPTS = 200
MAX_COMMIT_ATTEMPTS = 5


class MergingStore(StateStoreVerbs):
    """The part of the state store that merges."""

    def __init__(self, *, clock: Clock = system_clock, ids: IdSource = random_id) -> None:
        super().__init__(clock=clock, ids=ids)
        self._cells = HeldCells()
        self._staging = HeldStaging()
        self._turns = Turns()

    # -- staging

    async def stage_changes(
        self,
        session_id: str,
        step_id: str,
        writes: StepWrites,
        *,
        tool_call_id: str,
        index: int = 0,
        result: Json = None,
    ) -> None:
        ensure_id(session_id, "session_id")
        ensure_id(step_id, "step_id")
        ensure_id(tool_call_id, "tool_call_id")
        validate.ensure_count(index, "index")
        validate.ensure_writes(writes)
        ensure_json(result, "/result")
        now = self._clock()
        text = encode([list(writes.ops), list(writes.warnings)])
        row = StagedRow(tool_call_id, index, text, encode(result), self._ids()[:12], now)
        # What the commit will need is made ready here, and the cells come back with this write: no read of their own.
        call = staged_call(row)
        want = call.touched - self._cells.get(session_id, call.touched).keys()
        try:
            _, cells = await self._apply(Commit(session_id=session_id, now=now, stage=(step_id, row)), want)
        except GuardFailed as failed:
            raise SessionNotFound(session_id) from failed
        self._cells.put(session_id, cells)
        self._staging.put(session_id, step_id, call)

    async def list_staged(self, session_id: str, step_id: str) -> list[StagedChanges]:
        ensure_id(session_id, "session_id")
        ensure_id(step_id, "step_id")
        rows = await self._read_staged(session_id, step_id)
        if rows is None:
            raise SessionNotFound(session_id)
        return [
            StagedChanges(row.tool_call_id, row.position, writes_of(row), decode(row.result), row.staged_at)
            for row in sorted(rows, key=lambda row: (row.position, row.tool_call_id))
        ]

    async def discard_staging(self, session_id: str, step_id: str | None = None) -> int:
        ensure_id(session_id, "session_id")
        if step_id is not None:
            ensure_id(step_id, "step_id")
        commit = Commit(session_id=session_id, now=self._clock(), discard_step=step_id, discard_all=step_id is None)
        try:
            applied, _ = await self._apply(commit)
        except GuardFailed as failed:
            raise SessionNotFound(session_id) from failed
        self._staging.forget(session_id, step_id)
        return applied.removed

    # -- merging

    async def merge_custom_state(self, session_id: str, writes: StepWrites) -> list[str]:
        ensure_id(session_id, "session_id")
        validate.ensure_writes(writes)
        touched = touched_cells([writes])
        await self._turns.take(session_id)
        try:
            for attempt in range(MAX_MERGE_ATTEMPTS):
                known = await self._known(session_id, touched)
                changes, warnings = planned_changes([writes], known, in_order=True)
                try:
                    await self._apply(Commit(session_id=session_id, now=self._clock(), custom=changes))
                except GuardFailed as failed:
                    await self._after_refusal(session_id, failed, attempt)
                    continue
                self._remember(session_id, changes)
                return warnings
        finally:
            self._turns.give(session_id)
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
    ) -> Committed:
        ensure_id(session_id, "session_id")
        validate.ensure_state(session_id, state)
        texts = validate.encoded_messages(append_messages)
        _ensure_meta(checkpoint)
        state = msgspec.structs.replace(state, step_count=checkpoint.step_count)
        now = self._clock()
        row = CheckpointRow(
            checkpoint_id(session_id, checkpoint.step_count, now, self._ids()),
            checkpoint.step_id,
            checkpoint.step_count,
            checkpoint.stream_sequence,
            fields_to_text(state),
        )
        blank = Commit(
            session_id=session_id,
            now=now,
            expected_version=expected_version,
            state=state,
            bump_version=True,
            messages=texts,
            checkpoint=row,
        )
        applied, warnings = await self._promote(blank, checkpoint.step_id, state.custom_state)
        return Committed(row.checkpoint_id, applied.version, applied.message_count, warnings)

    async def _promote(
        self, blank: Commit, step_id: str, custom_state: dict[str, Json] | None
    ) -> tuple[Applied, list[str]]:
        """Add to `blank` the merge of what is staged for the step, and store it all."""
        session_id = blank.session_id
        await self._turns.take(session_id)
        try:
            calls: list[StagedCall] | None = self._staging.get(session_id, step_id)
            for attempt in range(MAX_MERGE_ATTEMPTS):
                if calls is None:
                    calls = await self._stored_calls(session_id, step_id)
                changes, warnings = await self._merged(session_id, calls, custom_state)
                commit = msgspec.structs.replace(blank, promote=_as_guard(step_id, calls), custom=changes)
                try:
                    applied = await self._apply_once(commit)
                except GuardFailed as failed:
                    if failed.reason not in ("cells", "staged"):
                        await self._explain(commit, failed)
                    await self._after_refusal(session_id, failed, attempt)
                    if failed.reason == "staged":
                        calls = None
                    continue
                self._staging.forget(session_id, step_id)
                self._remember(session_id, changes)
                return applied, warnings
        finally:
            self._turns.give(session_id)
        raise _contended(session_id)

    async def _merged(
        self, session_id: str, calls: Sequence[StagedCall], custom_state: dict[str, Json] | None
    ) -> tuple[CustomChanges, list[str]]:
        writes = [call.writes for call in calls]
        if custom_state is not None:
            return _merged_into(custom_state, writes)
        if not calls:
            return NO_CHANGES, []
        touched = calls[0].touched.union(*[call.touched for call in calls[1:]])
        return planned_changes(writes, await self._known(session_id, touched))

    async def _apply_once(self, commit: Commit) -> Applied:
        """Apply; if the reply is lost, find out whether it happened before trying again (S12)."""
        if commit.checkpoint is None:
            return (await self._apply(commit))[0]
        for attempt in range(MAX_COMMIT_ATTEMPTS):
            try:
                if attempt:
                    found = await self._read_checkpoint(
                        commit.session_id, commit.checkpoint.checkpoint_id, custom_state=False
                    )
                    if found is not None:
                        return Applied(found[0].version, found[0].message_count, found[0].step_count, 0)
                return (await self._apply(commit))[0]
            except StoreUnavailable as error:
                first_and_certain = error.nothing_written and attempt == 0
                if first_and_certain or attempt == MAX_COMMIT_ATTEMPTS - 1:
                    raise
                await asyncio.sleep(0.01 * 4**attempt)
        raise AssertionError("unreachable")

    # -- what is known

    async def _known(self, session_id: str, names: AbstractSet[CellName]) -> dict[CellName, str | None]:
        known = self._cells.get(session_id, names)
        if len(known) < len(names):
            missing = names - known.keys()
            found = await self._read_cells(session_id, missing)
            if found is None:
                raise SessionNotFound(session_id)
            known |= found
            self._cells.put(session_id, found)
        return known

    async def _stored_calls(self, session_id: str, step_id: str) -> list[StagedCall]:
        rows = await self._read_staged(session_id, step_id)
        if rows is None:
            raise SessionNotFound(session_id)
        return in_tool_order(map(staged_call, rows))

    async def _after_refusal(self, session_id: str, failed: GuardFailed, attempt: int) -> None:
        """Forget what turned out to be outdated; let others finish when there is a crowd."""
        if failed.reason == "missing":
            raise SessionNotFound(session_id) from failed
        self._cells.forget(session_id)
        if attempt > 1:
            await asyncio.sleep(random.uniform(0, min(0.05, 0.001 * 2**attempt)))

    def _remember(self, session_id: str, changes: CustomChanges) -> None:
        if changes.replace_all:
            self._cells.forget(session_id)
        self._cells.put(session_id, known_after(changes), reset=[*changes.set_keys, *changes.drop_keys])

    def _forget(self, session_id: str) -> None:
        self._cells.forget(session_id)
        self._staging.forget(session_id)


def _merged_into(custom_state: dict[str, Json], writes: Iterable[StepWrites]) -> tuple[CustomChanges, list[str]]:
    from_given, warnings = merge_step_writes(custom_state, list(writes))
    return replacement(from_given), warnings


def _as_guard(step_id: str, calls: Iterable[StagedCall]) -> StagedStep:
    return StagedStep(step_id, tuple([(call.tool_call_id, call.token) for call in calls]))


def _ensure_meta(checkpoint: object) -> None:
    if not isinstance(checkpoint, CheckpointMeta):
        raise InvalidArgument(f"checkpoint is a CheckpointMeta, not {type(checkpoint).__name__}.")
    ensure_id(checkpoint.step_id, "step_id")
    validate.ensure_count(checkpoint.step_count, "step_count")
    validate.ensure_count(checkpoint.stream_sequence, "stream_sequence")


def _contended(session_id: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"Session {session_id!r}: others changed the same state {MAX_MERGE_ATTEMPTS} times in a row. Try again."
    )
