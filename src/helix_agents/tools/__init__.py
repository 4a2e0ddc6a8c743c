"""Tools: Python functions that a model may call, and the context that such a function may ask for."""

from ..content import Audio, File, Image
from .context import ToolContext, ToolOutlet, ensure_amount
from .deferred import DeferredCall
from .effects import AfterRestore, Check, Done, EffectKind, NotDone, OutcomeUnknown, Undo, Verdict
from .memory_tools import memory_tools
from .tool import (
    AnswerNotJson,
    ApprovalRule,
    Condition,
    Execution,
    ModelRetry,
    Tool,
    tool,
)

__all__ = [
    "Verdict",
    "Undo",
    "NotDone",
    "OutcomeUnknown",
    "EffectKind",
    "Done",
    "Check",
    "AfterRestore",
    "AnswerNotJson",
    "ApprovalRule",
    "Audio",
    "Condition",
    "DeferredCall",
    "Execution",
    "File",
    "Image",
    "ModelRetry",
    "Tool",
    "ToolContext",
    "ToolOutlet",
    "ensure_amount",
    "memory_tools",
    "tool",
]
