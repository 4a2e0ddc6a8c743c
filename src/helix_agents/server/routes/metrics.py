"""`GET /metrics`: the counters of this process and the state of the stores, as OpenMetrics text.

Figures of runs are those of this process, since it started: the collector adds up processes. Figures of the stores are
the same from every process.
"""

from __future__ import annotations

from starlette.responses import Response

from ...telemetry.store_figures import STORE_METRICS, Series, read_gauges
from ..context import ServerContext
from ..endpoints import Call, Endpoint
from ..problems import Problem
from .system import probe

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"


async def metrics(call: Call) -> Response:
    """Return the figures. Admins only."""
    if not call.user.is_admin:
        raise Problem(403, "forbidden", "Only an admin may see figures about all sessions.")
    text = call.context.metrics.render(await _store_gauges(call.context))
    return Response(text, headers={"content-type": CONTENT_TYPE})


async def _store_gauges(context: ServerContext) -> dict[str, tuple[str, Series]]:
    """Return what is read from the stores now; if they do not respond, the probe says so first."""
    latency_ms = await probe(context)
    now = context.executor.services.clock()
    gauges = await read_gauges(context.store, context.streams, now, latency_seconds=latency_ms / 1000)
    return {name: (STORE_METRICS[name], series) for name, series in gauges.items()}


ENDPOINTS = (Endpoint("GET", "/metrics", metrics, "Figures as OpenMetrics text", returns=str, tag="server"),)
