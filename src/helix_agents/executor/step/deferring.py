"""Calls that end later: deferred to an external job, or suspended until a time or until a person responds.

All are pending calls of the session, written by the call's own run before its function continues. So a response may
arrive before the function returns, and a process that dies after the write leaves nothing to do but wait. The function
of a deferred call never runs again. The function of a suspended call runs again from its start; waits that are over and
questions that were answered then return immediately.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ...codec import Json
from ...errors import InvalidArgument
from ...messages import ToolCall
from ...state import StepWrites
from ...tools.calling import CallSuspended
from ...tools.deferred import DeferredCall
from ...tools.tool import Tool
from ...types import PendingClientToolCall, SessionState, StagedChanges, ToolQuestion
from ..later.timetable import moment_of
from ..run_context import RunContext
from ..session.questions import answered_questions, new_approval_id, request_chunk, without
from .decisions import Outcome
from .open_step import OpenStep


async def store_pending(context: RunContext, new: Mapping[str, PendingClientToolCall]) -> None:
    """Store pending calls in the session, and their owner in the root session. Raises `RunLost`."""
    is_root = context.owned.session.root_session_id in (None, context.session_id)
    owners = dict.fromkeys(new, context.session_id) if is_root else {}
    await context.owned.own_calls(list(new))
    await context.owned.save(
        lambda session: msgspec.structs.replace(
            session,
            pending_client_tool_calls={**session.pending_client_tool_calls, **new},
            completed_client_tool_calls=without(session.completed_client_tool_calls, new),
            client_tool_call_ownership={**session.client_tool_call_ownership, **owners},
        )
    )


class Deferring:
    """Suspends one attempt of one call."""

    def __init__(self, context: RunContext, step: OpenStep, tool: Tool | None, call: ToolCall) -> None:
        self._context = context
        self._step = step
        self._tool = tool
        self._call = call
        self._waits = 0
        self._asks = 0
        self.suspended: PendingClientToolCall | None = None
        """What the call waits for after its function has returned; None: nothing."""

    @property
    def _pending(self) -> PendingClientToolCall | None:
        return self._context.owned.session.pending_client_tool_calls.get(self._call["id"])

    async def defer(self, deadline_seconds: float | None) -> DeferredCall:
        """Defer the call to the holder of its token."""
        services, now = self._context.services, self._context.services.clock()
        if self.suspended is None:
            before = self._pending
            self.suspended = PendingClientToolCall(
                self._call["id"],
                self._call["name"],
                self._call["arguments"],
                run_id=self._context.run_id,
                deadline_at=None if deadline_seconds is None else now + int(deadline_seconds * 1000),
                asked_at=now,
                answered_by=before.answered_by if before is not None else None,
                later="deferred",
            )
            await self._context.watch.ensure_owner()
            await store_pending(self._context, {self._call["id"]: self.suspended})
        return services.hook_tokens.deferred_call(self._context.owned.session, self.suspended)

    async def wait_until(self, when: object) -> None:
        """Return if the time has come; otherwise store it and raise `CallSuspended`."""
        if self._tool is not None and self._tool.happens_once:
            raise InvalidArgument("wait_until() needs a tool that may run again, not one with effect='once'.")
        self._waits += 1
        moment, now, before = moment_of(when, "the time"), self._context.services.clock(), self._pending
        if before is not None and before.later == "timer" and self._waits <= before.waits:
            return  # this wait is over, which is why the function runs again
        if moment <= now:
            return
        blank = PendingClientToolCall(
            self._call["id"], self._call["name"], self._call["arguments"], run_id=self._context.run_id, asked_at=now
        )
        self.suspended = msgspec.structs.replace(
            before or blank, later="timer", deadline_at=moment, waits=self._waits, input=self._call["arguments"]
        )
        await self._context.watch.ensure_owner()
        await store_pending(self._context, {self._call["id"]: self.suspended})
        raise CallSuspended

    async def ask(self, question: Json, deadline_seconds: float | None) -> Json:
        """Return the answer if there is one; otherwise store and announce the question and raise `CallSuspended`.

        An answer belongs to its question: if the function now asks a different one, that one is stored.
        """
        number, before, now = self._asks, self._pending, self._context.services.clock()
        self._asks += 1
        answered = answered_questions(before)
        if number < len(answered) and answered[number][0] == question:
            return answered[number][1]
        self.suspended = PendingClientToolCall(
            self._call["id"],
            self._call["name"],
            self._call["arguments"],
            run_id=self._context.run_id,
            approval_id=new_approval_id(self._context.services.ids, self._call["id"]),
            deadline_at=None if deadline_seconds is None else now + int(deadline_seconds * 1000),
            asked_at=now,
            later="asked",
            asked=ToolQuestion(question, answered[:number]),
        )
        await self._context.watch.ensure_owner()
        await store_pending(self._context, {self._call["id"]: self.suspended})
        self._context.stream.emit(request_chunk(self.suspended))
        raise CallSuspended

    async def keep(self, outcome: Outcome, writes: StepWrites) -> None:
        """Store what the function of a deferred call produced: its writes, or its error as the response."""
        call_id, now = self._call["id"], self._context.services.clock()
        if outcome.success:
            if writes.ops:
                row = StagedChanges(call_id, self._step.index_of(call_id), writes, kind="deferred")
                await self._context.owned.stage(self._step.step_id, [row])
            return

        def answered(session: SessionState) -> SessionState:
            pending = session.pending_client_tool_calls[call_id]
            if pending.submitted_at is not None:
                return session
            failed = msgspec.structs.replace(pending, response={"error": outcome.error}, submitted_at=now)
            stamps = {**session.completed_client_tool_calls, call_id: now}
            calls = {**session.pending_client_tool_calls, call_id: failed}
            return msgspec.structs.replace(session, pending_client_tool_calls=calls, completed_client_tool_calls=stamps)

        await self._context.owned.save(answered)
