"""End steps and runs: the decided write, then its announcement, then the stream and the run record.

The order is always the same. Chunks are flushed before the write that refers to them; if the process dies after the
write, the next owner repeats the announcement.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import cast

import msgspec

from ...codec import Json
from ...errors import HelixError, RunLost, StoreError, StreamFenced
from ...failures import ABORTED, NOT_STORABLE, FailureReason
from ...ids import RESERVED_PREFIX, step_id
from ...lifecycle import SUSPENDED
from ...messages import Message, ToolCall, is_undo
from ...safe_text import get_logger
from ...state import StepWrites
from ...types import RunStatus, StagedChanges, SuspendedChildWait
from ..handle import AgentResult, result_at
from ..run.guardrails import refusal_of, refused_output
from ..run_context import RunContext
from ..session.queued_messages import NewlyQueued, in_order, taken_from
from .decisions import (
    NO_CUT,
    Cut,
    Outcome,
    StagedOutcome,
    StepCommit,
    close_step,
    last_finish_reason,
    suspend_step,
)
from .open_step import OpenStep, tool_end_chunk
from .staging import UNSTORABLE, is_transient, not_storable
from .undo import is_undoing, undo_id, undo_messages
from .write import StepWriter

logger = get_logger("helix_agents.executor")


class StepCommitter:
    """Commits the steps of one run and ends the run."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._services = context.services
        self._owned = context.owned
        self._stop = context.stop
        self._writer = StepWriter(context)

    # -- a step

    async def commit(self, step: OpenStep) -> AgentResult | None:
        """Commit a step whose calls all have an outcome; return None if the run continues."""
        if is_undo(step.answer):
            return await self._commit_undo(step)
        try:
            return await self._commit(step)
        except UNSTORABLE as error:
            if is_transient(error):
                raise
            return await self._commit_without(step, error)

    async def _commit_without(self, step: OpenStep, error: HelixError) -> AgentResult | None:
        """Commit a step after the store rejected it, with the call that caused the rejection marked as failed.

        Otherwise every process that resumes the session would be rejected for the same reason.
        """
        logger.warning("Session %s: step %d cannot be stored: %s", self._context.session_id, step.number, error)
        suspects = [call for call in step.calls if call["id"] in step.rows and step.outcomes[call["id"]].success]
        for call in suspects:
            row, outcome = step.rows[call["id"]], step.outcomes[call["id"]]
            await self._refuse(step, call, error)
            try:
                return await self._commit(step)
            except UNSTORABLE as again:
                if is_transient(again):
                    raise
            if len(suspects) > 1:
                await self._settle_again(step, call, row, outcome)
        if len(suspects) > 1:
            for call in suspects:
                await self._refuse(step, call, error)
            try:
                return await self._commit(step)
            except UNSTORABLE as again:
                if is_transient(again):
                    raise
        return await self.fail(str(error), NOT_STORABLE)

    async def _refuse(self, step: OpenStep, call: ToolCall, error: HelixError) -> None:
        before = step.outcomes[call["id"]]
        outcome = not_storable(error, before.effect_key)
        outcome = msgspec.structs.replace(outcome, arguments=before.arguments, undoable=before.undoable)
        staged = msgspec.structs.replace(msgspec.convert(step.rows[call["id"]].result, StagedOutcome), outcome=outcome)
        row = StagedChanges(call["id"], step.index_of(call["id"]), StepWrites(), msgspec.to_builtins(staged))
        await self._settle_again(step, call, row, outcome)

    async def _settle_again(self, step: OpenStep, call: ToolCall, row: StagedChanges, outcome: Outcome) -> None:
        """Replace an outcome in the store and for readers, who use the last one."""
        if row.tool_call_id in step.unstaged:
            step.unstaged[row.tool_call_id] = row
        else:
            await self._owned.stage(step.step_id, [row])
        step.rows[row.tool_call_id] = row
        step.outcomes[row.tool_call_id] = outcome
        patches = step.sequencer.accept(row.index, row.writes)
        if patches:
            self._context.stream.emit({"type": "state_patch", "patches": patches})
        if row.tool_call_id in step.to_emit:
            step.to_emit[row.tool_call_id] = tool_end_chunk(call, outcome)  # replaces a chunk that no reader has seen
        else:
            self._context.stream.emit(tool_end_chunk(call, outcome))

    async def _commit(self, step: OpenStep) -> AgentResult | None:
        while True:
            try:
                return await self._commit_with_queue(step)
            except NewlyQueued:
                continue  # the session was reloaded with the new messages

    async def _commit_with_queue(self, step: OpenStep) -> AgentResult | None:
        """Commit with the queued messages. Raises `NewlyQueued` and writes nothing if more have arrived."""
        context = self._context
        used = self._owned.session.step_count + 1 - context.first_step
        new_messages = in_order(self._owned.session, context.claim.session, context.follow_up)
        commit = close_step(
            step.answer,
            step.outcomes,
            answer_is_stored=step.answer_is_stored,
            pending=self._owned.session.pending_client_tool_calls,
            wants_output=context.agent.output is not None,
            steps_left=context.agent.max_steps - used,
            follow_up=new_messages,
        )
        commit = msgspec.structs.replace(commit, taken=taken_from(self._owned.session))
        if commit.status == "completed" and context.agent.output_guards:
            refusal = await refusal_of(context.agent.output_guards, context.agent.typed_output(commit.output))
            if refusal is not None:
                commit = refused_output(commit, refusal, steps_left=context.agent.max_steps - used)
        if commit.status == "active" and self._stop.requested:
            return await self._stop_with(commit, step)
        if commit.status == "failed":
            return await self._end_failed(commit, step, whole_queue=True)
        await self._writer.write(commit, step, whole_queue=True)
        context.follow_up, context.new_messages = [], self._owned.messages[-len(new_messages) :] if new_messages else []
        return None if commit.status == "active" else await self._finish(commit)

    async def suspend(self, step: OpenStep, waits: Mapping[str, SuspendedChildWait]) -> AgentResult:
        """Suspend a step. Raises `VersionConflict` if the session has changed, perhaps by the response itself."""
        missing = {call["id"] for call in step.missing}
        pending = {k: v for k, v in self._owned.session.pending_client_tool_calls.items() if k in missing}
        suspension = suspend_step(
            step.answer,
            answer_is_stored=step.answer_is_stored,
            pending=pending,
            children=waits,
            interrupted=self._stop.requested,
        )
        await self._writer.write_suspension(suspension, step)
        return await self._pause(cast(RunStatus, suspension.status))

    async def stop_between_steps(self, partial_reply: Message | None) -> AgentResult:
        """Stop while no step is open; store a partial reply as its own step."""
        if partial_reply is None:
            return await self._stop_with(StepCommit([], "interrupted"), None)
        number = self._owned.session.step_count + 1
        own_id = step_id(self._context.run_id, number)
        messages = self._owned.identified([partial_reply], own_id)
        step = OpenStep(own_id, number, messages[0], self._owned.state)
        return await self._stop_with(StepCommit(messages, "interrupted"), step)

    async def abort(self, step: OpenStep, outcomes: Mapping[str, Outcome]) -> AgentResult:
        """End the session with an open step; `outcomes` are those of calls that were cut off."""
        return await self._stop_with(self._closed_early(step, outcomes), step)

    async def refuse_calls(self, step: OpenStep, error: str, reason: FailureReason) -> AgentResult:
        """End the session as failed with a reply whose calls must not run."""
        outcomes = {call["id"]: Outcome(success=False, error=f"Not executed: {error}") for call in step.missing}
        messages = self._closed_early(step, outcomes).messages
        return await self._end_failed(StepCommit(messages, "failed", error=error, failure_reason=reason), step)

    def _closed_early(self, step: OpenStep, outcomes: Mapping[str, Outcome]) -> StepCommit:
        """Return the commit of a step whose other calls have these outcomes, for a run that ends with it."""
        return close_step(
            step.answer,
            {**step.outcomes, **outcomes},
            answer_is_stored=step.answer_is_stored,
            pending=self._owned.session.pending_client_tool_calls,
            wants_output=False,
            steps_left=1,
        )

    async def fail(self, error: str, reason: FailureReason, cut: Cut = NO_CUT) -> AgentResult:
        """End the session as failed. An open step stays staged and is not used again."""
        return await self._end_failed(StepCommit([], "failed", error=error, failure_reason=reason), None, cut=cut)

    async def _end_failed(
        self,
        commit: StepCommit,
        step: OpenStep | None,
        context: Json = None,
        *,
        cut: Cut = NO_CUT,
        whole_queue: bool = False,
    ) -> AgentResult:
        """End the turn as failed; if it had effects that can be undone, open the step that undoes them instead."""
        session, before = self._owned.session, self._owned.messages[: cut.keep_messages]
        turn = [*before[self._context.run.first_message :], *commit.messages]
        failure, own_id = (commit.error, commit.failure_reason), undo_id(self._context.run_id, session.step_count)
        deleted = (commit.error or "").startswith(RESERVED_PREFIX)  # a session that is being deleted undoes nothing
        plan = [] if deleted or is_undoing(session) else undo_messages(turn, cut.messages, own_id, *failure)
        if plan:
            commit = StepCommit([*commit.messages, *plan], "active", taken=commit.taken, open_step=own_id)
            cut = Cut(len(before), self._owned.identified(plan, own_id))
        if step is not None:
            await self._writer.write(commit, step, context, whole_queue=whole_queue)
        else:
            await self._writer.save_status(commit, context, cut)
        return AgentResult("active") if plan else await self._finish(commit)

    async def _commit_undo(self, step: OpenStep) -> AgentResult | None:
        """Commit the step that undid effects, and end the turn, unless the user has sent a message since."""
        closed = close_step(
            step.answer,
            step.outcomes,
            answer_is_stored=True,
            pending=self._owned.session.pending_client_tool_calls,
            wants_output=False,
            steps_left=1,
        )
        for call in step.calls:
            if not (outcome := step.outcomes[call["id"]]).success:
                what = f"Effect {call['arguments']['effect_key']!r} was not undone: {outcome.error}"
                self._context.warnings.append(what)
                logger.warning("Session %s: %s", self._context.session_id, what)
        follow_up = self._context.follow_up
        commit = StepCommit([*closed.messages, *follow_up], "active" if follow_up else "failed", **step.answer["undo"])
        await self._writer.write(commit, step, self._owned.session.interrupt_context)
        self._context.follow_up, self._context.new_messages = (
            [],
            self._owned.messages[-len(follow_up) :] if follow_up else [],
        )
        self._stop.release()
        return None if follow_up else await self._finish(commit)

    async def revert_patches(self, step: OpenStep) -> None:
        """Revert what readers saw of an abandoned step to the committed state."""
        patches = step.sequencer.take_back()
        if patches:
            self._context.stream.emit({"type": "state_patch", "patches": patches})
        if not await self._best_effort(self._context.stream.flush):  # unknown which chunks were stored
            await self._best_effort(self._context.stream.settle)
            await self._best_effort(partial(self._context.stream.rewind, self._owned.session.step_count))

    # -- the run

    async def _stop_with(self, commit: StepCommit, step: OpenStep | None) -> AgentResult:
        """Stop the run on request."""
        if self._stop.aborted:
            error = self._stop.reason or "The run was aborted."
            commit = StepCommit(commit.messages, "failed", error=error, failure_reason=ABORTED, taken=commit.taken)
        else:
            commit = StepCommit(commit.messages, "interrupted", taken=commit.taken)
        context = self._writer.interrupt_context()
        if commit.status == "failed":
            return await self._end_failed(commit, step, context)
        if step is not None:
            await self._writer.write(commit, step, context)
        else:
            await self._writer.save_status(commit, context)
        return await self._pause("interrupted")

    async def _finish(self, commit: StepCommit) -> AgentResult:
        """Close the stream and the run of a session that has ended."""
        stream = self._context.stream
        if commit.status == "completed":
            close = partial(stream.end, commit.output)
        else:
            close = partial(stream.fail, commit.error or "failed")
        if not self._writer.ended:
            await self._best_effort(stream.flush)
            await self._best_effort(close)
        if self._context.claim.resumed or commit.status == "failed":
            await self._clean_up(self._owned.discard_staging)
        await self._end_record("completed" if commit.status == "completed" else "failed", commit.error, commit.output)
        return AgentResult(
            commit.status,
            commit.output,
            commit.error,
            warnings=list(self._context.warnings),
            finish_reason=last_finish_reason(self._owned.messages),
            failure_reason=commit.failure_reason,
        )

    async def _pause(self, status: RunStatus) -> AgentResult:
        """Pause the stream and close the run of a session that may be resumed."""
        if not self._writer.ended:
            await self._best_effort(self._context.stream.flush)
            await self._best_effort(self._context.stream.pause)
        await self._end_record(status)
        session = self._owned.session
        waits = await self._owned.waiting(self._services.clock()) if session.status in SUSPENDED else []
        result = result_at(session, waits)
        return msgspec.structs.replace(
            result,
            warnings=list(self._context.warnings),
            finish_reason=last_finish_reason(self._owned.messages),
        )

    async def _best_effort(self, announce: Callable[[], Awaitable[object]]) -> bool:
        """Announce an end, best effort: a missing or broken stream does not change it."""
        try:
            await announce()
            return True
        except (RunLost, StreamFenced, StoreError):
            raise
        except Exception as error:
            session_id = self._context.session_id
            logger.warning("Could not announce the end of a run on the stream of session %s: %s", session_id, error)
            return False

    async def _clean_up(self, work: Callable[[], Awaitable[None]]) -> None:
        """Clean up after the end. Once that is stored, other processes may delete or continue the session."""
        try:
            await work()
        except RunLost:
            if not self._writer.ended:
                raise

    async def _end_record(self, status: RunStatus, error: str | None = None, output: Json = None) -> None:
        if self._stop.requested:
            await self._clean_up(self._owned.clear_interrupt_flag)
        await self._context.watch.close()
        if self._writer.ended:
            return
        await self._owned.end_run(
            status,
            step_count=self._owned.session.step_count - self._context.first_step,
            error=error,
            output=output,
            completed_at=self._services.clock(),
        )
