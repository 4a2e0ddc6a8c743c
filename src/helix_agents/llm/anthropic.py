"""AnthropicLLM: the Messages API through the official client.

Only four arguments of the call are typed; the rest goes into `extra_body`, because the client moves parameters between
versions. Blocks are collected as they arrive and sent back as they came.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Iterable, Mapping
from typing import Any

from ..codec import decode
from ..errors import ModelError, StoreCorrupt
from ..messages import Message
from .contract import Finished, ModelEvent, ModelRequest, TextDelta, ThinkingDelta, TokenUsage, ToolCallDelta
from .native import Block
from .parts import MEBIBYTE, Media, PartMapper
from .provider import (
    ProviderLLM,
    ReasoningRejected,
    is_retryable_status,
    issuer_at,
    native_content,
    retry_after,
    sendable,
)
from .turns import Turns, split_instructions

try:
    import anthropic

    if sys.platform == "emscripten":
        from .fetch import FetchTransport
except ImportError as error:  # pragma: no cover
    raise ImportError("AnthropicLLM needs the anthropic client: pip install 'helix-agents[anthropic]'.") from error

HOME = "api.anthropic.com"
FINISH_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}
RETRYABLE_TYPES = frozenset({"overloaded_error", "rate_limit_error", "api_error", "timeout_error"})
"""Inside a stream these come with status 200, so the type decides, not the status."""
MAX_CHARS = {"image": 10 * MEBIBYTE, "file": 32 * MEBIBYTE}
"""In base64 characters, which is what this provider counts."""
MAX_PAUSES = 5
"""How often a turn of Anthropic's own tools is continued."""
REASONING = frozenset({"thinking", "redacted_thinking"})
DIRECT = ("caller", {"type": "direct"})
"""A member of every call that the model makes itself; the API assumes it."""
DEFAULTS: Mapping[str, Any] = {"max_tokens": 16_384, "cache_control": {"type": "ephemeral"}}


class AnthropicLLM(ProviderLLM):
    """A Claude model.

    `options` go into every request: `max_tokens` (16,384 unless given), `thinking`, `temperature`, ...; `tools` adds
    tools that Anthropic runs itself. The prompt is cached unless `cache_control=None`. A given `client` (for example
    `AsyncAnthropicBedrock`) is not closed.
    """

    provider = "anthropic"

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
        super().__init__(model, {**DEFAULTS, **options})
        http: Any = {"timeout": timeout_seconds, "max_retries": 0}
        if sys.platform == "emscripten":
            http["http_client"] = anthropic.DefaultAsyncHttpxClient(transport=FetchTransport())
        self._owns_client = client is None
        self._client = client or anthropic.AsyncAnthropic(api_key=api_key, base_url=base_url, **http)
        self.issuer = issuer_at("anthropic", str(self._client.base_url), HOME)

    async def close(self) -> None:
        """Close the client, unless the caller provided it."""
        if self._owns_client:
            await self._client.close()

    async def _events(self, body: dict[str, Any]) -> AsyncGenerator[Any, None]:
        async with await self._client.messages.create(**body) as stream:
            async for event in stream:
                yield event.to_dict(warnings=False)

    def _reply(self, *, cut: bool) -> _Reply:
        return _Reply(self.model, self.issuer, cut=cut)

    def _continued(self, body: dict[str, Any], reply: _Reply) -> dict[str, Any] | None:
        """Return the request that continues a long turn of Anthropic's own tools."""
        blocks = reply.resume()
        if blocks is None:
            return None
        return {**body, "messages": [*body["messages"], {"role": "assistant", "content": blocks}]}

    def _body(self, request: ModelRequest, *, with_reasoning: bool) -> dict[str, Any]:
        extra = dict(self.options)
        instructions, messages = split_instructions(request)
        if instructions:
            extra["system"] = instructions
        if request.tools:
            extra["tools"] = [
                {"name": spec.name, "description": spec.description, "input_schema": spec.input_schema}
                for spec in request.tools
            ] + list(extra.get("tools", ()))
            if request.tool_choice != "auto":
                extra["tool_choice"] = _tool_choice(request.tool_choice)
        turns = _Turns(self.issuer, PartMapper(self.model, _text, _media, MAX_CHARS)).write(
            messages, with_reasoning=with_reasoning
        )
        if _is_manual(extra.get("thinking")) and _continues_without_thinking(turns):
            del extra["thinking"]
        return {
            "model": self.model,
            "max_tokens": extra.pop("max_tokens"),
            "messages": turns,
            "stream": True,
            "extra_body": extra,
        }

    def _model_error(self, error: Exception) -> ModelError | None:
        if isinstance(error, anthropic.APIStatusError):
            return _status_error(error)
        if isinstance(error, anthropic.APITimeoutError):
            return ModelError("The model endpoint did not reply in time.", retryable=True)
        if isinstance(error, anthropic.APIConnectionError):
            return ModelError(f"The connection to the model endpoint failed: {error}", retryable=True)
        if isinstance(error, anthropic.AnthropicError) or "resolve authentication" in str(error):
            return ModelError(f"The model cannot be called: {error}")
        return None


def _tool_choice(choice: str) -> dict[str, Any]:
    named = {"required": {"type": "any"}, "none": {"type": "none"}}
    return named.get(choice) or {"type": "tool", "name": choice}


def _is_manual(thinking: Any) -> bool:
    return isinstance(thinking, dict) and thinking.get("type") == "enabled"


def _continues_without_thinking(turns: list[dict[str, Any]]) -> bool:
    """Report whether the request holds results of calls made without thinking, which manual thinking does not allow."""
    if len(turns) < 2 or turns[-1]["content"][0]["type"] != "tool_result":
        return False
    return turns[-2]["content"][0]["type"] not in REASONING


def _text(text: str) -> Block:
    return {"type": "text", "text": sendable(text)}


def _media(media: Media) -> Block | None:
    if media.url is not None:
        source = {"type": "url", "url": media.url}
    else:
        source = {"type": "base64", "media_type": media.media_type, "data": media.data}
    title = {"title": media.name} if media.name else {}
    if media.kind == "image":
        return {"type": "image", "source": source}
    if media.media_type == "application/pdf":
        return {"type": "document", "source": source, **title}
    if (text := media.text) is not None:
        return {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": text}, **title}
    return None


class _Turns(Turns):
    """The messages of a request in Anthropic's dialect."""

    dialect = "anthropic"
    model_role = "assistant"
    content = "content"

    def _kept(self, message: Message, blocks: list[Block], *, with_reasoning: bool) -> list[Block] | None:
        if not self.ids.adopt(message.get("tool_calls", ()), [b["id"] for b in blocks if b["type"] == "tool_use"]):
            return None
        return blocks if with_reasoning else [block for block in blocks if block["type"] not in REASONING]

    def _neutral(self, message: Message) -> list[Block]:
        calls = [(self.ids.of(call["id"]), call["name"], call["arguments"]) for call in message.get("tool_calls", ())]
        return _neutral_blocks(message.get("content") or "", calls)

    def _result(self, message: Message) -> Block:
        content = message.get("content", "")
        said = sendable(content) if isinstance(content, str) else self.parts.result(content)
        block: Block = {"type": "tool_result", "tool_use_id": self.ids.of(message["tool_call_id"]), "content": said}
        if message.get("success") is False:
            block["is_error"] = True
        return block


def _neutral_blocks(text: str, calls: Iterable[tuple[str, str, Any]]) -> list[Block]:
    blocks = [_text(text)] if text.strip() else []
    for id, name, arguments in calls:
        blocks.append({"type": "tool_use", "id": id, "name": name, "input": sendable(arguments)})
    return blocks


class _Reply:
    """One reply while it arrives."""

    def __init__(self, model: str, issuer: str, *, cut: bool) -> None:
        self._model = model
        self._issuer = issuer
        self._cut = cut
        self._blocks: dict[int, Block] = {}
        self._pieces: dict[tuple[int, str], list[str]] = {}
        self._calls: dict[int, int] = {}
        self._usages: list[dict[str, Any]] = []
        self._stop_reason: str | None = None
        self._is_whole = True
        self._has_ended = False
        self._first = 0
        """The index of the current message's first block: a turn that was paused comes in several messages."""
        self._pauses = 0

    def take(self, event: dict[str, Any]) -> list[ModelEvent]:
        """Return what one event says. Events of unknown types say nothing."""
        match event["type"]:
            case "message_start":
                self._model = event["message"].get("model") or self._model
                self._usages.append(dict(event["message"].get("usage") or {}))
            case "content_block_start":
                return self._start(self._first + event["index"], dict(event["content_block"]))
            case "content_block_delta":
                return self._delta(self._first + event["index"], event["delta"])
            case "content_block_stop":
                self._stop(self._first + event["index"])
            case "message_delta":
                self._stop_reason = event["delta"].get("stop_reason") or self._stop_reason
                self._usages[-1].update({k: v for k, v in (event.get("usage") or {}).items() if v is not None})
            case "message_stop":
                self._has_ended = True
        return []

    def _start(self, index: int, block: Block) -> list[ModelEvent]:
        is_another_thought = any(known["type"] == "thinking" for known in self._blocks.values())
        self._blocks[index] = block
        match block:
            case {"type": "thinking"} if is_another_thought:
                return [ThinkingDelta("\n\n")]
            case {"type": "tool_use", "id": id, "name": name}:
                self._calls[index] = len(self._calls)
                return [ToolCallDelta(self._calls[index], id=id, name=name)]
            case {"type": "text", "text": text} if text:
                return [TextDelta(text)]
        return []

    def _delta(self, index: int, delta: dict[str, Any]) -> list[ModelEvent]:
        match delta:
            case {"type": "text_delta", "text": text}:
                self._add(index, "text", text)
                return [TextDelta(text)]
            case {"type": "thinking_delta", "thinking": text}:
                self._add(index, "thinking", text)
                return [ThinkingDelta(text)] if text else []
            case {"type": "signature_delta", "signature": signature}:
                self._add(index, "signature", signature)
            case {"type": "input_json_delta", "partial_json": text}:
                self._add(index, "input", text)
                if index in self._calls and text:
                    return [ToolCallDelta(self._calls[index], arguments=text)]
            case {"type": "citations_delta", "citation": citation}:
                block = self._blocks[index]
                block["citations"] = [*(block.get("citations") or ()), citation]
            case _:
                self._is_whole = False  # from a newer API: a block that cannot be assembled must not be sent back
        return []

    def _add(self, index: int, member: str, text: str) -> None:
        self._pieces.setdefault((index, member), []).append(text)

    def _stop(self, index: int) -> None:
        """Assemble a block from its pieces."""
        block = self._blocks[index]
        for member in ("text", "thinking", "signature", "input"):
            text = "".join(self._pieces.pop((index, member), ()))
            if member != "input":
                block.update({member: block.get(member, "") + text} if text else {})
            elif text.strip():
                try:
                    block["input"] = decode(text)
                except StoreCorrupt:
                    self._is_whole = False

    def end(self) -> list[ModelEvent]:
        """Return the blocks, the finish reason and the usage."""
        if not self._has_ended:
            raise ModelError("The model endpoint ended its reply early: there was no message_stop.", retryable=True)
        read, written = self._sum("cache_read_input_tokens"), self._sum("cache_creation_input_tokens")
        details = [usage.get("output_tokens_details") or {} for usage in self._usages]
        reason = self._stop_reason or "unknown"
        return [
            *self._native(),
            Finished(FINISH_REASONS.get(reason, reason)),
            TokenUsage(
                self._model,
                prompt=self._sum("input_tokens") + read + written,
                completion=self._sum("output_tokens"),
                reasoning=sum(each.get("thinking_tokens") or 0 for each in details),
                cached=read,
                cache_written=written,
            ),
        ]

    def _sum(self, name: str) -> int:
        return sum(usage.get(name) or 0 for usage in self._usages)

    def resume(self) -> list[Block] | None:
        """Return the blocks so far if the provider paused the reply, and expect the rest; None otherwise."""
        is_paused = self._has_ended and self._stop_reason == "pause_turn" and self._is_whole and not self._pieces
        if not is_paused or self._pauses >= MAX_PAUSES:
            return None
        self._pauses += 1
        self._first = max(self._blocks, default=-1) + 1
        self._has_ended, self._stop_reason = False, None
        return [self._blocks[index] for index in sorted(self._blocks)]

    def _native(self) -> list[ModelEvent]:
        """Return the blocks, unless the neutral form says the same or the API would reject them."""
        blocks = [self._blocks[index] for index in sorted(self._blocks)]
        blocks = [block for block in blocks if block["type"] != "text" or block.get("text", "").strip()]
        while blocks and blocks[-1]["type"] in REASONING:  # a reply must not end with thinking
            blocks.pop()
        is_signed = all(block.get("signature") for block in blocks if block["type"] == "thinking")
        if not self._is_whole or self._pieces or not is_signed or (_is_neutral(blocks) and not self._cut):
            return []
        return native_content("anthropic", self._issuer, self._model, blocks, cut=self._cut)


def _is_neutral(blocks: list[Block]) -> bool:
    """Report whether text and calls say everything: no thinking, no citations, no other order."""
    text = "".join(block["text"] for block in blocks if block["type"] == "text")
    calls = [(block["id"], block["name"], block["input"]) for block in blocks if block["type"] == "tool_use"]
    return _neutral_blocks(text, calls) == [
        {name: value for name, value in block.items() if value is not None and (name, value) != DIRECT}
        for block in blocks
    ]


def _status_error(error: anthropic.APIStatusError) -> ModelError:
    body: Any = error.body
    inner = body.get("error") if isinstance(body, dict) else None
    kind, said = (inner.get("type"), inner.get("message")) if isinstance(inner, dict) else (None, None)
    said, status = said or error.message, error.status_code
    what = "ended its reply early" if status == 200 else f"returned {status}"
    if status == 400 and "thinking" in said and ("block" in said or "signature" in said):
        return ReasoningRejected(f"The model endpoint {what}: {said}")
    return ModelError(
        f"The model endpoint {what}: {said}",
        retryable=kind in RETRYABLE_TYPES or status == 529 or (kind is None and is_retryable_status(status)),
        retry_after_seconds=retry_after(error.response.headers),
    )
