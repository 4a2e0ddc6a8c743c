"""Spending: what a run or session has used so far, against its limits. Counted from what is durable, so a resumed run
goes on where the dead one stopped counting."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..errors import InvalidArgument
from ..limits import UsageLimits
from ..messages import Message
from ..stores.usage.contract import TokensEntry
from .context import RunContext
from .openstep import OpenStep
from .services import Services


def ensure_countable(services: Services, limits: UsageLimits | None) -> None:
    """Refuse limits that nobody would count."""
    if limits is not None and not isinstance(limits, UsageLimits):
        raise InvalidArgument(f"limits must be a UsageLimits, not {type(limits).__name__}.")
    if limits is not None and limits.needs_usage and services.usage is None:
        raise InvalidArgument("Limits of tokens or cost need a usage store: AgentExecutor(..., usage_store=...).")


def limits_of(context: RunContext) -> list[UsageLimits]:
    """The limits of the agent, and those that the run was started with, in whatever process."""
    given = context.claim.run.metadata.get("limits")
    own = [] if given is None else [msgspec.convert(given, UsageLimits)]
    return own if context.agent.limits is None else [context.agent.limits, *own]


async def over_limit(context: RunContext, step: OpenStep | None = None) -> str | None:
    """Why the model must not be asked again, or the calls of `step` must not run; None if nothing is used up."""
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
    assert context.services.usage is not None
    found = await context.services.usage.get_entries(context.session_id, kinds=["tokens"])
    entries = [entry for entry in found if isinstance(entry, TokensEntry) and (entry.step_count or 0) > since]
    tokens = sum(entry.prompt + entry.completion for entry in entries)
    reasons = [_reached("tokens", tokens, limits.tokens, limits)]
    if limits.cost is not None:
        unknown = sorted({entry.model for entry in entries} - limits.prices.keys())
        if unknown:
            return [*reasons, f"A limit of cost is set, and {unknown[0]!r} has no price: add it to prices."]
        cost = sum(limits.prices[e.model].of(e.prompt, e.completion, e.cached) for e in entries)
        reasons.append(_reached("cost", cost, limits.cost, limits))
    return reasons


def _calls(messages: Sequence[Message], steps: int) -> int:
    """The calls in the last so many answers."""
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
    return f"The {limits.per} has reached its limit of {name}={limit:g}: raise it in UsageLimits to go on."
