"""Durable state and resumable streams for LLM agents.

    async with open_stores("sqlite:helix.db") as stores:
        await stores.state.create_session("s1", agent_type="researcher", custom_state={"notes": []})

`open_stores` gives a `StateStore`, a `StreamManager`, a `UsageStore` and a `MemoryStore`. `StateTracker` records what a
tool changes, so that parallel tools never lose each other's writes.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .agent import Agent
from .backends.inmemory.memory_store import InMemoryMemoryStore
from .backends.inmemory.state_store import InMemoryStateStore
from .backends.inmemory.stream_manager import InMemoryStreamManager
from .backends.inmemory.usage_store import InMemoryUsageStore
from .backends.registry import Stores, open_stores
from .cleanup import WorkspaceProvider, expired_session_cleanup
from .errors import (
    AlreadyRunning,
    CheckpointNotFound,
    DraftClosed,
    HelixError,
    IdempotencyConflict,
    IllegalTransition,
    InvalidArgument,
    ModelError,
    NotMigrated,
    NotResumable,
    NotSerializable,
    PatchError,
    RunLost,
    RunNotFound,
    SchemaTooNew,
    SessionExists,
    SessionNotFound,
    StoreCorrupt,
    StoreError,
    StoreUnavailable,
    StreamCursorAhead,
    StreamError,
    StreamFailed,
    StreamFenced,
    StreamNotActive,
    StreamTruncated,
    VersionConflict,
)
from .executor import AgentExecutor, AgentResult, CanResume, RunHandle
from .limits import UsageLimits
from .llm.fallback import FallbackLLM
from .llm.scripted import ScriptedLLM
from .memory_tools import memory_tools
from .state import (
    StateTracker,
    StepWrites,
    apply_patch,
    apply_step_writes,
    diff,
    merge_step_writes,
    step_writes_to_rfc6902,
)
from .stores.memory.contract import Memory, MemoryStore
from .stores.state.contract import StateStore
from .stores.usage.contract import CustomEntry, SubagentEntry, TokensEntry, ToolEntry, UsageRollup, UsageStore
from .streams.contract import StoredChunk, StreamInfo, StreamManager, StreamOutcome, StreamReader, StreamWriter
from .tools import ModelRetry, ToolContext, tool
from .types import (
    Checkpoint,
    CheckpointMeta,
    CleanupSummary,
    Committed,
    InterruptFlag,
    Page,
    PendingClientToolCall,
    RunRecord,
    SessionState,
    StagedChanges,
    StatusConflict,
    StatusSwapped,
    SubSessionRef,
    SuspendedChildWait,
    TracingContext,
)

if TYPE_CHECKING:
    from .backends.postgres.memory_store import PostgresMemoryStore as PostgresMemoryStore
    from .backends.postgres.state_store import PostgresStateStore as PostgresStateStore
    from .backends.postgres.stream_manager import PostgresStreamManager as PostgresStreamManager
    from .backends.postgres.usage_store import PostgresUsageStore as PostgresUsageStore
    from .backends.redis.memory_store import RedisMemoryStore as RedisMemoryStore
    from .backends.redis.state_store import RedisStateStore as RedisStateStore
    from .backends.redis.stream_manager import RedisStreamManager as RedisStreamManager
    from .backends.redis.usage_store import RedisUsageStore as RedisUsageStore
    from .backends.sqlite.memory_store import SqliteMemoryStore as SqliteMemoryStore
    from .backends.sqlite.state_store import SqliteStateStore as SqliteStateStore
    from .backends.sqlite.stream_manager import SqliteStreamManager as SqliteStreamManager
    from .backends.sqlite.usage_store import SqliteUsageStore as SqliteUsageStore
    from .llm.openai import OpenAILLM as OpenAILLM
    from .server import create_app as create_app

__version__ = "0.1.0"

# These need an extra, or `sqlite3`, which some Workers lack: they are imported when first asked for, and the error says
# what to install. They are not in `__all__`, which would ask for them all.
_ON_DEMAND = {
    "OpenAILLM": "llm.openai",
    "PostgresMemoryStore": "backends.postgres.memory_store",
    "PostgresStateStore": "backends.postgres.state_store",
    "PostgresStreamManager": "backends.postgres.stream_manager",
    "PostgresUsageStore": "backends.postgres.usage_store",
    "RedisMemoryStore": "backends.redis.memory_store",
    "RedisStateStore": "backends.redis.state_store",
    "RedisStreamManager": "backends.redis.stream_manager",
    "RedisUsageStore": "backends.redis.usage_store",
    "SqliteMemoryStore": "backends.sqlite.memory_store",
    "SqliteStateStore": "backends.sqlite.state_store",
    "SqliteStreamManager": "backends.sqlite.stream_manager",
    "SqliteUsageStore": "backends.sqlite.usage_store",
    "create_app": "server",
}


def __getattr__(name: str) -> Any:
    if name not in _ON_DEMAND:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_ON_DEMAND[name]}", __name__), name)


__all__ = [
    "Agent",
    "AgentExecutor",
    "AgentResult",
    "AlreadyRunning",
    "CanResume",
    "Checkpoint",
    "CheckpointMeta",
    "CheckpointNotFound",
    "CleanupSummary",
    "Committed",
    "CustomEntry",
    "DraftClosed",
    "FallbackLLM",
    "HelixError",
    "IdempotencyConflict",
    "IllegalTransition",
    "InMemoryMemoryStore",
    "InMemoryStateStore",
    "InMemoryStreamManager",
    "InMemoryUsageStore",
    "InterruptFlag",
    "InvalidArgument",
    "Memory",
    "MemoryStore",
    "ModelError",
    "ModelRetry",
    "NotMigrated",
    "NotResumable",
    "NotSerializable",
    "Page",
    "PatchError",
    "PendingClientToolCall",
    "RunHandle",
    "RunLost",
    "RunNotFound",
    "RunRecord",
    "SchemaTooNew",
    "ScriptedLLM",
    "SessionExists",
    "SessionNotFound",
    "SessionState",
    "StagedChanges",
    "StateStore",
    "StateTracker",
    "StatusConflict",
    "StatusSwapped",
    "StepWrites",
    "StoreCorrupt",
    "StoreError",
    "StoreUnavailable",
    "StoredChunk",
    "Stores",
    "StreamCursorAhead",
    "StreamError",
    "StreamFailed",
    "StreamFenced",
    "StreamInfo",
    "StreamManager",
    "StreamNotActive",
    "StreamOutcome",
    "StreamReader",
    "StreamTruncated",
    "StreamWriter",
    "SubSessionRef",
    "SubagentEntry",
    "SuspendedChildWait",
    "TokensEntry",
    "ToolContext",
    "ToolEntry",
    "TracingContext",
    "UsageLimits",
    "UsageRollup",
    "UsageStore",
    "VersionConflict",
    "WorkspaceProvider",
    "apply_patch",
    "apply_step_writes",
    "diff",
    "expired_session_cleanup",
    "memory_tools",
    "merge_step_writes",
    "open_stores",
    "step_writes_to_rfc6902",
    "tool",
]
