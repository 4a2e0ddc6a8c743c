"""GeminiLLM: Google's generateContent through the official client.

A thought signature belongs to the part that carries it, so parts are joined only if neither is signed.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from ..codec import encode
from ..errors import InvalidArgument, ModelError
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
    from google import genai
    from google.genai import errors as genai_errors

    if sys.platform == "emscripten":
        from .fetch import FetchTransport
except ImportError as error:  # pragma: no cover
    raise ImportError("GeminiLLM needs the google-genai client: pip install 'helix-agents[google]'.") from error

HOME = "generativelanguage.googleapis.com"
BLOCKED = ("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY")
FINISH_REASONS = {"STOP": "stop", "MAX_TOKENS": "length", **dict.fromkeys(BLOCKED, "content_filter")}
UNUSABLE = frozenset({"MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "MALFORMED_RESPONSE", "OTHER"})
"""Finish reasons of replies that are worth another try."""
UNSIGNED = base64.b64encode(b"skip_thought_signature_validator").decode()
"""The documented signature for a call that Gemini did not make, for example one of another provider's model."""
ACCEPTED = ("image/", "audio/", "video/", "application/pdf")
"""Media types that a request can hold."""
MAX_CHARS = {"application/pdf": 50 * MEBIBYTE * 4 // 3} | dict.fromkeys(("image", "audio", "file"), 100 * MEBIBYTE)
"""In base64 characters: documents are limited by their bytes, other inline data by the request."""
JOINABLE = frozenset({"text", "thought"})


class GeminiLLM(ProviderLLM):
    """A Gemini model.

    `options` go into the `config` of every request: `thinking_config`, `temperature`, `max_output_tokens`, ...; `tools`
    adds tools that Google runs itself. A given `client` (for example one for Vertex AI) is not closed.
    """

    provider = "google"

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
        super().__init__(model, {"thinking_config": {"include_thoughts": True}, **options})
        _check("options", genai.types.GenerateContentConfig, self.options)
        http: Any = {"timeout": int(timeout_seconds * 1000), "retry_options": {"attempts": 1}}
        if base_url is not None:
            http["base_url"] = base_url
        if sys.platform == "emscripten":
            http["async_client_args"] = {"transport": FetchTransport()}
        self._owns_client = client is None
        self._client = client or genai.Client(api_key=api_key, http_options=http)
        provider = "vertex" if self._client.vertexai else "google"
        self.issuer = provider if base_url is None else issuer_at(provider, base_url, HOME)

    async def close(self) -> None:
        """Close the client, unless the caller provided it."""
        if self._owns_client:
            await self._client.aio.aclose()

    async def _events(self, body: dict[str, Any]) -> AsyncGenerator[Any, None]:
        async for chunk in await self._client.aio.models.generate_content_stream(**body):
            yield chunk

    def _reply(self, *, cut: bool) -> _Reply:
        return _Reply(self.model, self.issuer, cut=cut)

    def _body(self, request: ModelRequest, *, with_reasoning: bool) -> dict[str, Any]:
        config: dict[str, Any] = {**self.options, "automatic_function_calling": {"disable": True}}
        instructions, messages = split_instructions(request)
        if instructions:
            config["system_instruction"] = instructions
        if request.tools:
            declared = [
                {"name": spec.name, "description": spec.description, "parameters_json_schema": spec.input_schema}
                for spec in request.tools
            ]
            config["tools"] = [{"function_declarations": declared}, *config.get("tools", ())]
            config["tool_config"] = {"function_calling_config": _tool_choice(request.tool_choice)}
        turns = _Turns(self.issuer, PartMapper(self.model, _text, _media, MAX_CHARS)).write(
            messages, with_reasoning=with_reasoning
        )
        return {"model": self.model, "contents": turns, "config": config}

    def _model_error(self, error: Exception) -> ModelError | None:
        if isinstance(error, ValueError):  # of the client's parser: the request itself was checked before
            return ModelError(f"The model endpoint sent an event that cannot be read: {error}", retryable=True)
        if not isinstance(error, genai_errors.APIError):
            return None
        status, said = error.code or 0, f"The model endpoint returned {error.code}: {error.message}"
        if status == 400 and ("thought_signature" in said or "thought signature" in said.lower()):
            return ReasoningRejected(said)
        headers: Mapping[str, str] = getattr(error.response, "headers", None) or {}
        wait = retry_after(headers)
        return ModelError(
            said,
            retryable=is_retryable_status(status),
            retry_after_seconds=_retry_delay(error.details) if wait is None else wait,
        )


def _check(what: str, kind: Any, members: Mapping[str, Any]) -> None:
    try:
        kind.model_validate(members)
    except ValueError as error:
        raise InvalidArgument(f"GeminiLLM: invalid {what}: {error}") from error


def _tool_choice(choice: str) -> dict[str, Any]:
    modes = {"auto": "AUTO", "required": "ANY", "none": "NONE"}
    if choice in modes:
        return {"mode": modes[choice]}
    return {"mode": "ANY", "allowed_function_names": [choice]}


def _text(text: str) -> Block:
    return {"text": sendable(text)}


def _media(media: Media) -> Block | None:
    if media.url is not None:
        return {"file_data": {"file_uri": media.url, "mime_type": media.media_type}}
    if (text := media.text) is not None:
        return _text(f"{media.name}:\n{text}" if media.name else text)
    if media.media_type.startswith(ACCEPTED):
        return {"inline_data": {"data": media.data, "mime_type": media.media_type}}
    return None


class _Turns(Turns):
    """The messages of a request in Google's dialect."""

    dialect = "google"
    model_role = "model"
    content = "parts"

    def _kept(self, message: Message, blocks: list[Block], *, with_reasoning: bool) -> list[Block] | None:
        """Return the parts. Without their signatures they have no advantage over the neutral form."""
        calls = message.get("tool_calls", ())
        made = [part["function_call"].get("id") or "" for part in blocks if "function_call" in part]
        if not with_reasoning or len(made) != len(calls):
            return None
        if any(made) and not self.ids.adopt(calls, made):
            return None
        return blocks

    def _neutral(self, message: Message) -> list[Block]:
        parts = [_text(message["content"])] if (message.get("content") or "").strip() else []
        for index, call in enumerate(message.get("tool_calls", ())):
            arguments = sendable(call["arguments"])
            part: Block = {"function_call": {"name": call["name"], "args": arguments}}
            if index == 0:  # only the first of parallel calls is signed
                part["thought_signature"] = UNSIGNED
            parts.append(part)
        return parts

    def _result(self, message: Message) -> Block:
        outcome = "error" if message.get("success") is False else "output"
        parts = self.parts.result(message.get("content") or "")
        said = "\n".join(part["text"] for part in parts if "text" in part)
        result: Block = {"name": message.get("tool_name", ""), "response": {outcome: said}}
        if media := [part for part in parts if "text" not in part]:
            result["parts"] = media
        if id := self.ids.adopted(message["tool_call_id"]):
            result["id"] = id
        return {"function_response": result}


class _Reply:
    """One reply while it arrives."""

    def __init__(self, model: str, issuer: str, *, cut: bool) -> None:
        self._model = model
        self._issuer = issuer
        self._cut = cut
        self._parts: list[Block] = []
        self._is_whole = True
        self._call_count = 0
        self._reason: str | None = None
        self._blocked: str | None = None
        self._usage: Any = None

    def take(self, chunk: Any) -> list[ModelEvent]:
        """Return what one chunk says."""
        self._model = chunk.model_version or self._model
        self._usage = chunk.usage_metadata or self._usage
        if chunk.prompt_feedback is not None and chunk.prompt_feedback.block_reason:
            self._blocked = str(chunk.prompt_feedback.block_reason.value)
        events: list[ModelEvent] = []
        for candidate in (chunk.candidates or ())[:1]:
            for part in (candidate.content.parts if candidate.content else None) or ():
                events += self._take_part(part.model_dump(mode="json", exclude_none=True))
            if candidate.finish_reason is not None:
                self._reason = str(candidate.finish_reason.value)
        return events

    def _take_part(self, part: Block) -> list[ModelEvent]:
        last = self._parts[-1] if self._parts else {}
        self._is_whole = self._is_whole and bool(part)  # the client drops members that it does not know
        is_same = last.get("thought") == part.get("thought")
        if part and last and part.keys() <= JOINABLE and last.keys() <= JOINABLE and is_same:
            last["text"] += part["text"]
        else:
            self._parts.append(part)
        if call := part.get("function_call"):
            index, self._call_count = self._call_count, self._call_count + 1
            arguments = encode(call.get("args") or {})
            return [ToolCallDelta(index, id=call.get("id"), name=call["name"], arguments=arguments)]
        if not (text := part.get("text")):
            return []
        return [ThinkingDelta(text) if part.get("thought") else TextDelta(text)]

    def end(self) -> list[ModelEvent]:
        """Return the parts, the finish reason and the usage."""
        if self._blocked is not None:
            raise ModelError(f"The model endpoint rejected the prompt: {self._blocked}.")
        if self._reason is None:
            raise ModelError("The model endpoint ended its reply early: there was no finish reason.", retryable=True)
        if self._reason in UNUSABLE and not self._call_count:
            raise ModelError(f"The model's reply is unusable: {self._reason}.", retryable=True)
        reason = FINISH_REASONS.get(self._reason, self._reason.lower())
        reason = "tool_calls" if self._call_count and reason == "stop" else reason
        return [*self._native(), Finished(reason), *self._token_usage()]

    def _native(self) -> list[ModelEvent]:
        """Return the parts, unless plain text says the same."""
        is_neutral = all(part.keys() <= JOINABLE for part in self._parts) and not self._cut
        if is_neutral or not self._is_whole:
            return []
        return native_content("google", self._issuer, self._model, self._parts, cut=self._cut)

    def _token_usage(self) -> list[ModelEvent]:
        usage = self._usage
        if usage is None:
            return []
        thoughts = usage.thoughts_token_count or 0
        return [
            TokenUsage(
                self._model,
                prompt=(usage.prompt_token_count or 0) + (usage.tool_use_prompt_token_count or 0),
                completion=(usage.candidates_token_count or 0) + thoughts,  # thoughts are not among the candidates
                reasoning=thoughts,
                cached=usage.cached_content_token_count or 0,
            )
        ]


def _retry_delay(details: Any) -> float | None:
    """Return the wait that the body asks for: `RetryInfo.retryDelay`, as in `"12s"`."""
    error = details.get("error", details) if isinstance(details, dict) else None
    for detail in (error.get("details") or ()) if isinstance(error, dict) else ():
        match detail:
            case {"retryDelay": str(delay)} if delay.removesuffix("s").replace(".", "", 1).isdigit():
                return float(delay.removesuffix("s"))
    return None
