"""Durable state and resumable streams for LLM agents.

    async with open_stores("sqlite:helix.db") as stores:
        await stores.state.create_session("s1", agent_type="researcher", custom_state={"notes": []})

`open_stores` gives a `StateStore`, a `StreamManager`, a `UsageStore` and a `MemoryStore`. `StateTracker` records what a
tool changes, so that parallel tools never lose each other's writes.

`__all__` is what most programs need. Every other public name can be imported from here, too, and is loaded when asked
for; the stores of a backend also have rooms of their own: `helix_agents.sqlite`, `.postgres`, `.redis`,
`.inmemory`, `.cloudflare`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .agent import Agent
from .backends.registry import Stores, open_stores
from .errors import (
    AlreadyRunning,
    DraftClosed,
    HelixError,
    NotSerializable,
    PatchError,
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
from .llm.scripted import ScriptedLLM
from .operations.cleanup import expired_session_cleanup
from .state import StateTracker, StepWrites, apply_patch, apply_step_writes, merge_step_writes, step_writes_to_rfc6902
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

if TYPE_CHECKING:
    from .backends.cloudflare.d1 import D1MemoryStore as D1MemoryStore
    from .backends.cloudflare.d1 import D1StateStore as D1StateStore
    from .backends.cloudflare.d1 import D1UsageStore as D1UsageStore
    from .backends.cloudflare.d1 import run_migration as run_migration
    from .backends.cloudflare.streams import DurableObjectStreamManager as DurableObjectStreamManager
    from .backends.inmemory.memory_store import InMemoryMemoryStore as InMemoryMemoryStore
    from .backends.inmemory.state_store import InMemoryStateStore as InMemoryStateStore
    from .backends.inmemory.stream_manager import InMemoryStreamManager as InMemoryStreamManager
    from .backends.inmemory.usage_store import InMemoryUsageStore as InMemoryUsageStore
    from .backends.postgres.memory_store import PostgresMemoryStore as PostgresMemoryStore
    from .backends.postgres.state_store import PostgresStateStore as PostgresStateStore
    from .backends.postgres.stream_manager import PostgresStreamManager as PostgresStreamManager
    from .backends.postgres.usage_store import PostgresUsageStore as PostgresUsageStore
    from .backends.redis.memory_store import RedisMemoryStore as RedisMemoryStore
    from .backends.redis.sessions.store import RedisStateStore as RedisStateStore
    from .backends.redis.stream_manager import RedisStreamManager as RedisStreamManager
    from .backends.redis.usage_store import RedisUsageStore as RedisUsageStore
    from .backends.sqlite.memory_store import SqliteMemoryStore as SqliteMemoryStore
    from .backends.sqlite.state_store import SqliteStateStore as SqliteStateStore
    from .backends.sqlite.stream_manager import SqliteStreamManager as SqliteStreamManager
    from .backends.sqlite.usage_store import SqliteUsageStore as SqliteUsageStore
    from .content import Audio as Audio
    from .content import File as File
    from .content import Image as Image
    from .errors import CheckpointNotFound as CheckpointNotFound
    from .errors import EpochConflict as EpochConflict
    from .errors import IdempotencyConflict as IdempotencyConflict
    from .errors import IllegalTransition as IllegalTransition
    from .errors import InvalidArgument as InvalidArgument
    from .errors import LeaseConflict as LeaseConflict
    from .errors import ModelError as ModelError
    from .errors import NotMigrated as NotMigrated
    from .errors import NotResumable as NotResumable
    from .errors import RunLost as RunLost
    from .errors import RunNotFound as RunNotFound
    from .errors import StaleTicket as StaleTicket
    from .errors import StoreCorrupt as StoreCorrupt
    from .errors import StoreError as StoreError
    from .errors import StreamError as StreamError
    from .errors import StreamFenced as StreamFenced
    from .errors import ToolsUnavailable as ToolsUnavailable
    from .executor import CanResume as CanResume
    from .executor.run.hooks import Hooks as Hooks
    from .executor.run.meters import OpenTelemetryMeters as OpenTelemetryMeters
    from .executor.run.model_call import RetryPolicy as RetryPolicy
    from .executor.run.tracing import OpenTelemetryHooks as OpenTelemetryHooks
    from .limits import Price as Price
    from .llm.anthropic import AnthropicLLM as AnthropicLLM
    from .llm.gemini import GeminiLLM as GeminiLLM
    from .llm.named import open_model as open_model
    from .llm.openai import OpenAILLM as OpenAILLM
    from .llm.responses import OpenAIResponsesLLM as OpenAIResponsesLLM
    from .operations.cleanup import WorkspaceProvider as WorkspaceProvider
    from .server import create_app as create_app
    from .state import diff as diff
    from .stores.memory.contract import Memory as Memory
    from .stores.usage.contract import CustomEntry as CustomEntry
    from .stores.usage.contract import SubagentEntry as SubagentEntry
    from .stores.usage.contract import TokensEntry as TokensEntry
    from .stores.usage.contract import ToolEntry as ToolEntry
    from .stores.usage.contract import UsageRollup as UsageRollup
    from .streams.contract import StoredChunk as StoredChunk
    from .streams.contract import StreamInfo as StreamInfo
    from .streams.contract import StreamOutcome as StreamOutcome
    from .streams.contract import StreamReader as StreamReader
    from .streams.contract import StreamWriter as StreamWriter
    from .tools.memory_tools import memory_tools as memory_tools
    from .types import CleanupSummary as CleanupSummary
    from .types import Committed as Committed
    from .types import InterruptFlag as InterruptFlag
    from .types import StagedChanges as StagedChanges
    from .types import StatusConflict as StatusConflict
    from .types import StatusSwapped as StatusSwapped
    from .types import TracingContext as TracingContext

__version__ = "0.1.0"

# Loaded when first asked for. Some need an extra, or `sqlite3`, which some Workers lack; the error then says what to
# install. They are not in `__all__`, which would ask for them all.
_ON_DEMAND = {
    "AnthropicLLM": "llm.anthropic",
    "Audio": "content",
    "CanResume": "executor",
    "CheckpointNotFound": "errors",
    "CleanupSummary": "types",
    "Committed": "types",
    "CustomEntry": "stores.usage.contract",
    "D1MemoryStore": "backends.cloudflare.d1",
    "D1StateStore": "backends.cloudflare.d1",
    "D1UsageStore": "backends.cloudflare.d1",
    "DurableObjectStreamManager": "backends.cloudflare.streams",
    "File": "content",
    "GeminiLLM": "llm.gemini",
    "Hooks": "executor.run.hooks",
    "IdempotencyConflict": "errors",
    "IllegalTransition": "errors",
    "LeaseConflict": "errors",
    "EpochConflict": "errors",
    "Image": "content",
    "InMemoryMemoryStore": "backends.inmemory.memory_store",
    "InMemoryStateStore": "backends.inmemory.state_store",
    "InMemoryStreamManager": "backends.inmemory.stream_manager",
    "InMemoryUsageStore": "backends.inmemory.usage_store",
    "InterruptFlag": "types",
    "InvalidArgument": "errors",
    "Memory": "stores.memory.contract",
    "ModelError": "errors",
    "NotMigrated": "errors",
    "NotResumable": "errors",
    "OpenAILLM": "llm.openai",
    "OpenAIResponsesLLM": "llm.responses",
    "OpenTelemetryHooks": "executor.run.tracing",
    "OpenTelemetryMeters": "executor.run.meters",
    "PostgresMemoryStore": "backends.postgres.memory_store",
    "PostgresStateStore": "backends.postgres.state_store",
    "PostgresStreamManager": "backends.postgres.stream_manager",
    "PostgresUsageStore": "backends.postgres.usage_store",
    "Price": "limits",
    "RedisMemoryStore": "backends.redis.memory_store",
    "RedisStateStore": "backends.redis.sessions.store",
    "RedisStreamManager": "backends.redis.stream_manager",
    "RedisUsageStore": "backends.redis.usage_store",
    "RetryPolicy": "executor.run.model_call",
    "RunLost": "errors",
    "RunNotFound": "errors",
    "SqliteMemoryStore": "backends.sqlite.memory_store",
    "SqliteStateStore": "backends.sqlite.state_store",
    "SqliteStreamManager": "backends.sqlite.stream_manager",
    "SqliteUsageStore": "backends.sqlite.usage_store",
    "StagedChanges": "types",
    "StaleTicket": "errors",
    "StatusConflict": "types",
    "StatusSwapped": "types",
    "StoreCorrupt": "errors",
    "StoreError": "errors",
    "StoredChunk": "streams.contract",
    "StreamError": "errors",
    "StreamFenced": "errors",
    "StreamInfo": "streams.contract",
    "StreamOutcome": "streams.contract",
    "StreamReader": "streams.contract",
    "StreamWriter": "streams.contract",
    "SubagentEntry": "stores.usage.contract",
    "TokensEntry": "stores.usage.contract",
    "ToolEntry": "stores.usage.contract",
    "ToolsUnavailable": "errors",
    "TracingContext": "types",
    "UsageRollup": "stores.usage.contract",
    "WorkspaceProvider": "operations.cleanup",
    "create_app": "server",
    "diff": "state",
    "memory_tools": "tools.memory_tools",
    "open_model": "llm.named",
    "run_migration": "backends.cloudflare.d1",
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
    "Checkpoint",
    "CheckpointMeta",
    "DraftClosed",
    "FallbackLLM",
    "HelixError",
    "MemoryStore",
    "ModelRetry",
    "NotSerializable",
    "Page",
    "PatchError",
    "PendingClientToolCall",
    "RunHandle",
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
    "expired_session_cleanup",
    "merge_step_writes",
    "open_stores",
    "step_writes_to_rfc6902",
    "tool",
]
