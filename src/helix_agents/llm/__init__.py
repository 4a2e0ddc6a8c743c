"""Models: one small protocol, and the adapters that speak it."""

from .contract import (
    LLM,
    Finished,
    ModelEvent,
    ModelRequest,
    TextDelta,
    ThinkingDelta,
    TokenUsage,
    ToolCallDelta,
    ToolSpec,
)
from .scripted import Call, Reply, ScriptedLLM

__all__ = [
    "LLM",
    "Finished",
    "ModelEvent",
    "ModelRequest",
    "TextDelta",
    "ThinkingDelta",
    "TokenUsage",
    "ToolCallDelta",
    "ToolSpec",
    "Call",
    "Reply",
    "ScriptedLLM",
]
