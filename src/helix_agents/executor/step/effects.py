"""EffectGuard: calls that must happen once. Their intent is durable before they run; unknown outcomes are checked.

A call of an `effect="once"` tool, or a part of a call in `ctx.once`, is *begun* once a staged row records its intent.
It is *unknown* while it is begun without an outcome and no later response allows it to run. The write of the model's
reply carries the intents of calls that start immediately; any other intent is one staged write, shared with its
siblings. After the write the process checks that it still owns the session: it may have been frozen in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import msgspec

from ...codec import Json
from ...errors import InvalidArgument, RunLost, StoreError
from ...messages import ToolCall, is_undo
from ...safe_text import get_logger
from ...state import StepWrites
from ...tools.calling import CallSuspended
from ...tools.effects import Check, Done, NotDone, Verdict, called
from ...tools.tool import TAKEN_BACK, Tool
from ...types import EffectQuestion, StagedChanges
from ...values import to_json
from ..run_context import RunContext
from ..session.questions import changed_arguments, unknown_outcome
from .decisions import Outcome
from .ledger import EffectRecord, find_record, recorded_effects, step_records, unknown_record
from .open_step import OpenStep, part_id, with_arguments
from .staging import Stager

logger = get_logger("helix_agents.executor")

CHECK_SECONDS = 30.0
"""The default time limit of a check, if its tool has no `timeout_seconds`. After that a person is asked."""


class EffectGuard:
    """Guards the effects of one open step's calls."""

    def __init__(self, context: RunContext, step: OpenStep, stager: Stager) -> None:
        self._context = context
        self._step = step
        self._stager = stager

    # -- known effects

    def key_of(self, tool: Tool, call: ToolCall) -> str:
        """Return the key of a call's effect, the same for every run of the call. Raises `InvalidArgument`."""
        return tool.effects.key_of(tool.name, call["arguments"]) or self._own_key(call)

    @cached_property
    def _records(self) -> list[EffectRecord]:
        return recorded_effects(self._context.owned.messages)

    def repeated(self, call: ToolCall) -> EffectRecord | None:
        """Return the effect that a new call would repeat; None if it may run."""
        tool, pending = self._tool(call), self._context.owned.session.pending_client_tool_calls.get(call["id"])
        if tool is None or call["id"] in self._step.begun or (pending is not None and pending.kind == "outcome"):
            return None
        try:
            key = tool.effects.key_of(tool.name, call["arguments"])
        except InvalidArgument:
            return None
        record = find_record([*self._records, *step_records(self._step)], tool.name, call["arguments"], key)
        if record is None or (record.abandoned and tool.effects.after_restore == "run"):
            return None
        return record

    def _tool(self, call: ToolCall) -> Tool | None:
        tool = self._context.find_tool(call["name"])
        return tool if tool is not None and tool.happens_once and "invalid_arguments" not in call else None

    def held_back(self, calls: Sequence[ToolCall]) -> set[str]:
        """Return the calls that must wait for an earlier call of the step with the same key.

        Calls that undo effects run one by one: each waits for all before it.
        """
        if is_undo(self._step.answer):
            return {call["id"] for call in calls if call != self._step.missing[0]}
        missing: dict[str, str] = {}
        for call in self._step.missing:
            tool = self._tool(call)
            if tool is not None and tool.effects.key is not None:
                missing.setdefault(self._known_key(tool, call), call["id"])
        first = set(missing.values())
        return {
            call["id"] for call in calls if (tool := self._tool(call)) and tool.effects.key and call["id"] not in first
        }

    def is_unknown(self, call: ToolCall) -> bool:
        """Return whether the call may have taken effect, and no response allows it to run again.

        A deferred call waits for its job, and a suspended one for its time.
        """
        pending = self._context.owned.session.pending_client_tool_calls.get(call["id"])
        waits = pending is not None and pending.later in ("deferred", "timer")
        if waits and call["id"] not in self._step.asks_about:
            return False
        return call["id"] in self._step.asks_about or self._is_unknown(call["id"], call["id"])

    def question(self, tool: Tool, call: ToolCall) -> EffectQuestion | None:
        """Return the question about a call whose outcome is unknown or that would repeat an effect; None if there is
        none."""
        if not self.is_unknown(call):
            record = self.repeated(call)
            return None if record is None else EffectQuestion(record.effect_key, recorded=record.content)
        part, key = self._step.asks_about.pop(call["id"], None), self._known_key(tool, call)
        return EffectQuestion(key) if part is None else EffectQuestion(f"{key}:{part}", part)

    def _is_unknown(self, row_id: str, call_id: str) -> bool:
        """Return whether a call or part may have taken effect and is not allowed to run again."""
        return row_id in self._step.unknown and self._permission(row_id, call_id) in (None, self._step.begun[row_id])

    def _permission(self, row_id: str, call_id: str) -> str | None:
        """Return the latest question whose response lets a call or part run; None if there is none.

        A response about one part of a call does not apply to the others.
        """
        pending = self._context.owned.session.pending_client_tool_calls.get(call_id)
        if pending is None or (pending.effect is not None and _row_id(call_id, pending.effect.part) != row_id):
            return None
        return pending.approval_id

    def _known_key(self, tool: Tool, call: ToolCall) -> str:
        """Return the key of a begun call, even if its tool's `key` fails now."""
        try:
            return self.key_of(tool, call)
        except InvalidArgument:
            return self._own_key(call)

    def _own_key(self, call: ToolCall) -> str:
        return f"{self._context.session_id}:{self._step.step_id}:{call['id']}"

    # -- before and after a call

    async def store_intent(self, tool: Tool, call: ToolCall) -> None:
        """Store the intent of a call, then check that this process may still act on it. Raises `RunLost`."""
        if not tool.happens_once:
            return
        await self._store_intent(call["id"], call, self.key_of(tool, call))
        self._step.unknown.add(call["id"])

    async def _store_intent(self, row_id: str, call: ToolCall, key: str) -> None:
        step, permission = self._step, self._permission(row_id, call["id"])
        if row_id not in step.begun or step.begun[row_id] != permission:
            row = _intent(row_id, step.index_of(call["id"]), permission, key)
            await self._context.watch.ensure_owner()
            await self._stager.stage(step, row)
            step.begun[row_id] = permission
        step.looked_up.discard(row_id)
        await self._context.watch.ensure_owner()

    async def judge(
        self, tool: Tool, call: ToolCall, outcome: Outcome, *, may_help: bool, returned: bool
    ) -> tuple[Outcome, bool]:
        """Return the outcome of an attempt, and whether another one is allowed. `returned`: the function has returned.

        An exception means that the call had no effect. If the function was stopped from outside (`unknown`), only the
        check can tell. A call that left a part without an outcome is unknown, whatever it returned.
        """
        part = self._unknown_part(call["id"])
        if part is not None:
            self._step.asks_about[call["id"]] = part
            return Outcome(success=False, unknown=True), False
        if not tool.happens_once:
            if outcome.success and tool.effects.undo is not None:
                outcome = msgspec.structs.replace(outcome, effect_key=self.key_of(tool, call))
            return outcome, may_help
        key = self.key_of(tool, call)
        if returned and not outcome.success:
            outcome = msgspec.structs.replace(outcome, error=f"The call took effect, but: {outcome.error}")
        if outcome.success or returned:
            return msgspec.structs.replace(outcome, effect_key=key), False
        if outcome.unknown or (may_help and tool.retries):
            verdict = await self._look_up(tool.effects.check, call, key, tool.timeout_seconds)
            if isinstance(verdict, Done):
                return _done(verdict, key), False
            # A thread cannot be stopped: an effect that has not happened yet may still happen.
            if outcome.unknown and (verdict is None or not tool.is_async):
                self._step.looked_up.add(call["id"])
                return msgspec.structs.replace(outcome, effect_key=key), False
            may_help = verdict is not None
        self._step.unknown.discard(call["id"])
        return msgspec.structs.replace(outcome, unknown=False), may_help

    def undoable(self, call: ToolCall, outcome: Outcome) -> Outcome:
        """Return the outcome, marked as undoable if the call's tool can undo its effect."""
        tool = self._context.find_tool(call["name"])
        can = outcome.effect_key is not None and not outcome.unknown
        can = can and tool is not None and tool.effects.undo is not None
        return msgspec.structs.replace(outcome, undoable=True) if can else outcome

    # -- unknown outcomes

    async def replay(self, call: ToolCall) -> Outcome | None:
        """Return the recorded outcome of a call that would repeat an effect; None if it needs a question or may run.

        Replays an effect only if the tool has a `key`, and an abandoned one only if `after_restore` is not "ask".
        Checks an effect with an unknown outcome first.
        """
        record, tool = self.repeated(call), self._tool(call)
        if record is None or tool is None:
            return None
        if record.unknown:
            verdict = await self._look_up(tool.effects.check, call, record.effect_key, tool.timeout_seconds)
            if isinstance(verdict, NotDone):
                self._records.remove(record)
            return _done(verdict, record.effect_key) if isinstance(verdict, Done) else None
        if record.undone:
            return Outcome(success=True, result=TAKEN_BACK, effect_key=self._own_key(call))
        if record.abandoned and (tool.effects.after_restore == "ask" or tool.effects.key is None):
            return None
        return Outcome(success=True, result=record.content, effect_key=record.effect_key)

    async def look_up(self, call: ToolCall) -> Outcome | None:
        """Run the check of an unknown call; return the outcome if it took effect."""
        tool, call_id = self._context.find_tool(call["name"]), call["id"]
        if not self.is_unknown(call) or call_id in self._step.asks_about or call_id in self._step.looked_up:
            return None
        if tool is None:
            return unknown_outcome(self._own_key(call), "its tool no longer exists.")
        call, changed = self.as_run(call)
        key = self._known_key(tool, call)
        verdict = await self._look_up(tool.effects.check, call, key, tool.timeout_seconds)
        if isinstance(verdict, Done):
            done = _done(verdict, key)
            return msgspec.structs.replace(done, arguments=call["arguments"]) if changed else done
        if isinstance(verdict, NotDone):
            self._step.unknown.discard(call_id)
        else:
            self._step.looked_up.add(call_id)
        return None

    def as_run(self, call: ToolCall) -> tuple[ToolCall, bool]:
        """Return the call with the arguments it runs with, and whether a person changed them."""
        pending = self._context.owned.session.pending_client_tool_calls.get(call["id"])
        arguments = None if pending is None else changed_arguments(pending, call)
        return with_arguments(call, arguments), arguments is not None

    def unknown_at_abort(self, call: ToolCall) -> Outcome | None:
        """Return the outcome of a call that an abort cut off; None if it certainly had no effect."""
        tool = self._context.find_tool(call["name"])
        part = self._unknown_part(call["id"])
        if tool is None or (part is None and call["id"] not in self._step.unknown):
            return None
        key = self._known_key(tool, self.as_run(call)[0])
        return unknown_outcome(key if part is None else f"{key}:{part}", "the run was aborted.")

    def unknown_records(self) -> list[EffectRecord]:
        """Return the calls that may have taken effect and have no outcome."""
        found = []
        for call in self._step.missing:
            outcome = self.unknown_at_abort(call)
            if outcome is not None and outcome.effect_key is not None:
                found.append(unknown_record(outcome.effect_key, call))
        return found

    def _unknown_part(self, call_id: str) -> str | None:
        """Return the name of a part of the call that may have taken effect and has no result; None if there is none."""
        start = part_id(call_id, "")
        return next((each.removeprefix(start) for each in sorted(self._step.unknown) if each.startswith(start)), None)

    async def _look_up(self, check: Check | None, call: ToolCall, key: str, limit: float | None) -> Verdict:
        """Return the verdict of a check; None if there is none, it fails, or it times out."""
        if check is None:
            return None
        where = (call["name"], call["id"], self._context.session_id)
        try:
            async with asyncio.timeout(limit or CHECK_SECONDS):
                verdict = await called(check, call["arguments"], key)
            if isinstance(verdict, Done):
                return Done(to_json(verdict.result))
        except (RunLost, StoreError):
            raise
        except Exception as error:
            logger.warning("The check of tool %s failed (call %s, session %s).", *where, exc_info=error)
            return None
        if verdict is None or isinstance(verdict, NotDone):
            return verdict
        logger.warning("The check of tool %s returned %r (call %s, session %s).", where[0], verdict, *where[1:])
        return None

    # -- parts of a call

    async def part(
        self, tool: Tool, call: ToolCall, name: str, function: Callable[[], Any], check: Check | None
    ) -> Json:
        """Run one part of a call unless it has happened. Raises `CallSuspended` if a person has to be asked first."""
        step, row_id, key = self._step, part_id(call["id"], name), f"{self.key_of(tool, call)}:{name}"
        if row_id in step.parts:
            return step.parts[row_id]
        if self._is_unknown(row_id, call["id"]):
            verdict = await self._look_up(check, call, key, tool.timeout_seconds)
            if isinstance(verdict, Done):
                return await self._part_done(call, row_id, verdict.result)
            if not isinstance(verdict, NotDone):
                raise CallSuspended  # `judge` finds the part
        confirmed = self._confirmed(call["id"], name)
        if confirmed is not None:
            return await self._part_done(call, row_id, confirmed.result)
        await self._store_intent(row_id, call, key)
        step.unknown.add(row_id)
        try:
            result = to_json(await called(function))
        except Exception:
            step.unknown.discard(row_id)  # an exception means that it had no effect
            raise
        return await self._part_done(call, row_id, result)

    def _confirmed(self, call_id: str, name: str) -> Done | None:
        """Return the result of a part that a person confirmed; None if none did."""
        pending = self._context.owned.session.pending_client_tool_calls.get(call_id)
        if pending is None or pending.effect is None or pending.effect.part != name:
            return None
        match pending.response:
            case {"happened": True, **rest}:
                return Done(rest.get("result"))
        return None

    async def _part_done(self, call: ToolCall, row_id: str, result: Json) -> Json:
        row = StagedChanges(row_id, self._step.index_of(call["id"]), StepWrites(), {"value": result}, kind="part")
        await self._context.watch.ensure_owner()
        await self._stager.stage(self._step, row)
        self._step.parts[row_id] = result
        self._step.unknown.discard(row_id)
        return result


def add_first_intents(context: RunContext, step: OpenStep) -> None:
    """Add the intents of calls that start immediately to the write that stores the model's reply."""
    guard = EffectGuard(context, step, Stager(context))
    in_turn, held = False, guard.held_back(step.calls)
    for index, call in enumerate(step.calls):
        tool = context.find_tool(call["name"])
        waits = tool is not None and tool.sequential and in_turn
        in_turn = in_turn or (tool is not None and tool.sequential)
        if tool is None or not tool.happens_once or tool.asks_outside or waits or call["id"] in held:
            continue
        try:
            ensure_parsed(tool, call)
            if guard.repeated(call) is not None:
                continue
            step.unstaged[f"begun {call['id']}"] = _intent(call["id"], index, None, guard.key_of(tool, call))
        except InvalidArgument:
            continue
        step.begun[call["id"]] = None


def ensure_parsed(tool: Tool, call: ToolCall) -> None:
    """Raise `InvalidArgument` for a call that its tool does not accept."""
    if "invalid_arguments" in call:
        raise InvalidArgument("The arguments are not a JSON object.")
    tool.input.parse(call["arguments"])


def _row_id(call_id: str, part: str | None) -> str:
    return call_id if part is None else part_id(call_id, part)


def _intent(row_id: str, index: int, approval_id: str | None, key: str) -> StagedChanges:
    begun = {"approval_id": approval_id, "effect_key": key}
    return StagedChanges(row_id, index, StepWrites(), begun, kind="begun")


def _done(verdict: Done, key: str) -> Outcome:
    return Outcome(success=True, result=verdict.result, effect_key=key)
