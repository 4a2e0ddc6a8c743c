"""OpenAILLM: any endpoint that speaks OpenAI's Chat Completions protocol, through the official client.

The neutral form of a message says everything that this protocol can, so nothing native is stored.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from ..codec import encode
from ..errors import ModelError
from ..messages import Message
from .contract import Finished, ModelEvent, ModelRequest, TextDelta, ThinkingDelta, TokenUsage, ToolCallDelta, ToolSpec
from .native import Block
from .openai_client import MAX_CHARS, OpenAIClientLLM
from .parts import Media, PartMapper, latest_user_message
from .provider import sendable

AUDIO_FORMATS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}


class OpenAILLM(OpenAIClientLLM):
    """A model behind an OpenAI-compatible endpoint.

    `options` go into every request (`temperature`, `reasoning_effort`, ...). A given `client` is not closed.
    """

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        timeout_seconds: float = 120.0,
        client: Any = None,
        **options: Any,
    ) -> None:
        super().__init__(
            model, api_key=api_key, base_url=base_url, timeout_seconds=timeout_seconds, client=client, options=options
        )

    async def _events(self, body: dict[str, Any]) -> AsyncGenerator[Any, None]:
        async with await self._client.chat.completions.create(**body) as stream:
            async for chunk in stream:
                yield chunk

    def _reply(self, *, cut: bool) -> _Reply:
        return _Reply(self.model)

    def _body(self, request: ModelRequest, *, with_reasoning: bool) -> dict[str, Any]:
        messages: list[Block] = []
        if request.instructions:
            messages.append({"role": "system", "content": sendable(request.instructions)})
        messages += _messages(request.messages, PartMapper(self.model, _text, _media, MAX_CHARS))
        extra: dict[str, Any] = {"stream_options": {"include_usage": True}}
        if request.tools:
            extra["tools"] = [_tool(spec) for spec in request.tools]
            if request.tool_choice != "auto":
                extra["tool_choice"] = _tool_choice(request.tool_choice)
        return {"model": self.model, "messages": messages, "stream": True, "extra_body": {**extra, **self.options}}


def _tool(spec: ToolSpec) -> dict[str, Any]:
    function = {"name": spec.name, "description": spec.description, "parameters": spec.input_schema}
    return {"type": "function", "function": function}


def _tool_choice(choice: str) -> Any:
    return choice if choice in ("required", "none") else {"type": "function", "function": {"name": choice}}


def _text(text: str) -> Block:
    return {"type": "text", "text": sendable(text)}


def _media(media: Media) -> Block | None:
    if media.kind == "image":
        return {"type": "image_url", "image_url": {"url": media.url or media.data_url}}
    if media.url is not None:
        return None
    if media.media_type in AUDIO_FORMATS:
        return {"type": "input_audio", "input_audio": {"data": media.data, "format": AUDIO_FORMATS[media.media_type]}}
    if (text := media.text) is not None:
        return _text(f"{media.name}:\n{text}" if media.name else text)
    if media.kind == "file":
        return {"type": "file", "file": {"filename": media.name or "file", "file_data": media.data_url}}
    return None


def _messages(messages: Sequence[Message], parts: PartMapper) -> list[Block]:
    """Return the messages. Tool results hold text only, so a user message after them carries their media."""
    latest = latest_user_message(messages)
    sent: list[Block] = []
    waiting: list[Block] = []
    for index, message in enumerate(messages):
        role, content = message["role"], message.get("content")
        if role == "tool":
            said, media = _result(content, parts)
            sent.append({"role": "tool", "tool_call_id": message["tool_call_id"], "content": said})
            waiting += media
            continue
        if waiting:
            sent.append({"role": "user", "content": waiting})
            waiting = []
        if role == "assistant":
            sent.append(_assistant(message))
        elif role != "thinking":
            is_text = isinstance(content, str)
            parted = content if is_text else parts.message(message, latest=index == latest)
            sent.append({"role": role, "content": sendable(parted)})
    return [*sent, {"role": "user", "content": waiting}] if waiting else sent


def _result(content: Any, parts: PartMapper) -> tuple[str, list[Block]]:
    if isinstance(content, str) or content is None:
        return sendable(content or ""), []
    texts: list[str] = []
    media: list[Block] = []
    for part in parts.result(content):
        if part["type"] == "text":
            texts.append(part["text"])
        else:
            texts.append(f"[{part['type']}: see the next message]")
            media.append(part)
    return "\n".join(texts), media


def _assistant(message: Message) -> Block:
    content = sendable(message.get("content") or "")
    calls = [_call(call) for call in message.get("tool_calls", ())]
    if not calls:
        return {"role": "assistant", "content": content}
    return {"role": "assistant", "content": content or None, "tool_calls": calls}


def _call(call: Mapping[str, Any]) -> Block:
    arguments = sendable(call.get("invalid_arguments")) or encode(call["arguments"])
    return {"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": arguments}}


class _Reply:
    """One reply while it arrives."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._has_started = False
        self._has_finished = False

    def take(self, chunk: Any) -> list[ModelEvent]:
        """Return what one chunk says."""
        self._has_started = True
        events: list[ModelEvent] = []
        for choice in chunk.choices or ():
            if choice.delta is not None:
                events += _delta_events(choice.delta)
            if choice.finish_reason:
                self._has_finished = True
                events.append(Finished(choice.finish_reason))
        if chunk.usage is not None:
            events.append(_usage(chunk.usage, getattr(chunk, "model", None) or self._model))
        return events

    def end(self) -> list[ModelEvent]:
        """Raise `ModelError` unless the reply is whole; every event came before."""
        if not self._has_started:  # an error page of a proxy, or an empty body, also comes with status 200
            raise ModelError("The model endpoint returned status 200 without a single event.", retryable=True)
        if not self._has_finished:  # a proxy that closes the connection looks like the end of the reply
            raise ModelError("The model endpoint ended its reply early: there was no finish_reason.", retryable=True)
        return []


def _delta_events(delta: Any) -> list[ModelEvent]:
    events: list[ModelEvent] = []
    # Not in the protocol: the two names that endpoints with visible reasoning use.
    thinking = getattr(delta, "reasoning_content", None) or getattr(delta, "reasoning", None)
    if isinstance(thinking, str) and thinking:
        events.append(ThinkingDelta(thinking))
    if delta.content:
        events.append(TextDelta(delta.content))
    for position, call in enumerate(delta.tool_calls or ()):
        function = call.function
        events.append(
            ToolCallDelta(
                # Endpoints that send whole calls at once may leave the index out.
                position if call.index is None else call.index,
                id=call.id or None,
                name=(function.name or None) if function else None,
                arguments=(function.arguments or "") if function else "",
            )
        )
    return events


def _usage(usage: Any, model: str) -> TokenUsage:
    prompt_details = getattr(usage, "prompt_tokens_details", None)
    completion_details = getattr(usage, "completion_tokens_details", None)
    return TokenUsage(
        model,
        prompt=usage.prompt_tokens or 0,
        completion=usage.completion_tokens or 0,
        reasoning=getattr(completion_details, "reasoning_tokens", None) or 0,
        cached=getattr(prompt_details, "cached_tokens", None) or 0,
    )
