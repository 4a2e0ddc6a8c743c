"""Figures that are read from the stores, the same in every process: queue depth, recoveries, sessions by status.

`GET /metrics` reads them when it is asked; `store_meters.py` reports them to OpenTelemetry.
"""

from __future__ import annotations

import time
from typing import TypeAlias

from ..executor.workers import list_workers, recovered_today
from ..lifecycle import SUSPENDED
from ..stores.state.contract import StateStore
from ..streams.contract import StreamManager

MAX_QUEUE = 200
"""How many waiting runs are counted; a longer queue is shown as this many."""
PROBE = "helix-health"
"""The id that a small read asks for."""

Series: TypeAlias = dict[tuple[tuple[str, str], ...], float]
Gauges: TypeAlias = dict[str, Series]

STORE_METRICS = {
    "helix_sessions": "Sessions by status.",
    "helix_sessions_waiting": "Sessions that wait for a person or a client.",
    "helix_queue_depth": f"Runs that wait for a worker, at most {MAX_QUEUE}.",
    "helix_workers": "Workers with a recent heartbeat.",
    "helix_runs_recovered_today": "Runs continued after their process died, since midnight UTC.",
    "helix_store_latency_seconds": "How long the store took for one small read.",
}


async def measure_latency(store: StateStore) -> float:
    """Make a small request to the store and return how long it took, in seconds."""
    started = time.perf_counter()
    await store.session_exists(PROBE)
    return time.perf_counter() - started


async def read_gauges(store: StateStore, streams: StreamManager, now: int, *, latency_seconds: float) -> Gauges:
    """Return what the stores say now: labels and value by name."""
    by_status = await store.count_by_status()
    return {
        "helix_sessions": {(("status", status),): float(count) for status, count in by_status.items()},
        "helix_sessions_waiting": {(): sum(count for status, count in by_status.items() if status in SUSPENDED)},
        "helix_queue_depth": {(): len(await store.list_claimable(now, limit=MAX_QUEUE))},
        "helix_workers": {(): len(await list_workers(streams, now))},
        "helix_runs_recovered_today": {(): await recovered_today(streams, now)},
        "helix_store_latency_seconds": {(): latency_seconds},
    }
