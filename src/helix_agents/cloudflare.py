"""The stores on Cloudflare, D1 and Durable Objects, inside a Worker and outside of it; and the server that runs inside.

Outside a Worker it needs the extra `cloudflare`; inside, only this library. See docs/cloudflare.md.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .backends.cloudflare.bridge import Bridge, BridgeD1, BridgeObject
    from .backends.cloudflare.d1 import D1BlobStore, D1MemoryStore, D1StateStore, D1UsageStore, run_migration
    from .backends.cloudflare.durable_object import (
        DOBlobStore,
        DOMemoryStore,
        DOStateStore,
        DOStreamManager,
        DOUsageStore,
    )
    from .backends.cloudflare.rest import D1Rest
    from .backends.cloudflare.stream_server import StreamServer
    from .backends.cloudflare.streams import DurableObjectStreamManager
    from .runtimes.cloudflare import AgentServer, AgentWorkflow, CloudflareAgentExecutor, route, serve

# Imported on first use: what works inside a Worker cannot be imported outside, and vice versa.
_HOMES = {
    "AgentServer": "runtimes.cloudflare.agent_server",
    "AgentWorkflow": "runtimes.cloudflare.agent_workflow",
    "Bridge": "backends.cloudflare.bridge",
    "BridgeD1": "backends.cloudflare.bridge",
    "BridgeObject": "backends.cloudflare.bridge",
    "CloudflareAgentExecutor": "runtimes.cloudflare.workflows",
    "D1BlobStore": "backends.cloudflare.d1",
    "D1MemoryStore": "backends.cloudflare.d1",
    "D1Rest": "backends.cloudflare.rest",
    "D1StateStore": "backends.cloudflare.d1",
    "D1UsageStore": "backends.cloudflare.d1",
    "DOBlobStore": "backends.cloudflare.durable_object",
    "DOMemoryStore": "backends.cloudflare.durable_object",
    "DOStateStore": "backends.cloudflare.durable_object",
    "DOStreamManager": "backends.cloudflare.durable_object",
    "DOUsageStore": "backends.cloudflare.durable_object",
    "DurableObjectStreamManager": "backends.cloudflare.streams",
    "StreamServer": "backends.cloudflare.stream_server",
    "route": "runtimes.cloudflare.routing",
    "run_migration": "backends.cloudflare.d1",
    "serve": "runtimes.cloudflare.serving",
}

__all__ = [
    "AgentServer",
    "AgentWorkflow",
    "Bridge",
    "BridgeD1",
    "BridgeObject",
    "CloudflareAgentExecutor",
    "D1BlobStore",
    "D1MemoryStore",
    "D1Rest",
    "D1StateStore",
    "D1UsageStore",
    "DOBlobStore",
    "DOMemoryStore",
    "DOStateStore",
    "DOStreamManager",
    "DOUsageStore",
    "DurableObjectStreamManager",
    "StreamServer",
    "route",
    "run_migration",
    "serve",
]


_WORKERS_RUNTIME = frozenset({"js", "pyodide", "workers"})


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f".{_HOMES[name]}", __package__), name)
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] not in _WORKERS_RUNTIME:
            raise
        raise ImportError(
            f"{name} works only inside a Cloudflare Worker, because it needs the Workers runtime (no module "
            f"{missing.name!r} here). Outside a Worker use open_stores('d1://...') or open_stores('do://...'): "
            "see docs/cloudflare.md, Imports.",
            name=missing.name,
        ) from missing
