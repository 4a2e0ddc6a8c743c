"""OpenAILLM: any endpoint that speaks the OpenAI chat completions protocol, through the official client.

Knows the dialect and nothing else: our messages become theirs, their stream becomes our events, their errors become
`ModelError`, which says whether another try may help. Retries are the executor's business.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from json import JSONDecodeError
from typing import Any

from ..codec import encode
from ..errors import ModelError
from ..messages import Message
from .contract import Finished, ModelEvent, ModelRequest, TextDelta, ThinkingDelta, TokenUsage, ToolCallDelta, ToolSpec

try:
    import openai
except ImportError as error:  # pragma: no cover
    raise ImportError("OpenAILLM needs the openai client: pip install 'helix-agents[openai]'.") from error

TRANSPORTS = frozenset({"httpx", "httpx2", "httpcore", "httpcore2", "h11", "h2", "anyio", "aiohttp"})
"""The libraries that the official client reads with: httpx in versions 1 and 2, httpx2 in version 3."""

RETRYABLE_STATUS = frozenset({408, 409, 425, 429})


class OpenAILLM:
    """A model behind an OpenAI-compatible endpoint.

    `options` go into every request as they are (`temperature`, `reasoning_effort`, ...). A `client` that is given is
    not closed by `close`.
    """

    provider = "openai"
    """The protocol that is spoken, for traces."""

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout_seconds: float = 120.0,
        options: Mapping[str, Any] | None = None,
        client: openai.AsyncOpenAI | None = None,
    ) -> None:
        self.model = model
        self._options = dict(options or {})
        self._owns_client = client is None
        self._client = client or openai.AsyncOpenAI(
            base_url=base_url, api_key=api_key, timeout=timeout_seconds, max_retries=0
        )

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Ask the endpoint. Raises `ModelError`."""
        answered = finished = False
        try:
            answer = await self._client.chat.completions.create(**self._body(request))
            async with answer:
                async for chunk in answer:
                    answered = True
                    for event in _events(chunk, self.model):
                        finished = finished or isinstance(event, Finished)
                        yield event
        except openai.OpenAIError as error:
            raise _model_error(error) from error
        except JSONDecodeError as error:
            raise ModelError(f"The model endpoint sent an event that is not JSON: {error}", retryable=True) from error
        except Exception as error:
            if not _is_of_the_transport(error):
                raise
            lost = f"The connection to the model endpoint was lost in the middle of its answer: {error!r}"
            raise ModelError(lost, retryable=True) from error
        if not answered:
            # An error page of a proxy, or an empty body, comes as 200 too: it must not pass for an empty answer.
            raise ModelError("The model endpoint returned status 200 without a single event.", retryable=True)
        if not finished:
            # A server or proxy that closes the connection looks like the end of the answer, but for this.
            raise ModelError("The model endpoint broke off: its reply has no finish_reason.", retryable=True)

    async def close(self) -> None:
        """Close the client, unless it was given."""
        if self._owns_client:
            await self._client.close()

    def _body(self, request: ModelRequest) -> dict[str, Any]:
        messages: list[dict[str, Any]] = []
        if request.instructions:
            messages.append({"role": "system", "content": _sendable(request.instructions)})
        messages += [_message(message) for message in request.messages if message["role"] != "thinking"]
        body: dict[str, Any] = {
            "model": self.model,
            "messages": messages,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if request.tools:
            body["tools"] = [_tool(spec) for spec in request.tools]
            if request.tool_choice != "auto":
                body["tool_choice"] = _tool_choice(request.tool_choice)
        return {**body, **self._options}


def _tool(spec: ToolSpec) -> dict[str, Any]:
    function = {"name": spec.name, "description": spec.description, "parameters": spec.input_schema}
    return {"type": "function", "function": function}


def _tool_choice(choice: str) -> Any:
    return choice if choice in ("required", "none") else {"type": "function", "function": {"name": choice}}


def _message(message: Message) -> dict[str, Any]:
    match message:
        case {"role": "assistant"}:
            said: dict[str, Any] = {"role": "assistant", "content": _sendable(message.get("content")) or None}
            if message.get("tool_calls"):
                said["tool_calls"] = [_call(call) for call in message["tool_calls"]]
            elif said["content"] is None:
                said["content"] = ""
            return said
        case {"role": "tool"}:
            content = _sendable(message.get("content", ""))
            return {"role": "tool", "tool_call_id": message["tool_call_id"], "content": content}
        case _:
            return {"role": message["role"], "content": _sendable(message.get("content", ""))}


def _sendable(content: Any) -> Any:
    """Text that UTF-8 can carry. A lone surrogate is kept in the log but cannot be sent: it would end every turn."""
    return content.encode(errors="replace").decode() if isinstance(content, str) else content


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    arguments = call.get("invalid_arguments") or encode(call["arguments"])
    return {"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": arguments}}


def _events(chunk: Any, model: str) -> list[ModelEvent]:
    events: list[ModelEvent] = []
    for choice in chunk.choices or ():
        if choice.delta is not None:
            events += _delta_events(choice.delta)
        if choice.finish_reason:
            events.append(Finished(choice.finish_reason))
    if chunk.usage is not None:
        events.append(_usage(chunk.usage, getattr(chunk, "model", None) or model))
    return events


def _delta_events(delta: Any) -> list[ModelEvent]:
    events: list[ModelEvent] = []
    # Not part of the protocol; the two names that endpoints with visible reasoning use.
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


def _model_error(error: openai.OpenAIError) -> ModelError:
    if isinstance(error, openai.APIStatusError):
        retryable = error.status_code in RETRYABLE_STATUS or error.status_code >= 500
        sentence = f"The model endpoint answered {error.status_code}: {error.message}"
        return ModelError(sentence, retryable=retryable, retry_after_seconds=_retry_after(error.response.headers))
    if isinstance(error, openai.APITimeoutError):
        return ModelError("The model endpoint did not answer in time.", retryable=True)
    if isinstance(error, openai.APIConnectionError):
        return ModelError(f"The connection to the model endpoint failed: {error}", retryable=True)
    if isinstance(error, openai.APIError):
        # An error event inside the stream: the endpoint had begun and broke off.
        return ModelError(f"The model endpoint broke off: {error.message}", retryable=True)
    return ModelError(f"The model endpoint cannot be asked: {error}")


def _is_of_the_transport(error: Exception) -> bool:
    """The client wraps errors of its transport while it connects, but not all while it reads the answer."""
    return isinstance(error, OSError) or type(error).__module__.partition(".")[0] in TRANSPORTS


def _retry_after(headers: Mapping[str, str]) -> float | None:
    try:
        return float(headers["retry-after"])
    except (KeyError, ValueError):
        return None
