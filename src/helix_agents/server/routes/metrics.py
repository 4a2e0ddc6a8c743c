"""`GET /metrics`: the counters of this process and the state of the stores, as OpenMetrics text.

Figures of runs are those of this process, since it started: the collector adds up processes. Figures of the stores are
the same from every process.
"""

from __future__ import annotations

from typing import TypeAlias

from starlette.responses import Response

from ...executor.workers import list_workers, recovered_today
from ...lifecycle import SUSPENDED
from ..context import ServerContext
from ..endpoints import Call, Endpoint
from ..problems import Problem
from .system import probe

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
MAX_QUEUE = 200
"""How many waiting runs are counted; a longer queue is shown as this many."""

Series: TypeAlias = dict[tuple[tuple[str, str], ...], float]
Gauges: TypeAlias = dict[str, tuple[str, Series]]


async def metrics(call: Call) -> Response:
    """Return the figures. Admins only."""
    if not call.user.is_admin:
        raise Problem(403, "forbidden", "Only an admin may see figures about all sessions.")
    text = call.context.metrics.render(await _store_gauges(call.context))
    return Response(text, headers={"content-type": CONTENT_TYPE})


async def _store_gauges(context: ServerContext) -> Gauges:
    """Return what is read from the stores now."""
    now = context.executor.services.clock()
    latency_ms = await probe(context)
    by_status = await context.store.count_by_status()
    waiting = sum(count for status, count in by_status.items() if status in SUSPENDED)
    queue = len(await context.store.list_claimable(now, limit=MAX_QUEUE))
    workers = await list_workers(context.streams, now)
    sessions: Series = {(("status", status),): float(count) for status, count in by_status.items()}
    return {
        "helix_sessions": ("Sessions by status.", sessions),
        "helix_sessions_waiting": ("Sessions that wait for a person or a client.", {(): waiting}),
        "helix_queue_depth": (f"Runs that wait for a worker, at most {MAX_QUEUE}.", {(): queue}),
        "helix_workers": ("Workers with a recent heartbeat.", {(): len(workers)}),
        "helix_runs_recovered_today": (
            "Runs continued after their process died, since midnight UTC.",
            {(): await recovered_today(context.streams, now)},
        ),
        "helix_store_latency_seconds": ("How long the store took for one small read.", {(): latency_ms / 1000}),
    }


ENDPOINTS = (Endpoint("GET", "/metrics", metrics, "Figures as OpenMetrics text", returns=str, tag="server"),)
