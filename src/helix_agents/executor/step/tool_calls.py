"""The tool calls of one open step: each has its own tracker, is staged when it finishes, and is shown in order.

A call always ends with an `Outcome`; only a lost session or a store error is raised. This module runs functions, not
sub-agents or questions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from ...agent import FINISH_TOOL
from ...codec import Json
from ...errors import InvalidArgument, RunLost, StoreError
from ...messages import ToolCall
from ...safe_text import get_logger, without_credentials
from ...state import Op, StateTracker, StepWrites
from ...stores.usage.contract import CustomEntry, ToolEntry, UsageEntry
from ...tools import AnswerNotJson, ModelRetry, Tool, ToolContext
from ...tools.calling import CallSuspended, ToolEscape
from ...tools.deferred import DeferredCall
from ...tools.effects import Check, OutcomeUnknown
from ...types import StagedChanges
from ...values import InvalidInput
from ..run.stop_signal import StopSignal
from ..run_context import RunContext
from ..stream.fenced import FencedStream
from ..tasks import finish_despite_cancel
from .decisions import MAX_ARGUMENTS_DEPTH, Outcome, StagedOutcome
from .deferring import Deferring
from .effects import EffectGuard
from .open_step import OpenStep, tool_end_chunk, tool_start_chunk
from .staging import UNSTORABLE, Stager, is_transient, may_run_again, not_storable

logger = get_logger("helix_agents.executor")

NO_WRITES = StepWrites()


class ToolRunner:
    """Runs the functions of one open step's tool calls."""

    def __init__(self, context: RunContext, step: OpenStep) -> None:
        self._context = context
        self._services = context.services
        self._agent = context.agent
        self._owned = context.owned
        self._stream = context.stream
        self.stager = Stager(context)
        self.effects = EffectGuard(context, step, self.stager)

    async def run(self, step: OpenStep, call: ToolCall, *, changed: bool = False) -> None:
        """Run one call and settle it. `changed`: a person changed its arguments.

        A call whose outcome is unknown gets none.
        """
        self._stream.emit(tool_start_chunk(call))
        await self._context.hooks.call("tool_started", step.number, call)
        started_at = self._services.clock()
        tool = self._context.find_tool(call["name"])
        attempts = 1 + (tool.retries if tool is not None else 0)
        for attempt in range(1, attempts + 1):
            tracker = StateTracker(self._owned.state)
            once = None if tool is None else partial(self.effects.part, tool, call)
            later = Deferring(self._context, step, tool, call)
            outlet = _Outlet(step, call, self._stream, self._context.stop, self._entry_fields(step), once, later)
            try:
                outcome, may_help = await self._outcome(call, tracker, outlet)
            except BaseException:
                outlet.withdraw()
                raise
            if outcome.success or not may_help or attempt == attempts or self._context.stop.requested:
                break
            if later.suspended is not None:
                break
            outlet.withdraw()
            logger.warning("Tool %s of session %s failed; retrying.", call["name"], self._context.session_id)
        if later.suspended is not None and later.suspended.later == "deferred":
            writes = tracker.get_step_writes() if outcome.success else NO_WRITES
            await later.keep(outcome, writes)
            outlet.finish(writes) if outcome.success else outlet.withdraw()
            return
        if outcome.unknown or later.suspended is not None:
            outlet.withdraw()
            return
        if outcome.success and not outcome.final and tool is not None:
            outcome = await self._store_large_result(tool, outcome)
        usage = self._usage_of(step, call, outcome, started_at, outlet)
        writes = tracker.get_step_writes() if outcome.success else NO_WRITES
        if outcome.success:
            outlet.finish(writes)
        else:
            outlet.withdraw()
        if changed:
            outcome = msgspec.structs.replace(outcome, arguments=call["arguments"])
        await self.settle(step, call, outcome, writes=writes, usage=usage)

    async def _store_large_result(self, tool: Tool, outcome: Outcome) -> Outcome:
        """Store a large result as an artifact; a result that cannot be stored makes the call fail."""
        try:
            result = await self._context.artifacts.store_large(outcome.result, tool.max_result_chars)
        except InvalidArgument as error:
            return not_storable(error, outcome.effect_key)
        return msgspec.structs.replace(outcome, result=result)

    async def settle(
        self,
        step: OpenStep,
        call: ToolCall,
        outcome: Outcome,
        *,
        writes: StepWrites = NO_WRITES,
        usage: Sequence[UsageEntry] = (),
        executed: bool = True,
    ) -> None:
        """Make an outcome durable together with its writes, then emit it.

        An abort does not interrupt this: a staged outcome that the step does not know would be committed as "not
        executed", together with its writes.
        """
        entries = [msgspec.to_builtins(entry) for entry in usage]
        outcome = self.effects.undoable(call, outcome)

        async def record() -> None:
            step.outcomes[call["id"]] = await self._stage(step, call, outcome, writes, entries, executed)
            step.usage += entries

        await finish_despite_cancel(record())
        if executed:
            await self._context.hooks.call("tool_ended", step.number, call, step.outcomes[call["id"]])

    async def _stage(
        self,
        step: OpenStep,
        call: ToolCall,
        outcome: Outcome,
        writes: StepWrites,
        usage: list[dict[str, Any]],
        executed: bool,
    ) -> Outcome:
        """Stage an outcome unless it may wait for the commit; if it cannot be stored, stage an error instead."""
        index = step.index_of(call["id"])
        row = StagedChanges(call["id"], index, writes, msgspec.to_builtins(StagedOutcome(outcome, usage, executed)))
        await self._context.watch.ensure_owner()
        if self._may_wait(call):
            step.unstaged[call["id"]] = row
            self._stream.emit(tool_end_chunk(call, outcome))
        else:
            try:
                await self.stager.stage(step, row, tool_end_chunk(call, outcome))
            except UNSTORABLE as error:
                if is_transient(error) or not outcome.success:
                    raise
                patches = step.sequencer.withdraw(index)
                if patches:
                    self._stream.emit({"type": "state_patch", "patches": patches})
                failed = not_storable(error, outcome.effect_key)
                failed = msgspec.structs.replace(failed, arguments=outcome.arguments, undoable=outcome.undoable)
                return await self._stage(step, call, failed, NO_WRITES, usage, executed)
        step.rows[call["id"]] = row
        return outcome

    def _may_wait(self, call: ToolCall) -> bool:
        """Return whether the outcome of a call need not be durable before its step commits."""
        tool = self._context.find_tool(call["name"])
        if tool is None:
            return call["name"] == FINISH_TOOL  # its outcome is computed from its arguments
        return may_run_again(tool, self._services.durability)

    def _usage_of(
        self, step: OpenStep, call: ToolCall, outcome: Outcome, started_at: int, outlet: _Outlet
    ) -> list[UsageEntry]:
        if self._services.usage is None:
            return []
        entry = ToolEntry(
            id=f"tool-{self._services.ids()}",
            tool_name=call["name"],
            duration_ms=max(0, self._services.clock() - started_at),
            success=outcome.success,
            **self._entry_fields(step),
        )
        return [entry, *outlet.usage]

    def _entry_fields(self, step: OpenStep) -> dict[str, Any]:
        session = self._owned.session
        return {
            "session_id": session.session_id,
            "incarnation": session.incarnation,
            "run_id": self._owned.run_id,
            "step_count": step.number,
            "source": self._agent.name,
            "timestamp": self._services.clock(),
            "parent_session_id": session.parent_session_id,
        }

    async def _outcome(self, call: ToolCall, tracker: StateTracker, outlet: _Outlet) -> tuple[Outcome, bool]:
        """Return the outcome of the call, and whether a retry may help. Never raises errors of a tool or model."""
        try:
            if call["name"] == FINISH_TOOL and self._agent.output is not None:
                ensure_arguments(call)
                return Outcome(success=True, result=self._agent.parse_output(call["arguments"]), final=True), False
            tool = offered_tool(self._context, call)
            arguments = tool.input.parse(call["arguments"])
            effect_key = self.effects.key_of(tool, call)
        except InvalidInput as error:
            return Outcome(success=False, error=f"Invalid arguments: {error}"), False
        except InvalidArgument as error:
            return Outcome(success=False, error=str(error)), False
        context = ToolContext(
            tracker,
            outlet,
            session_id=self._owned.session_id,
            run_id=self._owned.run_id,
            tool_call_id=call["id"],
            user_id=self._owned.session.user_id,
            metadata=self._owned.session.metadata,
            deps=self._context.deps,
            memory_store=self._services.memory,
            effect_key=effect_key,
        )
        base = tracker.state
        await self.effects.store_intent(tool, call)
        try:
            outcome, may_help = await self._call(tool, arguments, context)
        finally:
            context.close()
        if outlet.waits_for_answer:
            return outcome, False  # the response decides, whatever the function did
        outcome, may_help = await self.effects.judge(tool, call, outcome, may_help=may_help, returned=context.returned)
        if outcome.success and tracker.state is not base:
            try:
                self._agent.ensure_state(tracker.state, base)
            except InvalidArgument as error:
                return not_storable(error, outcome.effect_key), outcome.effect_key is None
        return outcome, may_help

    async def _call(self, tool: Tool, arguments: dict[str, Any], context: ToolContext) -> tuple[Outcome, bool]:
        limit = tool.timeout_seconds
        try:
            async with asyncio.timeout(limit) as timer:
                return Outcome(success=True, result=await tool.run(arguments, context)), False
        except (RunLost, StoreError):
            raise
        except ModelRetry as error:
            return Outcome(success=False, error=str(error)), False
        except CallSuspended:
            return Outcome(success=False, unknown=True), False
        except OutcomeUnknown as error:
            return Outcome(success=False, error=str(error), unknown=tool.happens_once), not tool.happens_once
        except Exception as error:
            expired = isinstance(error, TimeoutError) and timer.expired()
            if expired:
                sentence = f"The tool did not finish within {limit:g} seconds."
            elif isinstance(error, AnswerNotJson):
                sentence = f"The tool's result is not JSON: {error}"
            else:
                sentence = str(error) if isinstance(error, ToolEscape) else f"{type(error).__name__}: {error}"
            where = (tool.name, context.tool_call_id, context.session_id)
            logger.warning("Tool %s failed (call %s, session %s).", *where, exc_info=None if expired else error)
            unknown = expired and tool.happens_once
            return Outcome(success=False, error=without_credentials(sentence), unknown=unknown), not unknown


class _Outlet:
    """Receives what one call's function does through its context."""

    def __init__(
        self,
        step: OpenStep,
        call: ToolCall,
        stream: FencedStream,
        stop: StopSignal,
        entry_fields: Mapping[str, Any],
        once: Callable[[str, Callable[[], Any], Check | None], Awaitable[Json]] | None,
        later: Deferring,
    ) -> None:
        self._once = once
        self._later = later
        self.usage: list[UsageEntry] = []
        self._step = step
        self._call = call
        self._index = step.index_of(call["id"])
        self._stream = stream
        self._stop = stop
        self._entry_fields = entry_fields
        self._withdrawn = False

    @property
    def interrupted(self) -> bool:
        return self._stop.requested

    @property
    def waits_for_answer(self) -> bool:
        """Whether the function has deferred its call or asks a person."""
        return self._later.suspended is not None and self._later.suspended.later in ("deferred", "asked")

    def state_changed(
        self, ops: Sequence[Op], state: Any, writes: Callable[[Collection[str] | None], StepWrites]
    ) -> None:
        if not self._withdrawn:
            self._show(self._step.sequencer.grow(self._index, ops, state, writes))

    def finish(self, writes: StepWrites) -> None:
        """Show the final writes of a successful call."""
        if writes.ops:
            self._show(self._step.sequencer.finish(self._index, writes))

    def withdraw(self) -> None:
        """Revert what a failed call has shown."""
        self._withdrawn = True
        self._show(self._step.sequencer.withdraw(self._index))

    def emit(self, name: str, data: Json) -> None:
        self._stream.emit({"type": "custom", "name": name, "data": data, "tool_call_id": self._call["id"]})

    async def once(self, name: str, function: Callable[[], Any], check: Check | None) -> Json:
        if self._once is None:
            raise InvalidArgument("This call has no tool, so it cannot have effects.")
        return await self._once(name, function, check)

    async def defer(self, deadline_seconds: float | None) -> DeferredCall:
        return await self._later.defer(deadline_seconds)

    async def wait_until(self, when: object) -> None:
        await self._later.wait_until(when)

    async def ask(self, question: Json, deadline_seconds: float | None) -> Json:
        return await self._later.ask(question, deadline_seconds)

    def record_usage(self, name: str, value: float) -> None:
        entry_id = f"custom-{self._step.number}-{self._call['id']}-{len(self.usage)}-{self._entry_fields['run_id']}"
        self.usage.append(CustomEntry(id=entry_id, name=name, value=value, **self._entry_fields))

    def _show(self, patches: list[dict[str, Any]]) -> None:
        if patches:
            self._stream.emit({"type": "state_patch", "patches": patches})


def offered_tool(context: RunContext, call: ToolCall) -> Tool:
    """Return the tool that a call names. Raises `InvalidArgument` with a message for the model."""
    tool = context.find_tool(call["name"])
    if tool is None or not tool.is_offered(context.owned.state):
        known = ", ".join(spec.name for spec in context.tool_specs()) or "none"
        raise InvalidArgument(f"There is no tool {call['name']!r}; the tools are: {known}.")
    ensure_arguments(call)
    return tool


def ensure_arguments(call: ToolCall) -> None:
    """Raise `InvalidInput` for a call whose arguments are not a JSON object that can be stored."""
    if "invalid_arguments" in call:
        what = f"one JSON object, nested at most {MAX_ARGUMENTS_DEPTH} levels deep, without NaN and Infinity"
        raise InvalidInput(f"the arguments must be {what}")
