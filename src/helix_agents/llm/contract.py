"""The model protocol: one method that takes a request and yields events.

An adapter translates the request for its provider, and the provider's stream into these events. It knows nothing about
stores, and it does not retry: it raises `ModelError`, which says whether a retry may help, and the executor decides.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol

import msgspec

from ..messages import Message
from .native import Native


class ToolSpec(msgspec.Struct, frozen=True):
    """A tool as the model sees it."""

    name: str
    description: str
    input_schema: dict[str, Any]


class ModelRequest(msgspec.Struct, frozen=True):
    """Everything one model call may depend on."""

    messages: Sequence[Message]
    instructions: str = ""
    tools: Sequence[ToolSpec] = ()
    agent_type: str = ""
    session_id: str = ""
    run_id: str = ""
    step: int = 1
    tool_choice: ToolChoice = "auto"


class TextDelta(msgspec.Struct, frozen=True):
    """A piece of the reply's text."""

    text: str


class ThinkingDelta(msgspec.Struct, frozen=True):
    """A piece of the model's reasoning."""

    text: str


class ToolCallDelta(msgspec.Struct, frozen=True):
    """A piece of a tool call. `id` and `name` come with the first piece of an `index`; `arguments` is JSON text."""

    index: int
    id: str | None = None
    name: str | None = None
    arguments: str = ""


class TokenUsage(msgspec.Struct, frozen=True):
    """What the call cost, in tokens.

    `cached` (read from the provider's prompt cache) and `cache_written` (written to it) are parts of `prompt`;
    `reasoning` is a part of `completion`.
    """

    model: str
    prompt: int = 0
    completion: int = 0
    reasoning: int = 0
    cached: int = 0
    cache_written: int = 0


class Finished(msgspec.Struct, frozen=True):
    """Why the model stopped: `stop`, `tool_calls`, `length`, `content_filter`, else the provider's own word."""

    reason: str


class NativeContent(msgspec.Struct, frozen=True):
    """The whole reply as the provider sent it, to be stored and sent back. At most once, after the deltas.

    Leave it out if the deltas say everything.
    """

    native: Native


class StartOver(msgspec.Struct, frozen=True):
    """Discard every event so far: the reply starts again, for example because another model gives it."""

    reason: str = ""


ModelEvent = TextDelta | ThinkingDelta | ToolCallDelta | TokenUsage | Finished | NativeContent | StartOver

ToolChoice = str
"""`auto`, `required`, `none`, or the name of the tool that the model must call."""


class LLM(Protocol):
    """A model. Implement `stream` as an async generator."""

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Yield the model's reply. Raises `ModelError`. Closing the iterator early stops the call."""
        ...
