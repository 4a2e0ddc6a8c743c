"""GET /metrics: for admins, in the form that collectors read."""

from __future__ import annotations

import httpx

from tests.server.running import Running, execute, result
from tests.server.test_problems import assert_problem
from tests.telemetry.test_metrics import figures


async def test_an_admin_reads_figures_of_runs_and_stores(
    alice: httpx.AsyncClient, admin: httpx.AsyncClient, sid: str
) -> None:
    before = figures((await admin.get("/metrics")).text)
    await execute(alice, "search ants", sid)
    await result(alice, sid)
    response = await admin.get("/metrics")
    assert response.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    found = figures(response.text)
    name = 'helix_runs_total{agent="manager",status="completed"}'
    assert found[name] == before.get(name, 0) + 1
    assert found['helix_sessions{status="completed"}'] >= 1
    assert {"helix_queue_depth", "helix_workers", "helix_sessions_waiting", "helix_store_latency_seconds"} <= set(found)


async def test_users_and_strangers_read_none(alice: httpx.AsyncClient, server: Running) -> None:
    assert_problem(await alice.get("/metrics"), 403, "forbidden")
    async with server.client(None) as stranger:
        assert_problem(await stranger.get("/metrics"), 401, "not_authenticated")
