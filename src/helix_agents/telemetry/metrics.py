"""Metrics about the runs of this process: counts and durations by agent, model and tool, collected through the hooks.

Names and numbers only, never contents. `OpenMetrics` keeps them in memory and renders the text that `GET /metrics`
returns; `meters.py` passes the same figures to OpenTelemetry.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from ..executor import INTERRUPTED, Hooks, ModelAnswer, Outcome, RunInfo
from ..messages import Message
from ..types import TracingContext

Labels = Mapping[str, str]
BUCKETS_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
MAX_SERIES = 2_000
"""How many combinations of labels a process keeps; values with further ones are dropped and counted."""


class Metric(NamedTuple):
    """One metric: a counter, a gauge or a histogram of seconds."""

    kind: str
    help: str


METRICS: dict[str, Metric] = {
    "helix_runs": Metric("counter", "Runs that ended or were suspended, by status."),
    "helix_runs_active": Metric("gauge", "Runs in progress in this process."),
    "helix_run_duration_seconds": Metric("histogram", "Time from the start of a run to its end or suspension."),
    "helix_steps": Metric("counter", "Steps that were committed or suspended."),
    "helix_model_duration_seconds": Metric("histogram", "Time a model took for one reply."),
    "helix_model_errors": Metric("counter", "Model calls that failed."),
    "helix_tokens": Metric("counter", "Tokens by kind: prompt, completion, reasoning, cached, cache_written."),
    "helix_tool_duration_seconds": Metric("histogram", "Time of one tool call, by outcome."),
    "helix_writes_lost": Metric("counter", "Writes of parallel tools that overwrote each other."),
    "helix_series_dropped": Metric("counter", "Measurements dropped because there were too many label values."),
}


class MetricsSink(Protocol):
    """Receives metrics."""

    def add(self, name: str, amount: float, labels: Labels) -> None:
        """Add to a counter or a gauge."""

    def observe(self, name: str, value: float, labels: Labels) -> None:
        """Record one value of a histogram."""


class MetricsHooks(Hooks):
    """Turns what happens in runs into metrics."""

    def __init__(self, sink: MetricsSink, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._sink = sink
        self._clock = clock
        self._started: dict[tuple[str, str], float] = {}

    async def run_started(self, run: RunInfo) -> TracingContext | None:
        if (run.run_id, "run") not in self._started:
            self._sink.add("helix_runs_active", 1, {"agent": run.agent_type})
        self._start(run, "run")
        return None

    async def run_ended(self, run: RunInfo, status: str, error: str | None) -> None:
        labels = {"agent": run.agent_type}
        if (run.run_id, "run") in self._started:
            self._sink.add("helix_runs_active", -1, labels)
        self._observe(run, "run", "helix_run_duration_seconds", labels)
        self._sink.add("helix_runs", 1, {**labels, "status": status})
        for key in [key for key in self._started if key[0] == run.run_id]:  # what a sudden end left open
            del self._started[key]

    async def step_ended(self, run: RunInfo, step: int, status: str) -> None:
        self._sink.add("helix_steps", 1, {"agent": run.agent_type})

    async def writes_lost(self, run: RunInfo, step: int, warnings: Any) -> None:
        self._sink.add("helix_writes_lost", len(warnings), {"agent": run.agent_type})

    async def model_started(self, run: RunInfo, step: int, attempt: int) -> None:
        self._start(run, "model")

    async def model_answered(self, run: RunInfo, step: int, answer: ModelAnswer) -> None:
        if (usage := answer.usage) is None:
            return
        labels = {"agent": run.agent_type, "model": answer.model or run.model or ""}
        for kind in ("prompt", "completion", "reasoning", "cached", "cache_written"):
            if count := getattr(usage, kind):
                self._sink.add("helix_tokens", count, {**labels, "kind": kind})

    async def model_ended(self, run: RunInfo, step: int, message: Message | None, error: str | None) -> None:
        labels = {"agent": run.agent_type, "model": run.model or ""}
        self._observe(run, "model", "helix_model_duration_seconds", labels)
        if error is not None and error != INTERRUPTED:
            self._sink.add("helix_model_errors", 1, labels)

    async def tool_started(self, run: RunInfo, step: int, call: dict[str, Any]) -> None:
        self._start(run, call["id"])

    async def tool_ended(self, run: RunInfo, step: int, call: dict[str, Any], outcome: Outcome) -> None:
        labels = {"agent": run.agent_type, "tool": call["name"], "outcome": "ok" if outcome.success else "error"}
        self._observe(run, call["id"], "helix_tool_duration_seconds", labels)

    def _start(self, run: RunInfo, what: str) -> None:
        self._started[run.run_id, what] = self._clock()

    def _observe(self, run: RunInfo, what: str, name: str, labels: Labels) -> None:
        started = self._started.pop((run.run_id, what), None)
        if started is not None:
            self._sink.observe(name, max(0.0, self._clock() - started), labels)


class OpenMetrics:
    """Keeps metrics in memory and renders them as OpenMetrics text."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, tuple[tuple[str, str], ...]], list[float]] = {}

    def add(self, name: str, amount: float, labels: Labels) -> None:
        """Add to a counter or a gauge."""
        self._slot(name, labels, 1)[0] += amount

    def observe(self, name: str, value: float, labels: Labels) -> None:
        """Count a value in its bucket, and add it to the sum."""
        slot = self._slot(name, labels, len(BUCKETS_SECONDS) + 2)
        position = next((i for i, bound in enumerate(BUCKETS_SECONDS) if value <= bound), len(BUCKETS_SECONDS))
        slot[position] += 1
        slot[-1] += value

    def render(self, gauges: Mapping[str, tuple[str, Mapping[tuple[tuple[str, str], ...], float]]]) -> str:
        """Return all metrics, and `gauges` that were just read: name -> (help, labels -> value)."""
        lines: list[str] = []
        for name, metric in METRICS.items():
            series = [(labels, slot) for (each, labels), slot in sorted(self._values.items()) if each == name]
            if series:
                lines += [f"# TYPE {name} {metric.kind}", f"# HELP {name} {metric.help}"]
                for labels, slot in series:
                    lines += _lines(name, metric.kind, labels, slot)
        for name, (help_text, values) in gauges.items():
            lines += [f"# TYPE {name} gauge", f"# HELP {name} {help_text}"]
            lines += [f"{name}{_braces(labels)} {_number(value)}" for labels, value in values.items()]
        return "\n".join([*lines, "# EOF", ""])

    def _slot(self, name: str, labels: Labels, size: int) -> list[float]:
        key = (name, tuple(sorted(labels.items())))
        if key not in self._values and len(self._values) >= MAX_SERIES:
            self._values.setdefault(("helix_series_dropped", ()), [0.0])[0] += 1
            return [0.0] * size  # forgotten at once
        return self._values.setdefault(key, [0.0] * size)


def _lines(name: str, kind: str, labels: tuple[tuple[str, str], ...], slot: list[float]) -> list[str]:
    if kind == "counter":
        return [f"{name}_total{_braces(labels)} {_number(slot[0])}"]
    if kind == "gauge":
        return [f"{name}{_braces(labels)} {_number(slot[0])}"]
    lines, seen = [], 0.0
    for bound, count in zip((*BUCKETS_SECONDS, math.inf), slot, strict=False):
        seen += count
        edge = "+Inf" if bound == math.inf else _number(bound)
        lines.append(f"{name}_bucket{_braces((*labels, ('le', edge)))} {_number(seen)}")
    return [
        *lines,
        f"{name}_count{_braces(labels)} {_number(seen)}",
        f"{name}_sum{_braces(labels)} {_number(slot[-1])}",
    ]


def _braces(labels: tuple[tuple[str, str], ...]) -> str:
    if not labels:
        return ""
    escaped = [(name, value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")) for name, value in labels]
    return "{" + ",".join(f'{name}="{value}"' for name, value in escaped) + "}"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
