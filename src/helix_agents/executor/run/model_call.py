"""One model call: turns events into chunks as they arrive and into a message at the end, and retries transient errors.

Knows the model and the stream. The loop decides what to do with the reply.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Set
from typing import Any

import msgspec

from ...chunks import AnyChunk
from ...codec import decode, is_json
from ...errors import HelixError, InvalidArgument, ModelError, StoreCorrupt
from ...ids import MAX_ID_LENGTH, ensure_id
from ...llm.contract import (
    LLM,
    Finished,
    ModelEvent,
    ModelRequest,
    NativeContent,
    StartOver,
    TextDelta,
    ThinkingDelta,
    TokenUsage,
    ToolCallDelta,
)
from ...llm.native import Native, with_native
from ...messages import Message, ToolCall, without_native
from ...safe_text import get_logger
from ..step.decisions import MAX_ARGUMENTS_DEPTH, answer_message, partial_message
from ..stream.fenced import FencedStream
from .hooks import INTERRUPTED, HookCaller, ModelAnswer
from .stop_signal import StopSignal

logger = get_logger("helix_agents.executor")

SPLIT_CHARACTER = re.compile("[\ud800-\udbff][\udc00-\udfff]")
"""Matches a character split into two surrogates, as adapters that count in UTF-16 produce."""


class RetryPolicy(msgspec.Struct, frozen=True):
    """How often and after how long a retryable model error is retried; the wait doubles, with jitter."""

    max_attempts: int = 5
    first_wait_seconds: float = 0.5
    longest_wait_seconds: float = 30.0

    def wait_seconds(self, attempt: int, error: ModelError) -> float:
        """Return how long to wait after failed attempt number `attempt` (from 1)."""
        wait = min(self.longest_wait_seconds, self.first_wait_seconds * 2.0 ** (attempt - 1))
        wait *= random.uniform(0.5, 1.0)
        return max(wait, min(error.retry_after_seconds or 0.0, self.longest_wait_seconds))


class Answered(msgspec.Struct, frozen=True):
    """The model's complete reply."""

    message: Message
    usage: TokenUsage | None


class CutOff(msgspec.Struct, frozen=True):
    """The partial reply when the run was stopped; None if there was none."""

    message: Message | None


def named(llm: LLM, what: str) -> str | None:
    """Return a string attribute of the adapter, or None."""
    value = getattr(llm, what, None)
    return value if isinstance(value, str) else None


class ModelCall:
    """Calls one model for one run."""

    def __init__(
        self,
        llm: LLM,
        *,
        stream: FencedStream,
        stop: StopSignal,
        hooks: HookCaller,
        retry: RetryPolicy,
        drop_partial: Callable[[], Awaitable[None]],
        taken_ids: Set[str] = frozenset(),
        id_mark: str = "",
    ) -> None:
        self._llm = llm
        self._stream = stream
        self._stop = stop
        self._hooks = hooks
        self._retry = retry
        self._drop_partial = drop_partial
        self._taken_ids = taken_ids
        self._id_mark = id_mark

    async def ask(self, request: ModelRequest) -> Answered | CutOff:
        """Return the reply, or the part that arrived before the run was stopped. Raises `ModelError`."""
        attempt = 1
        while True:
            await self._hooks.call("model_started", request.step, attempt)
            answer = _Answer(request, self._taken_ids, self._id_mark)
            try:
                finished = await self._read_reply(request, answer)
            except ModelError as error:
                await self._hooks.call("model_ended", request.step, None, str(error))
                if not error.retryable or attempt >= self._retry.max_attempts:
                    raise
                logger.warning("Session %s: the model failed; retrying: %s", request.session_id, error)
                if answer.is_shown:
                    await self._drop_partial()
                if await self._stopped_within(self._retry.wait_seconds(attempt, error)):
                    return CutOff(None)
                attempt += 1
                continue
            message = answer.message() if finished else answer.partial()
            if finished:
                await self._hooks.call("model_answered", request.step, self._metadata_of(answer))
            seen = None if message is None else without_native(message)
            await self._hooks.call("model_ended", request.step, seen, None if finished else INTERRUPTED)
            return Answered(message, answer.usage) if finished and message is not None else CutOff(message)

    def _metadata_of(self, answer: _Answer) -> ModelAnswer:
        return ModelAnswer(
            requested_model=named(self._llm, "model"),
            model=answer.usage.model if answer.usage is not None else None,
            finish_reason=answer.finish_reason,
            usage=answer.usage,
        )

    async def _read_reply(self, request: ModelRequest, answer: _Answer) -> bool:
        """Read the reply; return False if the run was stopped before the end."""
        consuming = asyncio.create_task(self._consume(request, answer))
        unsubscribe = self._stop.listen(lambda: consuming.cancel())
        if self._stop.requested:
            consuming.cancel()
        try:
            await asyncio.wait({consuming})
        except asyncio.CancelledError:
            consuming.cancel()
            await asyncio.gather(consuming, return_exceptions=True)
            raise
        finally:
            unsubscribe()
        if consuming.cancelled():
            if not self._stop.requested:
                raise ModelError("The model's adapter was canceled: something it awaited was canceled.")
            return False
        consuming.result()
        return True

    async def _consume(self, request: ModelRequest, answer: _Answer) -> None:
        events: AsyncIterator[ModelEvent] | None = None
        try:
            events = self._llm.stream(request)
            async for event in events:
                if isinstance(event, StartOver):
                    if answer.is_shown:
                        await self._drop_partial()
                    answer.forget()
                    continue
                chunk = answer.take(event)
                if chunk is not None:
                    await self._stream.write(chunk)
            for chunk in answer.rest():
                await self._stream.write(chunk)
            if answer.is_thinking:
                await self._stream.write({"type": "thinking", "content": "", "is_complete": True})
        except (HelixError, asyncio.CancelledError, KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # even SystemExit: no adapter may end the process
            logger.warning("Session %s: the model's adapter failed.", request.session_id, exc_info=error)
            raise ModelError(f"The model's adapter failed: {type(error).__name__}: {error}") from error
        finally:
            close = getattr(events, "aclose", None)
            if close is not None:
                await close()

    async def _stopped_within(self, seconds: float) -> bool:
        stopped = asyncio.Event()
        unsubscribe = self._stop.listen(stopped.set)
        try:
            async with asyncio.timeout(seconds):
                if not self._stop.requested:
                    await stopped.wait()
                return True
        except TimeoutError:
            return False
        finally:
            unsubscribe()


class _Answer:
    """Collects a reply while it arrives."""

    def __init__(self, request: ModelRequest, taken_ids: Set[str], id_mark: str) -> None:
        self.usage: TokenUsage | None = None
        self.finish_reason: str | None = None
        self.is_thinking = False
        self._request = request
        self._taken_ids = taken_ids
        self._id_mark = id_mark
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._calls: dict[int, _Call] = {}
        self._halves: dict[tuple[str, int], str] = {}
        self._native: Native | None = None

    @property
    def is_shown(self) -> bool:
        """Whether readers have seen any of it."""
        return bool(self._text or self._thinking or self._calls)

    def forget(self) -> None:
        """Discard everything so far."""
        self.usage = self.finish_reason = None
        self.is_thinking = False
        self._text, self._thinking, self._calls = [], [], {}
        self._halves = {}
        self._native = None

    def take(self, event: ModelEvent) -> AnyChunk | None:
        """Add an event; return its chunk, if any."""
        match event:
            case TextDelta(text=text):
                return self._add("text", 0, self._whole("text", 0, text))
            case ThinkingDelta(text=text):
                self.is_thinking = True
                return self._add("thinking", 0, self._whole("thinking", 0, text))
            case ToolCallDelta():
                call = self._calls.get(event.index)
                if call is None:
                    call = self._calls[event.index] = _Call(self._free_id(event), event.name or "")
                elif event.name and not call.name:
                    call.name = event.name
                return self._add("call", event.index, self._whole("call", event.index, event.arguments))
            case TokenUsage():
                self.usage = event
            case Finished(reason=reason):
                self.finish_reason = reason
            case NativeContent(native=native):
                self._native = native
            case _:
                raise ModelError(
                    f"The model's adapter yielded {event!r:.100}, which is not a model event: "
                    "yield TextDelta, ThinkingDelta, ToolCallDelta, NativeContent, TokenUsage or Finished."
                )
        return None

    def rest(self) -> list[AnyChunk]:
        """Return the chunks of surrogates whose other half never arrived."""
        halves, self._halves = self._halves, {}
        return [chunk for (kind, index), half in halves.items() if (chunk := self._add(kind, index, half)) is not None]

    def _whole(self, kind: str, index: int, text: str) -> str:
        """Return the text without a trailing surrogate, which is held back for the next delta."""
        text = self._halves.pop((kind, index), "") + text
        if text.isascii():
            return text
        if "\ud800" <= text[-1] <= "\udbff":
            self._halves[kind, index] = text[-1]
            text = text[:-1]
        return SPLIT_CHARACTER.sub(_one_character, text)

    def _add(self, kind: str, index: int, text: str) -> AnyChunk | None:
        if not text:
            return None
        if kind == "text":
            self._text.append(text)
            return {"type": "text_delta", "delta": text}
        if kind == "thinking":
            self._thinking.append(text)
            return {"type": "thinking", "content": text, "is_complete": False}
        call = self._calls[index]
        call.arguments.append(text)
        return {"type": "tool_arg_delta", "tool_call_id": call.id, "tool_name": call.name, "delta": text}

    def message(self) -> Message:
        """Return the complete reply."""
        calls = [self._calls[index].finished() for index in sorted(self._calls)]
        message = answer_message("".join(self._text), "".join(self._thinking), calls, self.finish_reason)
        return with_native(message, self._native)

    def partial(self) -> Message | None:
        """Return the partial reply without incomplete calls."""
        return partial_message("".join(self._text), "".join(self._thinking))

    def _free_id(self, event: ToolCallDelta) -> str:
        """Return the provider's id if it is a valid key and new to the conversation, else one made from its
        position."""
        taken = {call.id for call in self._calls.values()}
        by_position = f"call_{self._request.step}_{event.index + 1}"
        try:
            proposed = ensure_id(event.id, "a tool call id")
        except InvalidArgument:
            proposed = by_position
        if proposed.startswith(":") or len(proposed) > MAX_ID_LENGTH // 4:
            proposed = by_position
        more = (f"{by_position}_{number}" for number in itertools.count(2))
        candidates = (f"{name}{self._id_mark}" for name in itertools.chain((proposed, by_position), more))
        return next(name for name in candidates if name not in taken and name not in self._taken_ids)


def _one_character(halves: re.Match[str]) -> str:
    return halves[0].encode("utf-16", "surrogatepass").decode("utf-16")


class _Call:
    """Collects a tool call while it arrives."""

    def __init__(self, id: str, name: str) -> None:
        self.id = id
        self.name = name
        self.arguments: list[str] = []

    def finished(self) -> ToolCall:
        """Return the call. Arguments that are not a JSON object stay a string, so that the model sees what it wrote."""
        text = "".join(self.arguments)
        call: Any = {"id": self.id, "name": self.name, "arguments": {}}
        try:
            arguments = decode(text) if text.strip() else {}
        except (StoreCorrupt, RecursionError):
            arguments = None
        if isinstance(arguments, dict) and is_json(arguments, MAX_ARGUMENTS_DEPTH):
            call["arguments"] = arguments
        else:
            call["invalid_arguments"] = text
        finished: ToolCall = call
        return finished
