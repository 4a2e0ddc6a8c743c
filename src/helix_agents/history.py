"""History: what the model sees of a conversation. The stored transcript always stays complete.

A history is a function of the messages and a context that returns the messages to send. It may be async. The executor
checks that what it returns is well formed: every tool call with its results, no result without its call.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .codec import encode
from .content import MEDIA, described
from .errors import HelixError, InvalidArgument, RunLost, StoreError
from .llm.contract import LLM, ModelRequest, StartOver, TextDelta, TokenUsage
from .llm.named import as_model
from .messages import Message
from .safe_text import get_logger

logger = get_logger("helix_agents.history")

MEDIA_TOKENS = 1_500
"""The number of tokens that `within_tokens` counts for an image or a file."""

SUMMARY_ROLE = "summary"
"""The role of a summary in the transcript. Messages of this role are never sent to a model."""

SUMMARIZE = (
    "Summarize the conversation so far for the assistant that continues it: what the user wants, what was found out "
    "and decided, what is still open. Keep names, numbers and identifiers. Be brief."
)


@dataclass(frozen=True)
class Summary:
    """A summary of the first `covers` messages."""

    text: str
    covers: int


async def _nowhere(usage: TokenUsage) -> None:
    return None


@dataclass(frozen=True)
class HistoryContext:
    """What a history may know besides the messages. `summary` is the latest stored one."""

    session_id: str
    run_id: str
    agent_type: str
    step: int
    state: Any
    summary: Summary | None
    keep_summary: Callable[[Summary], Awaitable[None]]
    """Store a summary, so that it is not made again, even after a crash."""
    record_usage: Callable[[TokenUsage], Awaitable[None]] = _nowhere
    """Record the cost of a model call that the history made, so that limits include it."""


History = Callable[[Sequence[Message], HistoryContext], Sequence[Message] | Awaitable[Sequence[Message]]]


def last(n: int) -> History:
    """Return a history of at most the last `n` messages; a few more if the latest call has many results."""
    _ensure_positive("last", n)
    return lambda messages, context: messages[_start(messages, len(messages) - n) :]


def within_tokens(n: int, count: Callable[[Message], int] | None = None) -> History:
    """Return a history of the latest messages that have `n` tokens at most together.

    Unless `count` is given, 4 characters of text and calls are a token, and an image or a file is 1,500 tokens.
    """
    _ensure_positive("within_tokens", n)
    measure = count or _tokens

    def choose(messages: Sequence[Message], context: HistoryContext) -> Sequence[Message]:
        left, first = n, len(messages)
        while first > 0 and (left := left - measure(messages[first - 1])) >= 0:
            first -= 1
        return messages[_start(messages, first) :]

    return choose


def summarized(llm: LLM | str, *, keep: int = 20, after: int = 40, instructions: str = SUMMARIZE) -> History:
    """Return a history of the latest messages and a summary, made by `llm`, of the older ones.

    Once more than `after` messages are not summarized, all but about `keep` of them are summarized. If that fails, the
    error is logged and the model sees the messages themselves until it succeeds.
    """
    _ensure_positive("summarized keep", keep)
    if after <= keep:
        raise InvalidArgument(f"summarized: after={after} must be greater than keep={keep}.")
    model = as_model(llm)

    async def choose(messages: Sequence[Message], context: HistoryContext) -> Sequence[Message]:
        summary = context.summary
        covered = summary.covers if summary is not None else 0
        if len(messages) - covered > after:
            cut = _start(messages, len(messages) - keep)
            made = (
                await _summary(model, instructions, messages[covered:cut], summary, context) if cut > covered else None
            )
            if made:
                summary = Summary(made, cut)
                await context.keep_summary(summary)
        if summary is None:
            return messages
        said = {"role": "user", "content": f"Summary of the conversation so far:\n{summary.text}"}
        return [said, *messages[summary.covers :]]

    return choose


async def _summary(
    llm: LLM, instructions: str, messages: Sequence[Message], before: Summary | None, context: HistoryContext
) -> str | None:
    lines = [f"{message['role']}: {_words(message)}" for message in messages]
    if before is not None:
        lines.insert(0, f"Summary of what came before: {before.text}")
    request = ModelRequest(
        messages=[{"role": "user", "content": "\n".join(lines)}],
        instructions=instructions,
        agent_type=context.agent_type,
        session_id=context.session_id,
        run_id=context.run_id,
        step=context.step,
    )
    text: list[str] = []
    try:
        async for event in llm.stream(request):
            if isinstance(event, StartOver):
                text.clear()
            elif isinstance(event, TextDelta):
                text.append(event.text)
            elif isinstance(event, TokenUsage):
                await context.record_usage(event)
    except (RunLost, StoreError):
        raise
    except Exception as error:
        trace = None if isinstance(error, HelixError) else error
        logger.warning("Session %s: no summary could be made: %s", context.session_id, error, exc_info=trace)
        return None
    return "".join(text) or None


def _words(message: Message) -> str:
    """Return what a message says and calls as text: no reasoning, no media."""
    calls = message.get("tool_calls")
    said = described(message.get("content"))
    return f"{said} {encode(calls)}" if calls else said


def _tokens(message: Message) -> int:
    content = message.get("content")
    media = (
        sum(part.get("type") in MEDIA for part in content if isinstance(part, dict)) if isinstance(content, list) else 0
    )
    return len(_words(message)) // 4 + 1 + media * MEDIA_TOKENS


def _start(messages: Sequence[Message], wanted: int) -> int:
    """Return the first index at or after `wanted` where a conversation can start; if there is none, the last one
    before."""
    wanted = max(0, min(wanted, len(messages)))
    for place in range(wanted, len(messages)):
        if messages[place]["role"] != "tool":
            return place
    for place in range(min(wanted, len(messages) - 1), -1, -1):
        if messages[place]["role"] != "tool":
            return place
    return 0


def broken_pair(messages: Sequence[Message]) -> str | None:
    """Return what is wrong with the tool calls of a conversation, in one sentence; None if nothing is."""
    open_calls: set[str] = set()
    for message in messages:
        if message["role"] == "tool":
            if message.get("tool_call_id") not in open_calls:
                return f"the result of call {message.get('tool_call_id')!r} has lost its call"
            open_calls.discard(message["tool_call_id"])
            continue
        if open_calls:
            return f"call {sorted(open_calls)[0]!r} has lost its result"
        calls = message.get("tool_calls") or ()
        if not isinstance(calls, list | tuple) or not all(isinstance(call, Mapping) and "id" in call for call in calls):
            return "tool_calls is not a list of calls with an id, a name and arguments"
        open_calls = {call["id"] for call in calls}
    return f"call {sorted(open_calls)[0]!r} has lost its result" if open_calls else None


def _ensure_positive(name: str, n: object) -> None:
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise InvalidArgument(f"{name}: expected a positive integer, not {n!r}.")
