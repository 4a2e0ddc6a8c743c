"""Tools: Python functions that a model may call, and the context that such a function may ask for."""

from .tool import (
    AnswerNotJson,
    ApprovalRule,
    Condition,
    Execution,
    ModelRetry,
    Tool,
    ToolContext,
    ToolOutlet,
    ensure_amount,
    tool,
)

__all__ = [
    "AnswerNotJson",
    "ApprovalRule",
    "Condition",
    "Execution",
    "ModelRetry",
    "Tool",
    "ToolContext",
    "ToolOutlet",
    "ensure_amount",
    "tool",
]
