"""Work on an open step: ask its questions, read the responses and run its calls, until nothing more can be done."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import msgspec

from ...agent import AgentTool
from ...errors import InvalidArgument
from ...failures import ABORTED, PARENT_SUSPENDED, FailureReason
from ...messages import ToolCall
from ...stores.usage.contract import UsageEntry
from ...types import PendingClientToolCall, QuestionKind, SuspendedChildWait
from ..run.stop_signal import StopSignal
from ..run_context import RunContext
from ..session.questions import (
    answer_to,
    message_instead,
    new_approval_id,
    pending_call,
    question_of,
    request_chunk,
)
from ..tasks import gather_or_cancel
from .decisions import Outcome
from .deferring import store_pending
from .ledger import EffectRecord, step_records
from .open_step import OpenStep
from .tool_calls import ToolRunner, offered_tool

NOT_EXECUTED = "The run was aborted before this call was executed."

ChildOutcome = Outcome | SuspendedChildWait | None
"""How a sub-agent's run stopped; None if it was asked to stop and will continue with its parent."""


class Children(Protocol):
    """Runs sub-agents. Passed in, because a child is itself a run."""

    def session_id(self, parent_session_id: str, tool: AgentTool, call: ToolCall) -> str:
        """Return the session that a call runs in."""
        ...

    async def call(
        self, parent: RunContext, step: OpenStep, call: ToolCall, tool: AgentTool, stop: StopSignal
    ) -> tuple[ChildOutcome, Sequence[UsageEntry]]:
        """Run the child of one call until it stops or is asked to stop."""
        ...

    async def end(self, parent: RunContext, call: ToolCall, tool: AgentTool, error: str, reason: FailureReason) -> None:
        """End the child of a call that no run will continue."""
        ...

    async def replay_chunks(self, parent: RunContext, call: ToolCall, tool: AgentTool) -> None:
        """Emit again on the parent's stream what the finished child of a call emitted there before."""
        ...


class Aborted(msgspec.Struct, frozen=True):
    """The outcomes of calls that an abort cut off."""

    outcomes: dict[str, Outcome]


class Worked(msgspec.Struct, frozen=True):
    """The result when nothing more can be done; `waits` are the sub-agents that wait for a response."""

    waits: dict[str, SuspendedChildWait]


class StepWork:
    """Works on one open step of one run."""

    def __init__(self, context: RunContext, step: OpenStep, children: Children) -> None:
        self._context = context
        self._step = step
        self._children = children
        self._tools = ToolRunner(context, step)
        self._effects = self._tools.effects
        self._child_locks: dict[str, asyncio.Lock] = {}
        self._waits: dict[str, SuspendedChildWait] = {}
        self._stop_children = context.stop.child()

    async def work(self) -> Worked | Aborted:
        """Give an outcome to every call that can have one now."""
        while True:
            self._waits = {}
            await self._look_up_unknown()
            asked = await self._ask_outside()
            await self._settle_answered(asked)
            runnable = [call for call in self._step.missing if not self._must_wait(call, asked)]
            held = self._effects.held_back(runnable)
            runnable = [call for call in runnable if call["id"] not in held]
            if not await self._run_all(runnable, questions=bool(self._unanswered(asked))):
                return Aborted(self.not_executed())
            if any(call["id"] not in asked and self._has_stopped(call) for call in self._step.missing):
                continue
            if runnable and held:
                continue
            if not self._step.missing or not asked:
                return Worked(self._waits)
            await self._context.owned.refresh()  # a response may have arrived while the other calls ran
            if len(self._unanswered(asked)) == sum(call["id"] in asked for call in self._step.missing):
                return Worked(self._waits)

    def _has_stopped(self, call: ToolCall) -> bool:
        """Return whether a call that has run now waits for a person, a job or a time."""
        pending = self._context.owned.session.pending_client_tool_calls.get(call["id"])
        return self._effects.is_unknown(call) or (pending is not None and pending.later is not None)

    async def _look_up_unknown(self) -> None:
        """Settle calls whose effect has happened, according to their checks or the conversation."""
        for call in self._step.missing:
            outcome = await self._effects.look_up(call) or await self._effects.replay(call)
            if outcome is not None:
                await self._tools.settle(self._step, call, outcome, executed=False)

    async def _ask_outside(self) -> dict[str, QuestionKind]:
        """Ask the step's questions that were not asked yet; return all its questions by call id."""
        context = self._context
        asked: dict[str, QuestionKind] = {}
        new: dict[str, PendingClientToolCall] = {}
        for call in self._step.missing:
            tool = context.find_tool(call["name"])
            if tool is None or "invalid_arguments" in call:
                continue
            pending = context.owned.session.pending_client_tool_calls.get(call["id"])
            if pending is not None and pending.later is not None and not self._effects.is_unknown(call):
                asked[call["id"]] = pending.kind
                continue
            effect = self._effects.question(tool, self._effects.as_run(call)[0])
            if effect is not None or (pending is not None and pending.kind == "outcome"):
                question: QuestionKind | None = "outcome"
            else:
                question = await question_of(tool, call)
            if question is None:
                continue
            asked[call["id"]] = question
            if pending is None or effect is not None:
                call, _ = self._effects.as_run(call)
                new[call["id"]] = pending_call(
                    tool,
                    call,
                    question,
                    run_id=context.run_id,
                    now=context.services.clock(),
                    approval_id=new_approval_id(context.services.ids, call["id"]),
                    effect=effect,
                    before=pending,
                )
        if new:
            await self._store_questions(new)
        return asked

    async def _store_questions(self, new: dict[str, PendingClientToolCall]) -> None:
        """Store questions, then announce them, so that every announced question can be answered."""
        await store_pending(self._context, new)
        for pending in new.values():
            self._context.stream.emit(request_chunk(pending))

    def _answer(self, call_id: str) -> Any:
        pending = self._context.owned.session.pending_client_tool_calls.get(call_id)
        return None if pending is None else answer_to(pending, self._context.services.clock())

    def _must_wait(self, call: ToolCall, asked: Mapping[str, QuestionKind]) -> bool:
        """Return whether a call must not run because its question has no approval yet."""
        return call["id"] in asked and self._answer(call["id"]) != "approved"

    async def _settle_answered(self, asked: Mapping[str, QuestionKind]) -> None:
        for call in self._step.missing:
            if call["id"] not in asked:
                continue
            answer = self._answer(call["id"])
            if answer is None and self._context.follow_up:
                answer = message_instead(self._context.owned.session.pending_client_tool_calls.get(call["id"]))
            if isinstance(answer, Outcome):
                as_run, changed = self._effects.as_run(call)
                if changed:
                    answer = msgspec.structs.replace(answer, arguments=as_run["arguments"])
                await self._tools.settle(self._step, call, answer, executed=False)

    def _unanswered(self, asked: Mapping[str, QuestionKind]) -> list[str]:
        return [call["id"] for call in self._step.missing if call["id"] in asked and self._answer(call["id"]) is None]

    async def _run_all(self, calls: list[ToolCall], *, questions: bool) -> bool:
        """Run calls concurrently; return False if an abort cut them off. If questions are open, sub-agents may be
        stopped and continued later."""
        grace = self._context.services.suspend_grace_seconds
        timer = None
        if calls and questions and grace is not None:
            timer = asyncio.get_running_loop().call_later(grace, self._stop_children.request, PARENT_SUSPENDED)
        children = [call for call in calls if isinstance(self._context.find_tool(call["name"]), AgentTool)]
        functions = [call for call in calls if call not in children]
        try:
            await gather_or_cancel(
                partial(self._run_functions, functions), *(partial(self._run_one, call) for call in children)
            )
        finally:
            if timer is not None:
                timer.cancel()
            await self._tools.stager.settle()
        if not self._context.stop.aborted or not self._step.missing:
            return True
        await self.end_children(self._context.stop.reason or "The run was aborted.", ABORTED)
        await self._look_up_unknown()
        return False

    def effects_so_far(self) -> list[EffectRecord]:
        """Return the effects that an uncommitted step had or may have had."""
        return [*step_records(self._step), *self._effects.unknown_records()]

    def not_executed(self) -> dict[str, Outcome]:
        """Return the outcomes of calls that an abort cut off."""
        cut_off = Outcome(success=False, error=NOT_EXECUTED)
        return {call["id"]: self._effects.unknown_at_abort(call) or cut_off for call in self._step.missing}

    async def _run_functions(self, calls: list[ToolCall]) -> None:
        """Run functions, which an abort cuts off. Sub-agents are not cut off: they end themselves."""
        if not calls:
            return
        stop = self._context.stop
        queue = [call for call in calls if (tool := self._context.find_tool(call["name"])) and tool.sequential]
        work = [partial(self._run_one, call) for call in calls if call not in queue]
        if queue:
            work.append(partial(self._run_in_turn, queue))
        jobs = asyncio.ensure_future(gather_or_cancel(*work))
        unsubscribe = stop.listen(lambda: jobs.cancel() if stop.aborted else None)
        if stop.aborted:
            jobs.cancel()
        try:
            await asyncio.wait({jobs})
        except asyncio.CancelledError:
            jobs.cancel()
            await asyncio.gather(jobs, return_exceptions=True)
            raise
        finally:
            unsubscribe()
        if not jobs.cancelled():
            jobs.result()

    async def _run_in_turn(self, calls: list[ToolCall]) -> None:
        for call in calls:
            await self._run_one(call)

    async def end_children(self, error: str, reason: FailureReason) -> None:
        """End the sub-agents that wait, that an earlier run left unfinished, or that were cut off."""
        for call in self._step.missing:
            tool = self._context.find_tool(call["name"])
            if isinstance(tool, AgentTool) and "invalid_arguments" not in call:
                await self._children.end(self._context, call, tool, error, reason)

    async def _run_one(self, call: ToolCall) -> None:
        call, changed = self._effects.as_run(call)
        try:
            tool = offered_tool(self._context, call)
            tool.input.parse(call["arguments"])
        except InvalidArgument:
            await self._tools.run(self._step, call, changed=changed)  # it turns the error into an outcome
            return
        if isinstance(tool, AgentTool):
            await self._run_child(call, tool)
        else:
            await self._tools.run(self._step, call, changed=changed)

    async def _run_child(self, call: ToolCall, tool: AgentTool) -> None:
        child_id = self._children.session_id(self._context.session_id, tool, call)
        # Two calls of one persistent child are two turns: the second starts after the first is settled.
        async with self._child_locks.setdefault(child_id, asyncio.Lock()):
            if any(wait.child_session_id == child_id for wait in self._waits.values()):
                return
            await self._context.hooks.call("tool_started", self._step.number, call)
            outcome, usage = await self._children.call(self._context, self._step, call, tool, self._stop_children)
            if isinstance(outcome, Outcome):
                await self._tools.settle(self._step, call, outcome, usage=usage)
            elif outcome is not None:
                self._waits[call["id"]] = outcome
