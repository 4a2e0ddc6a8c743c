"""OpenAIResponsesLLM: OpenAI's Responses API through the official client, without state at the provider.

The conversation is in our stores, so `store` is false: reasoning arrives encrypted and goes back with its items.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any

from ..codec import encode
from ..errors import ModelError
from ..messages import Message
from .contract import Finished, ModelEvent, ModelRequest, TextDelta, ThinkingDelta, TokenUsage, ToolCallDelta
from .native import Block, CallIds, blocks_of, first_with_reasoning
from .openai_client import MAX_CHARS, RETRYABLE_CODES, OpenAIClientLLM, ended_early
from .parts import Media, PartMapper, latest_user_message
from .provider import is_compact, native_content, sendable

FINISH_REASONS = {"max_output_tokens": "length", "max_messages": "length", "content_filter": "content_filter"}
REASONING_DELTAS = frozenset({"response.reasoning_summary_text.delta", "response.reasoning_text.delta"})
NEUTRAL_MEMBERS = {
    "message": {"id", "type", "status", "role", "content"},
    "function_call": {"id", "type", "status", "call_id", "name", "arguments"},
}


class OpenAIResponsesLLM(OpenAIClientLLM):
    """An OpenAI model.

    `options` go into every request: `reasoning`, `text`, `max_output_tokens`, `prompt_cache_key`, ...; `tools` adds
    tools that OpenAI runs itself.
    """

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        timeout_seconds: float = 600.0,
        client: Any = None,
        **options: Any,
    ) -> None:
        super().__init__(
            model,
            api_key=api_key,
            base_url=base_url,
            timeout_seconds=timeout_seconds,
            client=client,
            options={"store": False, "include": ["reasoning.encrypted_content"], **options},
        )

    async def _events(self, body: dict[str, Any]) -> AsyncGenerator[Any, None]:
        async with await self._client.responses.create(**body) as stream:
            async for event in stream:
                said = event.to_dict(warnings=False)
                yield said if "type" in said else said["data"]  # old clients wrap the events that they do not know

    def _reply(self, *, cut: bool) -> _Reply:
        return _Reply(self.model, self.issuer, cut=cut)

    def _body(self, request: ModelRequest, *, with_reasoning: bool) -> dict[str, Any]:
        extra = dict(self.options)
        if request.instructions:
            extra["instructions"] = sendable(request.instructions)
        if request.tools:
            # Without `strict` the API takes it as true, and rejects the schemas of most Python functions.
            extra["tools"] = [
                {
                    "type": "function",
                    "name": spec.name,
                    "description": spec.description,
                    "parameters": spec.input_schema,
                    "strict": False,
                }
                for spec in request.tools
            ] + list(extra.get("tools", ()))
            if request.tool_choice != "auto":
                is_mode = request.tool_choice in ("required", "none")
                named = {"type": "function", "name": request.tool_choice}
                extra["tool_choice"] = request.tool_choice if is_mode else named
        items = _Items(self.issuer, PartMapper(self.model, _text, _media, MAX_CHARS)).write(
            request.messages, with_reasoning=with_reasoning
        )
        return {"model": self.model, "input": items, "stream": True, "extra_body": extra}


def _text(text: str) -> Block:
    return {"type": "input_text", "text": sendable(text)}


def _media(media: Media) -> Block | None:
    if media.kind == "image":
        return {"type": "input_image", "image_url": media.url or media.data_url, "detail": "auto"}
    if media.kind == "audio":
        return None
    if media.url is not None:
        return {"type": "input_file", "file_url": media.url}
    if (text := media.text) is not None:
        return _text(f"{media.name}:\n{text}" if media.name else text)
    return {"type": "input_file", "filename": media.name or "file", "file_data": media.data_url}


class _Items:
    """The messages of one request as items."""

    def __init__(self, issuer: str, parts: PartMapper) -> None:
        self._issuer = issuer
        self._parts = parts
        self._ids = CallIds()

    def write(self, messages: Sequence[Message], *, with_reasoning: bool) -> list[Block]:
        """Return the items."""
        first = first_with_reasoning(messages, "openai", self._issuer) if with_reasoning else len(messages)
        latest = latest_user_message(messages)
        items: list[Block] = []
        for index, message in enumerate(messages):
            content = message.get("content") or ""
            match message["role"]:
                case "thinking":
                    continue
                case "assistant":
                    items += self._reply(message, with_reasoning=index >= first)
                case "tool":
                    output = sendable(content) if isinstance(content, str) else self._parts.result(content)
                    call_id = self._ids.of(message["tool_call_id"])
                    items.append({"type": "function_call_output", "call_id": call_id, "output": output})
                case role if isinstance(content, str):
                    items.append({"role": role, "content": sendable(content)})
                case role:
                    items.append({"role": role, "content": self._parts.message(message, latest=index == latest)})
        return items

    def _reply(self, message: Message, *, with_reasoning: bool) -> list[Block]:
        """Return a reply as it came if all of its reasoning can be read again, else in its neutral form.

        The API ties an item by its id to the reasoning before it and rejects one without the other.
        """
        calls = message.get("tool_calls", ())
        blocks = blocks_of(message, "openai", self._issuer)
        if blocks is not None:
            is_readable = all(item.get("encrypted_content") for item in blocks if item["type"] == "reasoning")
            made = [item["call_id"] for item in blocks if item["type"] == "function_call"]
            if self._ids.adopt(calls, made) and with_reasoning and is_readable:
                return blocks
        items: list[Block] = []
        if message.get("content"):
            items.append({"role": "assistant", "content": sendable(message["content"])})
        for call in calls:
            arguments = sendable(call.get("invalid_arguments")) or encode(call["arguments"])
            id = self._ids.of(call["id"])
            items.append({"type": "function_call", "call_id": id, "name": call["name"], "arguments": arguments})
        return items


class _Reply:
    """One reply while it arrives."""

    def __init__(self, model: str, issuer: str, *, cut: bool) -> None:
        self._model = model
        self._issuer = issuer
        self._cut = cut
        self._items: dict[int, Block] = {}
        self._calls: dict[int, int] = {}
        self._with_arguments: set[int] = set()
        self._is_refusal = False
        self._has_thought = False
        self._response: dict[str, Any] | None = None

    def take(self, event: dict[str, Any]) -> list[ModelEvent]:
        """Return what one event says. Events of unknown types say nothing."""
        index = event.get("output_index", -1)
        match event:
            case {"type": "response.output_item.added", "item": {"type": "function_call"} as item}:
                return [self._call(index, item)]
            case {"type": "response.function_call_arguments.delta", "delta": text}:
                self._with_arguments.add(index)
                return [ToolCallDelta(self._calls[index], arguments=text)]
            case {"type": "response.output_text.delta", "delta": text}:
                return [TextDelta(text)]
            case {"type": "response.refusal.delta", "delta": text}:
                self._is_refusal = True
                return [TextDelta(text)]
            case {"type": "response.reasoning_summary_part.added"}:
                is_another, self._has_thought = self._has_thought, True
                return [ThinkingDelta("\n\n")] if is_another else []
            case {"type": kind, "delta": text} if kind in REASONING_DELTAS:
                return [ThinkingDelta(text)]
            case {"type": "response.output_item.done", "item": item}:
                self._items[index] = item  # the item in `added` has reasoning that is not complete
                return self._whole_call(index, item) if item["type"] == "function_call" else []
            case {"type": "response.completed" | "response.incomplete", "response": response}:
                self._response = response
            case {"type": "response.failed", "response": {"error": {"code": code, "message": message}}}:
                raise ended_early(message, code, retryable=code in RETRYABLE_CODES)
            case {"type": "error", "code": code, "message": message}:
                raise ended_early(message, code, retryable=code in RETRYABLE_CODES)
        return []

    def _call(self, index: int, item: Block) -> ToolCallDelta:
        self._calls[index] = len(self._calls)
        return ToolCallDelta(self._calls[index], id=item["call_id"], name=item["name"])

    def _whole_call(self, index: int, item: Block) -> list[ModelEvent]:
        """Return a call that came in one piece, as compatible servers send it."""
        events: list[ModelEvent] = [] if index in self._calls else [self._call(index, item)]
        if index not in self._with_arguments:
            events.append(ToolCallDelta(self._calls[index], arguments=item["arguments"]))
        return events

    def end(self) -> list[ModelEvent]:
        """Return the items, the finish reason and the usage."""
        response = self._response
        if response is None:
            raise ModelError(
                "The model endpoint ended its reply early: there was no response.completed.", retryable=True
            )
        self._model = response.get("model") or self._model
        is_complete = response.get("status") == "completed"
        return [*(self._native() if is_complete else ()), Finished(self._reason(response)), *self._usage(response)]

    def _reason(self, response: dict[str, Any]) -> str:
        if response.get("status") != "completed":
            reason = (response.get("incomplete_details") or {}).get("reason") or "incomplete"
            return FINISH_REASONS.get(reason, reason)
        return "content_filter" if self._is_refusal else "tool_calls" if self._calls else "stop"

    def _usage(self, response: dict[str, Any]) -> list[ModelEvent]:
        usage = response.get("usage")
        if not usage:
            return []
        prompt, completion = usage.get("input_tokens_details") or {}, usage.get("output_tokens_details") or {}
        return [
            TokenUsage(
                self._model,
                prompt=usage.get("input_tokens") or 0,
                completion=usage.get("output_tokens") or 0,
                reasoning=completion.get("reasoning_tokens") or 0,
                cached=prompt.get("cached_tokens") or 0,
                cache_written=prompt.get("cache_write_tokens") or 0,
            )
        ]

    def _native(self) -> list[ModelEvent]:
        """Return the items, unless the neutral form says the same or one of them is incomplete."""
        items = [self._items[index] for index in sorted(self._items)]
        if any(item.get("status") not in (None, "completed") for item in items):
            return []
        if _are_neutral(items) and not self._cut:
            return []
        return native_content("openai", self._issuer, self._model, items, cut=self._cut)


def _are_neutral(items: list[Block]) -> bool:
    """Report whether text and calls say everything: no reasoning, no annotations, no other order or spelling."""
    is_ordered = all(item["type"] == "function_call" for item in items[1:])
    return is_ordered and all(_is_neutral(item) for item in items)


def _is_neutral(item: Block) -> bool:
    members = {name for name, value in item.items() if value is not None}
    if not members <= NEUTRAL_MEMBERS.get(item["type"], set()):
        return False
    if item["type"] == "function_call":
        return is_compact(item["arguments"])
    return all(part["type"] == "output_text" and not part.get("annotations") for part in item["content"])
