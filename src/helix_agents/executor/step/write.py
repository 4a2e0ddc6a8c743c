"""The writes of a step: its commit or its suspension, with its chunks and usage.

If one backend holds them all, one write carries everything. Otherwise chunks and usage are stored before the write that
refers to them, and the announcement follows it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import cast

import msgspec

from ...chunks import AnyChunk
from ...codec import Json, encode
from ...errors import StreamError, StreamFenced
from ...safe_text import get_logger
from ...stores.state.commit import RunChange
from ...streams.records import StreamEnd
from ...types import CheckpointMeta, Committed, RunStatus, SessionState
from ..run_context import RunContext
from ..session.owned import Change
from ..session.queued_messages import ensure_all_taken
from ..session.standing import UNOWNED
from ..stream.prepare import step_committed_chunk
from .decisions import NO_CUT, Cut, StepCommit, Suspension, aside_checkpoint, committed_state, suspended_state
from .open_step import OpenStep
from .staging import flush_unstaged

logger = get_logger("helix_agents.executor")

SLOW_COMMIT_SECONDS = 1.0
"""Commits that take longer are logged."""


def _warnings(step: OpenStep, lost: Sequence[str]) -> list[str]:
    """Return warnings about the writes of a step that were lost."""
    # Both merges report the same losses; the sequencer numbers tools as the model did.
    counted = step.sequencer.warnings if lost and step.sequencer.warnings else lost
    return [*counted, *(step.sequencer.likely_lost_counts() if len(step.rows) > 1 else ())]


def _stream_end(commit: StepCommit) -> StreamEnd:
    if commit.status == "completed":
        return StreamEnd("ended", final_output=encode(commit.output))
    if commit.status == "failed":
        return StreamEnd("failed", error=encode(commit.error or "failed"))
    return StreamEnd("paused")


class StepWriter:
    """Writes the steps of one run."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._services = context.services
        self._owned = context.owned
        self._stop = context.stop
        self.ended = False
        """Whether the last write also ended the stream and the run."""

    async def write(
        self, commit: StepCommit, step: OpenStep, context: Json = None, *, whole_queue: bool = False
    ) -> None:
        """Commit a step in one atomic write, then announce it."""
        calls = [call["id"] for call in step.calls]

        def change(session: SessionState) -> SessionState:
            if whole_queue:
                ensure_all_taken(session, commit.taken)
            return msgspec.structs.replace(committed_state(session, commit, calls), interrupt_context=context)

        if sum(bool(row.writes.ops) for row in step.rows.values()) > 1:  # each is valid alone, but perhaps not together
            self._context.agent.ensure_state(step.sequencer.state, self._owned.state)
        started_at = asyncio.get_running_loop().time()
        committed = await self._write_along(commit, step, change)
        took = asyncio.get_running_loop().time() - started_at
        if took > SLOW_COMMIT_SECONDS:
            logger.warning("Session %s: the commit of step %d took %.1f s.", self._owned.session_id, step.number, took)
        self._context.watch.steps = self._owned.session.step_count - self._context.first_step
        await self._report_lost_writes(committed, step)

    async def _write_along(self, commit: StepCommit, step: OpenStep, change: Change) -> Committed:
        """Commit with the step's chunks and usage; the last commit of a run also ends the stream and the run."""
        stream, announce = self._context.stream, partial(self._end_chunks, step, commit)
        run, ends = None, None
        if commit.status != "active":
            run, ends = await self._end(commit, steps=1)
        elif self._context.releases:
            run = await self._release()
        with self._resuming_on_error():
            async with stream.carrying(*step.to_emit.values(), usage=step.usage, announce=announce, ends=ends) as load:
                sequence = await self._flush(step) if load.along is None else 0
                committed = await self._owned.commit(
                    change,
                    [*step.before, *commit.messages],
                    CheckpointMeta(step.step_id, step.number, sequence, request=step.request),
                    custom_state=step.sequencer.state,
                    unstaged=[row for row in step.unstaged.values() if row.writes.ops],
                    change_run=run,
                    along=load.along,
                )
                load.sequence = committed.sequence
        if load.along is None:
            for chunk in self._end_chunks(step, commit, committed.checkpoint_id, committed.warnings):
                stream.emit(chunk)
        return committed

    async def _end(self, commit: StepCommit, *, steps: int = 0) -> tuple[RunChange | None, StreamEnd | None]:
        """Return the changes that end the run and its stream, for the write that stops the session.

        None if the state store cannot carry them: then the stream ends after the write, and the run record after the
        stream. `steps`: how many steps the write commits.
        """
        watch = self._context.watch
        if not self._context.stream.carries:
            return None, None
        await watch.pause()
        self.ended = True
        ended = msgspec.structs.replace(
            watch.run,
            status=cast(RunStatus, commit.status),
            step_count=self._owned.session.step_count + steps - self._context.first_step,
            error=commit.error,
            output=commit.output,
            completed_at=self._services.clock(),
        )
        return RunChange(watch.run, ended), _stream_end(commit)

    @contextmanager
    def _resuming_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            if self.ended:
                self.ended = False
                self._context.watch.unpause()
            raise

    async def _release(self) -> RunChange:
        """Return the change that releases the run, for the last commit of this process."""
        watch = self._context.watch
        await watch.pause()
        steps = self._owned.session.step_count + 1 - self._context.first_step
        change = RunChange(watch.run, msgspec.structs.replace(watch.run, lease_until=UNOWNED, step_count=steps))
        watch.run, self._context.released = change.wanted, True
        return change

    async def _report_lost_writes(self, committed: Committed, step: OpenStep) -> None:
        """Report lost writes to the result, the log and the hooks."""
        context = self._context
        warnings = _warnings(step, committed.warnings)
        if not warnings:
            return
        context.warnings += warnings
        for warning in warnings:
            logger.warning("Session %s, step %d: %s", context.session_id, step.number, warning)
        await context.hooks.call("writes_lost", step.number, list(warnings))

    def _end_chunks(
        self, step: OpenStep, commit: StepCommit, checkpoint_id: str, lost: Sequence[str]
    ) -> list[AnyChunk]:
        """Return the chunks that announce a commit and its output."""
        warnings, reason = _warnings(step, lost), step.answer.get("finish_reason")
        chunks: list[AnyChunk] = [
            step_committed_chunk(
                checkpoint_id, step.number, step.answer.get("id"), warnings=warnings, finish_reason=reason
            )
        ]
        if commit.status != "active":
            chunks.append(self._last_chunk(commit))
        return chunks

    def _last_chunk(self, commit: StepCommit) -> AnyChunk:
        """Return the chunk that announces why a session stopped."""
        if commit.status == "completed":
            return {"type": "output", "output": commit.output}
        if commit.status == "failed":
            return {"type": "error", "error": commit.error}
        return {"type": "run_interrupted", "reason": self._stop.reason}

    async def write_suspension(self, suspension: Suspension, step: OpenStep) -> None:
        """Write the suspension of a step, and end the run and its stream with it."""
        stream, stopped = self._context.stream, StepCommit([], suspension.status)
        context = self.interrupt_context() if self._stop.requested else None
        chunk: AnyChunk = self._last_chunk(stopped)
        if not self._stop.requested:
            missing = sorted(call["id"] for call in step.missing)
            chunk = {"type": "run_suspended", "status": suspension.status, "tool_call_ids": missing}
        if step.unstaged:
            await flush_unstaged(self._context, step)
        run, ends = await self._end(stopped)
        with self._resuming_on_error():
            async with stream.carrying(usage=step.usage, announce=lambda *_: [chunk], ends=ends) as load:
                sequence = await self._flush(step) if load.along is None else 0
                committed = await self._owned.try_commit(
                    lambda session: msgspec.structs.replace(
                        suspended_state(session, suspension, step.step_id), interrupt_context=context
                    ),
                    [*step.before, *suspension.messages],
                    aside_checkpoint(step.step_id, self._owned.session.step_count, sequence, step.request),
                    custom_state=self._owned.state,
                    change_run=run,
                    along=load.along,
                )
                load.sequence = committed.sequence
        if load.along is None:
            stream.emit(chunk)

    async def save_status(self, commit: StepCommit, context: Json, cut: Cut = NO_CUT) -> None:
        """Write the status of a session that stops between two steps, and cut the conversation if requested."""
        try:
            await self._save_status(commit, context, cut)
        except StreamFenced:
            raise
        except StreamError:
            await self._save_status(commit, context, cut)  # the stream accepts nothing more; stop the session anyway

    async def _save_status(self, commit: StepCommit, context: Json, cut: Cut) -> None:
        stops = commit.status != "active"
        run, ends = await self._end(commit) if stops else (None, None)
        last = [self._last_chunk(commit)] if stops else []
        with self._resuming_on_error():
            async with self._context.stream.carrying(*last, ends=ends) as load:
                await self._owned.save(
                    lambda session: msgspec.structs.replace(
                        session,
                        status=commit.status,
                        error=commit.error,
                        failure_reason=commit.failure_reason,
                        interrupt_context=context,
                        suspended_step_id=commit.open_step or session.suspended_step_id,
                    ),
                    keep_messages=cut.keep_messages,
                    messages=cut.messages,
                    change_run=run,
                    along=load.along,
                )

    async def _flush(self, step: OpenStep) -> int:
        """Store the chunks and usage of a step; return the last sequence."""
        if self._services.usage is None or not step.usage:
            return await self._context.stream.flush()
        usage = self._services.usage.record_entries(step.usage)
        sequence, _ = await asyncio.gather(self._context.stream.flush(), usage)
        return sequence

    def interrupt_context(self) -> dict[str, Json]:
        now = self._services.clock()
        return {"reason": self._stop.reason, "run_id": self._context.run_id, "interrupted_at": now}
