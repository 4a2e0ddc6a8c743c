"""ScriptedLLM: a model that plays a script, for tests, demos and work without a network.

The reply depends on the request alone (how many replies the conversation holds already), never on memory, so a run that
another process resumes gets the replies of an undisturbed run.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import msgspec

from ..codec import encode
from ..errors import ModelError
from .contract import (
    Finished,
    ModelEvent,
    ModelRequest,
    NativeContent,
    TextDelta,
    ThinkingDelta,
    TokenUsage,
    ToolCallDelta,
)
from .native import Block


class Call(msgspec.Struct, frozen=True):
    """A tool call of a scripted reply. `arguments` given as a string is sent as it is, even if it is not JSON."""

    name: str
    arguments: dict[str, Any] | str = {}
    id: str | None = None


class Reply(msgspec.Struct, frozen=True):
    """One scripted reply. `fail_with` ends it after the text, as a lost connection would.

    `finish_reason` is sent only if it is given: `length`, `content_filter`, ... `native` is stored with the message.
    """

    text: str = ""
    calls: Sequence[Call] = ()
    thinking: str = ""
    usage: TokenUsage | None = None
    fail_with: ModelError | None = None
    finish_reason: str | None = None
    native: list[Block] | None = None


Line = str | Reply | ModelError | Sequence[Call]
"""One line of a script: text, tool calls, both in a `Reply`, or an error to raise."""

Script = Sequence[Line | Sequence[Line]] | Callable[[ModelRequest], Line]


class ScriptedLLM:
    """Plays a script: one for all agents, or one for each by name.

    An entry that is a list of lines is played one line per attempt, so `[ModelError(..., retryable=True), "Hello"]`
    fails once and then replies. `delay_seconds` passes before every piece; `piece` is its length in characters.
    """

    def __init__(
        self,
        script: Script | Mapping[str, Script],
        *,
        delay_seconds: float = 0.0,
        piece: int = 12,
        model: str = "scripted",
    ) -> None:
        self._scripts: Mapping[str, Script] | None = script if isinstance(script, Mapping) else None
        self._script: Script | None = None if isinstance(script, Mapping) else script
        self._delay_seconds = delay_seconds
        self._piece = piece
        self._model = model
        self._attempts: Counter[tuple[str, int]] = Counter()
        self.requests: list[ModelRequest] = []
        """Every request seen, oldest first."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Yield the reply that the script has for this point of the conversation."""
        self.requests.append(request)
        reply = _as_reply(self._line_for(request))
        turn = _answers_so_far(request)
        for event in _events(reply, turn, self._piece):
            if self._delay_seconds:
                await asyncio.sleep(self._delay_seconds)
            yield event
        if reply.fail_with is not None:
            raise reply.fail_with
        if reply.native is not None:
            yield NativeContent(
                {"dialect": "scripted", "issuer": "scripted", "model": self._model, "blocks": reply.native}
            )
        if reply.finish_reason is not None:
            yield Finished(reply.finish_reason)
        yield reply.usage or TokenUsage(self._model, prompt=_length(request), completion=max(1, len(reply.text) // 4))

    def _line_for(self, request: ModelRequest) -> Line:
        script = self._script
        if self._scripts is not None:
            if request.agent_type not in self._scripts:
                raise ModelError(f"The script has no part for agent {request.agent_type!r}: add one.")
            script = self._scripts[request.agent_type]
        assert script is not None
        if callable(script):
            return script(request)
        turn = _answers_so_far(request)
        if turn >= len(script):
            raise ModelError(f"The script of {request.agent_type!r} ends after {len(script)} replies: add another.")
        entry = script[turn]
        if not _is_attempts(entry):
            return entry  # type: ignore[return-value]  # told apart by _is_attempts
        attempt = self._attempts[request.session_id, turn]
        self._attempts[request.session_id, turn] += 1
        return entry[min(attempt, len(entry) - 1)]  # type: ignore[index,arg-type,return-value]


def _is_attempts(entry: object) -> bool:
    return isinstance(entry, list | tuple) and not all(isinstance(item, Call) for item in entry)


def _as_reply(line: Line) -> Reply:
    if isinstance(line, ModelError):
        raise line
    if isinstance(line, Reply):
        return line
    if isinstance(line, str):
        return Reply(text=line)
    return Reply(calls=line)


def _answers_so_far(request: ModelRequest) -> int:
    """Return how many replies there are. One that an interrupt cut off does not count: the same is asked again."""
    return sum(1 for m in request.messages if m["role"] == "assistant" and not m.get("interrupted"))


def _events(reply: Reply, turn: int, piece: int) -> list[ModelEvent]:
    events: list[ModelEvent] = [ThinkingDelta(text) for text in _pieces(reply.thinking, piece)]
    events += [TextDelta(text) for text in _pieces(reply.text, piece)]
    for index, call in enumerate(reply.calls):
        text = call.arguments if isinstance(call.arguments, str) else encode(call.arguments)
        events.append(ToolCallDelta(index, id=call.id or f"call_{turn + 1}_{index + 1}", name=call.name))
        events += [ToolCallDelta(index, arguments=part) for part in _pieces(text, piece * 4)]
    return events


def _pieces(text: str, size: int) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


def _length(request: ModelRequest) -> int:
    """Return a plausible token count: a quarter of the characters."""
    return max(1, sum(len(str(message.get("content", ""))) for message in request.messages) // 4)
