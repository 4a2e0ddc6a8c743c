"""What the executor asks of a model: one method that answers a request with a stream of events.

An adapter turns the request into its provider's dialect and the provider's events into these six. It knows nothing
of sessions, stores or retries: it raises `ModelError` and says whether another try may help; the executor decides.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol

import msgspec

from ..messages import Message


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
    """A piece of the answer's text."""

    text: str


class ThinkingDelta(msgspec.Struct, frozen=True):
    """A piece of the model's reasoning."""

    text: str


class ToolCallDelta(msgspec.Struct, frozen=True):
    """A piece of a tool call: `id` and `name` come with the first piece of an `index`, arguments are JSON text."""

    index: int
    id: str | None = None
    name: str | None = None
    arguments: str = ""


class TokenUsage(msgspec.Struct, frozen=True):
    """What the call cost; `reasoning` and `cached` are parts of the other two."""

    model: str
    prompt: int = 0
    completion: int = 0
    reasoning: int = 0
    cached: int = 0


class Finished(msgspec.Struct, frozen=True):
    """Why the model stopped, in the provider's words: `stop`, `tool_calls`, `length`, `content_filter`, ..."""

    reason: str


class StartOver(msgspec.Struct, frozen=True):
    """Forget what came so far: the answer begins again, e.g. because another model gives it."""

    reason: str = ""


ModelEvent = TextDelta | ThinkingDelta | ToolCallDelta | TokenUsage | Finished | StartOver

ToolChoice = str
"""`auto`, `required`, `none`, or the name of the tool that the model has to call."""


class LLM(Protocol):
    """A model. Implement `stream` as an async generator."""

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Answer the request. Raises `ModelError`. Closing the iterator early stops the call."""
        ...
