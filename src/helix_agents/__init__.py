"""Durable state and resumable streams for LLM agents.

    async with open_stores("sqlite:helix.db") as stores:
        await stores.state.create_session("s1", agent_type="researcher", custom_state={"notes": []})

`open_stores` opens a `StateStore`, a `StreamManager`, a `UsageStore`, a `MemoryStore` and a `BlobStore`. `StateTracker`
records what a tool changes, so that parallel tools never lose each other's writes.

The names in `__all__` are what most programs need. Everything else lives in a module named after its subject:
`helix_agents.errors`, `.types`, `.content`, `.llm`, `.tools`, `.executor`, `.streams`, `.mcp`, `.server`, `.telemetry`.
The stores of each backend are in `helix_agents.sqlite`, `.postgres`, `.redis`, `.inmemory` and `.cloudflare`.
"""

from __future__ import annotations

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from .agent import Agent
from .backends.registry import Stores, open_stores
from .content import File, Image
from .errors import (
    AlreadyRunning,
    DraftClosed,
    HelixError,
    InvalidArgument,
    NotResumable,
    NotSerializable,
    PatchError,
    RunLost,
    SchemaTooNew,
    SessionExists,
    SessionNotFound,
    StoreUnavailable,
    StreamCursorAhead,
    StreamFailed,
    StreamNotActive,
    StreamTruncated,
    VersionConflict,
)
from .executor import AgentExecutor, AgentResult, RunHandle
from .limits import UsageLimits
from .llm.fallback import FallbackLLM
from .llm.named import open_model
from .llm.scripted import ScriptedLLM
from .operations.cleanup import expired_session_cleanup
from .state import StateTracker, StepWrites, apply_patch, apply_step_writes, merge_step_writes, step_writes_to_rfc6902
from .stores.blobs.contract import BlobStore
from .stores.memory.contract import MemoryStore
from .stores.state.contract import StateStore
from .stores.usage.contract import UsageStore
from .streams.contract import StreamManager
from .tools import ModelRetry, ToolContext, tool
from .types import (
    Checkpoint,
    CheckpointMeta,
    Page,
    PendingClientToolCall,
    RunRecord,
    SessionState,
    SubSessionRef,
    SuspendedChildWait,
)

if _TYPE_CHECKING:
    from .llm.anthropic import AnthropicLLM
    from .llm.gemini import GeminiLLM
    from .llm.openai import OpenAILLM
    from .llm.responses import OpenAIResponsesLLM
    from .server import create_app

__version__ = "0.1.0"

__all__ = [
    "Agent",
    "AgentExecutor",
    "AgentResult",
    "AlreadyRunning",
    "AnthropicLLM",
    "BlobStore",
    "Checkpoint",
    "CheckpointMeta",
    "DraftClosed",
    "FallbackLLM",
    "File",
    "GeminiLLM",
    "HelixError",
    "Image",
    "InvalidArgument",
    "MemoryStore",
    "ModelRetry",
    "NotResumable",
    "NotSerializable",
    "OpenAILLM",
    "OpenAIResponsesLLM",
    "Page",
    "PatchError",
    "PendingClientToolCall",
    "RunHandle",
    "RunLost",
    "RunRecord",
    "SchemaTooNew",
    "ScriptedLLM",
    "SessionExists",
    "SessionNotFound",
    "SessionState",
    "StateStore",
    "StateTracker",
    "StepWrites",
    "StoreUnavailable",
    "Stores",
    "StreamCursorAhead",
    "StreamFailed",
    "StreamManager",
    "StreamNotActive",
    "StreamTruncated",
    "SubSessionRef",
    "SuspendedChildWait",
    "ToolContext",
    "UsageLimits",
    "UsageStore",
    "VersionConflict",
    "apply_patch",
    "apply_step_writes",
    "create_app",
    "expired_session_cleanup",
    "merge_step_writes",
    "open_model",
    "open_stores",
    "step_writes_to_rfc6902",
    "tool",
]


def __getattr__(name: str) -> _Any:
    """Load a name that needs an extra; without the extra, the ImportError says what to install."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(_import_module(".server" if name == "create_app" else ".llm", __name__), name)


def __dir__() -> list[str]:
    return __all__
