"""Figures about runs: what is counted, and the text that a collector reads."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from helix_agents import Agent, AgentExecutor, ScriptedLLM, open_stores, tool
from helix_agents.backends.inmemory.state_store import InMemoryStateStore
from helix_agents.backends.registry import Stores
from helix_agents.clock import system_clock
from helix_agents.executor.workers.stats import note_recovered
from helix_agents.llm import Call, Reply, TokenUsage
from helix_agents.sqlite import SqliteStateStore
from helix_agents.telemetry import MetricsHooks, OpenMetrics, OpenTelemetryMeters, StoreMeters
from helix_agents.telemetry.metrics import MAX_SERIES
from helix_agents.types import SessionStatus

LINE = re.compile(r'^[a-z_]+(\{([a-z_]+="(?:[^"\\\n]|\\.)*",?)+\})? -?[0-9.e+-]+$')


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def fail() -> str:
    """Fail."""
    raise RuntimeError("broken")


agent = Agent("calculator", tools=[add, fail])


@pytest.fixture
async def stores() -> AsyncIterator[Stores]:
    async with open_stores("memory:") as opened:
        yield opened


def script() -> ScriptedLLM:
    usage = TokenUsage("m", prompt=7, completion=2)
    return ScriptedLLM(
        [Reply(calls=[Call("add", {"a": 1, "b": 1}), Call("fail")], usage=usage), Reply("2", usage=usage)]
    )


def figures(text: str) -> dict[str, float]:
    """Parse OpenMetrics text strictly."""
    lines = text.splitlines()
    assert lines[-1] == "# EOF"
    assert text.endswith("\n")
    values = [line for line in lines if not line.startswith("#")]
    assert [line for line in values if not LINE.match(line)] == []
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in values)}


async def test_a_run_is_counted(stores: Stores) -> None:
    metrics = OpenMetrics()
    executor = AgentExecutor(stores, script(), hooks=[MetricsHooks(metrics)])
    assert (await executor.run(agent, "1 + 1?")).status == "completed"
    found = figures(metrics.render({}))
    assert found['helix_runs_total{agent="calculator",status="completed"}'] == 1
    assert found['helix_runs_active{agent="calculator"}'] == 0
    assert found['helix_steps_total{agent="calculator"}'] == 2
    assert found['helix_run_duration_seconds_count{agent="calculator"}'] == 1
    assert found['helix_run_duration_seconds_bucket{agent="calculator",le="+Inf"}'] == 1
    counted = {name: value for name, value in found.items() if "helix_tool_duration_seconds_count" in name}
    assert set(counted.values()) == {1}
    assert [outcome in "".join(counted) for outcome in ('outcome="ok",tool="add"', 'outcome="error",tool="fail"')] == [
        True,
        True,
    ]
    assert sum(value for name, value in found.items() if "helix_model_duration_seconds_count" in name) == 2
    tokens = {name: value for name, value in found.items() if name.startswith("helix_tokens_total")}
    assert sorted(tokens.values()) == [4, 14]


async def test_buckets_add_up_and_labels_are_escaped() -> None:
    metrics = OpenMetrics()
    for value in (0.001, 0.2, 0.2, 1000):
        metrics.observe("helix_run_duration_seconds", value, {"agent": 'a"\\\n'})
    found = figures(metrics.render({"helix_sessions": ("Sessions.", {(("status", "active"),): 3.0})}))
    buckets = [value for name, value in found.items() if "_bucket" in name]
    assert buckets == sorted(buckets)
    assert (buckets[0], buckets[-2], buckets[-1]) == (1, 3, 4)
    assert found['helix_sessions{status="active"}'] == 3


async def test_labels_without_end_do_not_fill_the_memory() -> None:
    metrics = OpenMetrics()
    for number in range(MAX_SERIES + 50):
        metrics.add("helix_runs", 1, {"agent": str(number)})
    found = figures(metrics.render({}))
    assert len(found) == MAX_SERIES + 1
    assert found["helix_series_dropped_total"] == 50


async def test_the_same_figures_reach_opentelemetry(stores: Stores) -> None:
    reader = InMemoryMetricReader()
    meter = MeterProvider([reader]).get_meter("test")
    executor = AgentExecutor(stores, script(), hooks=[OpenTelemetryMeters(meter)])
    await executor.run(agent, "1 + 1?")
    data = reader.get_metrics_data()
    assert data is not None
    found = {metric.name: metric for metric in data.resource_metrics[0].scope_metrics[0].metrics}
    (runs,) = found["helix.runs"].data.data_points
    assert dict(runs.attributes or {}) == {"gen_ai.agent.name": "calculator", "helix.status": "completed"}
    assert runs.value == 1  # type: ignore[union-attr]
    assert {
        (point.attributes or {})["gen_ai.token.type"] for point in found["gen_ai.client.token.usage"].data.data_points
    } == {
        "input",
        "output",
    }
    assert found["gen_ai.client.operation.duration"].unit == "s"


def reported(reader: InMemoryMetricReader) -> dict[str, dict[str, float]]:
    """Return the values of all metrics, by their attributes."""
    data = reader.get_metrics_data()
    scopes = data.resource_metrics[0].scope_metrics if data is not None else []
    return {
        metric.name: {str(dict(point.attributes or {})): point.value for point in metric.data.data_points}  # type: ignore[union-attr]
        for scope in scopes
        for metric in scope.metrics
    }


async def test_figures_of_the_stores_go_to_opentelemetry(stores: Stores) -> None:
    reader = InMemoryMetricReader()
    meter = MeterProvider([reader], shutdown_on_exit=False).get_meter("test")
    executor = AgentExecutor(stores, script())
    await executor.submit(agent, "1 + 1?", session_id="waiting")
    await note_recovered(stores.streams, "waiting", system_clock())
    async with StoreMeters(stores.state, stores.streams, meter=meter):
        found = reported(reader)
        assert found["helix.queue.depth"] == {"{}": 1}
        assert found["helix.runs.recovered.today"] == {"{}": 1}
        assert found["helix.sessions"]["{'helix.status': 'active'}"] == 1
        assert found["helix.store.latency"]["{}"] > 0
    assert "helix.queue.depth" not in reported(reader)


async def test_stores_that_are_away_report_nothing_until_they_respond(stores: Stores, tmp_path: Path) -> None:
    reader = InMemoryMetricReader()
    meter = MeterProvider([reader], shutdown_on_exit=False).get_meter("test")
    folder = tmp_path / "not-mounted"
    store = SqliteStateStore(folder / "helix.db")
    meters = StoreMeters(store, stores.streams, meter=meter)
    await meters.refresh()
    assert reported(reader) == {}
    folder.mkdir()
    await meters.refresh()
    assert reported(reader)["helix.queue.depth"] == {"{}": 0}
    await store.close()


class Unreachable(InMemoryStateStore):
    """A store of an application, which raises an error of its own from the second reading on."""

    def __init__(self) -> None:
        super().__init__()
        self.readings = 0
        self.read_three_times = asyncio.Event()

    async def count_by_status(self) -> dict[SessionStatus, int]:
        self.readings += 1
        if self.readings == 1:
            return await super().count_by_status()
        if self.readings == 3:
            self.read_three_times.set()
        raise OSError("no such host")


async def test_an_error_of_a_store_neither_ends_the_readings_nor_leaves_old_figures(stores: Stores) -> None:
    reader = InMemoryMetricReader()
    meter = MeterProvider([reader], shutdown_on_exit=False).get_meter("test")
    store = Unreachable()
    async with StoreMeters(store, stores.streams, meter=meter, every_seconds=0.001), asyncio.timeout(30):
        await store.read_three_times.wait()
        assert reported(reader) == {}


class SlowToStop(InMemoryStateStore):
    """A store whose second reading hangs, and takes a while to stop when it is cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.readings = 0
        self.hangs, self.stops, self.may_stop = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def count_by_status(self) -> dict[SessionStatus, int]:
        self.readings += 1
        if self.readings > 1:
            try:
                self.hangs.set()
                await asyncio.Event().wait()
            finally:
                self.stops.set()
                await self.may_stop.wait()
        return await super().count_by_status()


async def test_a_caller_that_is_cancelled_while_the_readings_stop_is_cancelled(stores: Stores) -> None:
    store = SlowToStop()

    async def work() -> None:
        async with StoreMeters(store, stores.streams, every_seconds=0.001):
            await store.hangs.wait()

    working = asyncio.create_task(work())
    await store.stops.wait()
    working.cancel()
    store.may_stop.set()
    with pytest.raises(asyncio.CancelledError):
        await working
