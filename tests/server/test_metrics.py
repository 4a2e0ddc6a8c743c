"""GET /metrics: for admins, in the form that collectors read."""

from __future__ import annotations

import httpx

from helix_agents import AgentExecutor, ScriptedLLM
from helix_agents.backends.inmemory.state_store import InMemoryStateStore
from helix_agents.backends.registry import Stores
from helix_agents.server import create_app
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


class Probed(InMemoryStateStore):
    """A store that counts the small reads."""

    reads = 0

    async def session_exists(self, session_id: str) -> bool:
        self.reads += 1
        return await super().session_exists(session_id)


async def test_the_latency_is_measured_by_one_read(stores: Stores) -> None:
    store = Probed()
    app = create_app(AgentExecutor(store, stores.streams, ScriptedLLM([])), allow_unauthenticated=True)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://localhost") as client:
        found = figures((await client.get("/metrics")).text)
    assert found["helix_store_latency_seconds"] > 0
    assert store.reads == 1
