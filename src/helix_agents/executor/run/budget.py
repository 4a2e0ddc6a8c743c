"""Check what a run or session has used against its limits. Counts durable data, so a resumed run continues the count of
the dead one."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from ...agent import AgentTool
from ...errors import InvalidArgument
from ...limits import UsageLimits
from ...llm.contract import TokenUsage
from ...messages import Message
from ...stores.usage.contract import TokensEntry
from ...types import RunRecord
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
        entries += await _descendants_usage(context, this_turn=limits.per == "run")
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


async def _descendants_usage(context: RunContext, *, this_turn: bool) -> list[TokensEntry]:
    """Return the usage of descendants; with `this_turn`, only of runs that this turn has called."""
    turn, calling = context.claim.run.turn, await context.owned.runs_of(context.session_id)
    callers = {run.run_id for run in calling if run.turn == turn}
    entries: list[TokensEntry] = []
    seen, rest = {context.session_id}, [context.session_id]
    while rest:
        for ref in await context.owned.children_of(rest.pop()):
            if ref.remote or ref.sub_session_id in seen:
                continue
            runs = {run.run_id for run in await context.owned.runs_of(ref.sub_session_id) if _is_called(run, callers)}
            if this_turn and not runs:
                continue
            callers |= runs
            seen.add(ref.sub_session_id)
            rest.append(ref.sub_session_id)
            spent = await _entries(context, ref.sub_session_id)
            entries += [entry for entry in spent if not this_turn or entry.run_id in runs]
    return entries


def _is_called(run: RunRecord, callers: Collection[str]) -> bool:
    return run.parent_call is not None and run.parent_call.run_id in callers


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
