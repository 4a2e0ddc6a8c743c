"""Models: one small protocol, and the adapters that implement it.

The adapters of providers need an extra each and are loaded when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .contract import (
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
    ToolSpec,
)
from .fallback import FallbackLLM
from .named import open_model
from .scripted import Call, Line, Reply, ScriptedLLM

if TYPE_CHECKING:
    from .anthropic import AnthropicLLM as AnthropicLLM
    from .gemini import GeminiLLM as GeminiLLM
    from .openai import OpenAILLM as OpenAILLM
    from .responses import OpenAIResponsesLLM as OpenAIResponsesLLM

_ON_DEMAND = {
    "AnthropicLLM": "anthropic",
    "GeminiLLM": "gemini",
    "OpenAILLM": "openai",
    "OpenAIResponsesLLM": "responses",
}


def __getattr__(name: str) -> Any:
    if name not in _ON_DEMAND:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_ON_DEMAND[name]}", __name__), name)


__all__ = [
    "LLM",
    "Call",
    "FallbackLLM",
    "Finished",
    "Line",
    "ModelEvent",
    "ModelRequest",
    "NativeContent",
    "Reply",
    "ScriptedLLM",
    "StartOver",
    "TextDelta",
    "ThinkingDelta",
    "TokenUsage",
    "ToolCallDelta",
    "ToolSpec",
    "open_model",
]
