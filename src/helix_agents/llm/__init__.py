"""Models: one small protocol, and the adapters that speak it."""

from .contract import (
    LLM,
    Finished,
    ModelEvent,
    ModelRequest,
    StartOver,
    TextDelta,
    ThinkingDelta,
    TokenUsage,
    ToolCallDelta,
    ToolSpec,
)
from .fallback import FallbackLLM
from .scripted import Call, Line, Reply, ScriptedLLM

__all__ = [
    "LLM",
    "FallbackLLM",
    "Finished",
    "StartOver",
    "ModelEvent",
    "ModelRequest",
    "TextDelta",
    "ThinkingDelta",
    "TokenUsage",
    "ToolCallDelta",
    "ToolSpec",
    "Call",
    "Line",
    "Reply",
    "ScriptedLLM",
]
