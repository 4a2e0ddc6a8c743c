"""Check what a run or session has used against its limits. Counts durable data, so a resumed run continues the count of
the dead one."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import msgspec

from ...agent import AgentTool
from ...errors import InvalidArgument
from ...limits import UsageLimits
from ...llm.contract import TokenUsage
from ...messages import Message
from ...stores.usage.contract import TokensEntry
from ...types import RunRecord, SubSessionRef
from ..run_context import RunContext
from ..services import RunServices
from ..step.open_step import OpenStep


def ensure_countable(services: RunServices, *given: UsageLimits | None) -> None:
    """Reject limits that need a usage store if there is none."""
    for limits in given:
        if limits is None:
            continue
        if not isinstance(limits, UsageLimits):
            raise InvalidArgument(f"limits must be a UsageLimits, not {type(limits).__name__}.")
        if limits.needs_usage and services.usage is None:
            raise InvalidArgument("Limits on tokens or cost need a usage store: AgentExecutor(..., usage_store=...).")


def limits_of(context: RunContext) -> list[UsageLimits]:
    """Return the agent's limits and those the run was started with, in whichever process."""
    given = context.claim.run.limits
    own = [] if given is None else [msgspec.convert(given, UsageLimits)]
    return own if context.agent.limits is None else [context.agent.limits, *own]


def token_entry(context: RunContext, id: str, step: int, usage: TokenUsage) -> TokensEntry:
    """Return the usage entry of a model call."""
    return TokensEntry(
        id=id,
        session_id=context.session_id,
        run_id=context.run_id,
        step_count=step,
        source=context.agent.name,
        timestamp=context.services.clock(),
        parent_session_id=context.owned.session.parent_session_id,
        incarnation=context.owned.session.incarnation,
        model=usage.model,
        prompt=usage.prompt,
        completion=usage.completion,
        reasoning=usage.reasoning,
        cached=usage.cached,
        cache_written=usage.cache_written,
    )


async def over_limit(context: RunContext, step: OpenStep | None = None) -> str | None:
    """Return why the model must not be called again, or the calls of `step` must not run; None if no limit is
    reached."""
    for limits in limits_of(context):
        reason = await _over(context, limits, step)
        if reason is not None:
            return reason
    return None


async def _over(context: RunContext, limits: UsageLimits, step: OpenStep | None) -> str | None:
    session = context.owned.session
    since = context.first_step if limits.per == "run" else 0
    steps = session.step_count - since
    if step is not None:
        wanted = _calls(context.owned.messages, steps) + (0 if step.answer_is_stored else len(step.calls))
        return _reached("tool_calls", wanted - 1, limits.tool_calls, limits)
    reasons = [
        _reached("steps", steps, limits.steps, limits),
        _reached("tool_calls", _calls(context.owned.messages, steps), limits.tool_calls, limits),
    ]
    if limits.needs_usage:
        reasons += await _over_tokens(context, limits, since)
    return next((reason for reason in reasons if reason is not None), None)


async def _over_tokens(context: RunContext, limits: UsageLimits, since: int) -> list[str | None]:
    ensure_countable(context.services, limits)
    entries = [entry for entry in await _entries(context, context.session_id) if (entry.step_count or 0) > since]
    if any(isinstance(tool, AgentTool) for tool in context.agent.tools.values()):
        entries += await (_usage_of_turn(context) if limits.per == "run" else _usage_of_descendants(context))
    tokens = sum(entry.prompt + entry.completion for entry in entries)
    reasons = [_reached("tokens", tokens, limits.tokens, limits)]
    if limits.cost is not None:
        unknown = sorted({entry.model for entry in entries} - limits.prices.keys())
        if unknown:
            return [*reasons, f"A cost limit is set, but {unknown[0]!r} has no price: add it to prices."]
        cost = sum(limits.prices[e.model].of(e.prompt, e.completion, e.cached, e.cache_written) for e in entries)
        reasons.append(_reached("cost", cost, limits.cost, limits))
    return reasons


async def _entries(context: RunContext, session_id: str) -> list[TokensEntry]:
    assert context.services.usage is not None
    found = await context.services.usage.get_entries(
        session_id,
        kinds=["tokens"],
        incarnation=context.owned.session.incarnation if session_id == context.session_id else None,
    )
    return [entry for entry in found if isinstance(entry, TokensEntry)]


class _Callers(NamedTuple):
    """The runs of one session in this turn, and the calls that they made as far as its conversation has them."""

    session_id: str
    runs: Sequence[RunRecord]
    calls: Collection[str] | None = None
    """None: the session has no earlier runs."""

    def may_have_called(self, ref: SubSessionRef) -> bool:
        """Return False if a sub-agent ended before this turn, so that its runs need not be read.

        Clocks differ, and a conversation lacks the calls of a step that was undone: both must say so.
        """
        began = min((run.started_at for run in self.runs), default=0)
        is_earlier = ref.completed_at is not None and ref.completed_at < began
        return self.calls is None or ref.parent_tool_call_id in self.calls or not is_earlier


async def _usage_of_turn(context: RunContext) -> list[TokensEntry]:
    """Return the usage of the runs of descendants that this turn has called."""
    own, turn = context.session_id, context.claim.run.turn
    runs = [run for run in await context.owned.runs_of(own) if run.turn == turn]
    rest = [_Callers(own, runs, _call_ids(context.owned.messages[context.run.first_message :]))]
    entries: list[TokensEntry] = []
    seen = {own}
    while rest:
        callers = rest.pop()
        for ref in await context.owned.children_of(callers.session_id):
            if ref.remote or ref.sub_session_id in seen or not callers.may_have_called(ref):
                continue
            called = await _called(context, ref.sub_session_id, callers)
            if called.runs:
                ids = {run.run_id for run in called.runs}
                seen.add(ref.sub_session_id)
                rest.append(called)
                entries += [entry for entry in await _entries(context, ref.sub_session_id) if entry.run_id in ids]
    return entries


async def _called(context: RunContext, session_id: str, callers: _Callers) -> _Callers:
    """Return the runs of a sub-agent that these runs have called, and what they have called in turn."""
    ids = {run.run_id for run in callers.runs}
    runs = await context.owned.runs_of(session_id)
    called = [run for run in runs if run.parent_call is not None and run.parent_call.run_id in ids]
    if not called or len(called) == len(runs):
        return _Callers(session_id, called)
    first = min(run.first_message for run in called)
    return _Callers(session_id, called, _call_ids(await context.owned.messages_of(session_id, first)))


async def _usage_of_descendants(context: RunContext) -> list[TokensEntry]:
    """Return the usage of all descendants."""
    entries: list[TokensEntry] = []
    seen, rest = {context.session_id}, [context.session_id]
    while rest:
        for ref in await context.owned.children_of(rest.pop()):
            if not ref.remote and ref.sub_session_id not in seen:
                seen.add(ref.sub_session_id)
                rest.append(ref.sub_session_id)
                entries += await _entries(context, ref.sub_session_id)
    return entries


def _call_ids(messages: Sequence[Message]) -> set[str]:
    return {call["id"] for message in messages for call in message.get("tool_calls", ())}


def _calls(messages: Sequence[Message], steps: int) -> int:
    """Return the number of tool calls in the last `steps` replies."""
    count = 0
    for message in reversed(messages):
        if steps <= 0:
            break
        if message["role"] == "assistant":
            count += len(message.get("tool_calls", ()))
            steps -= 1
    return count


def _reached(name: str, used: float, limit: float | None, limits: UsageLimits) -> str | None:
    if limit is None or used < limit:
        return None
    return f"The {limits.per} has reached its limit of {name}={limit:g}: raise it in UsageLimits to continue."
