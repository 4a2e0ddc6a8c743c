"""OpenTelemetry meters: the metrics of `metrics.py`, under the names of the GenAI conventions where there is one.

    AgentExecutor(stores, llm, hooks=[OpenTelemetryHooks(), OpenTelemetryMeters()])

Needs only the OpenTelemetry API; the application configures the exporter.
"""

from __future__ import annotations

from typing import Any

from .metrics import METRICS, Labels, MetricsHooks

try:
    from opentelemetry import metrics
except ImportError as error:  # pragma: no cover
    raise ImportError("OpenTelemetryMeters needs opentelemetry: pip install 'helix-agents[otel]'.") from error

NAMES = {
    "helix_model_duration_seconds": "gen_ai.client.operation.duration",
    "helix_tokens": "gen_ai.client.token.usage",
}
ATTRIBUTES = {"agent": "gen_ai.agent.name", "model": "gen_ai.request.model", "tool": "gen_ai.tool.name"}
TOKEN_TYPES = {"prompt": "input", "completion": "output"}


class OpenTelemetryMeters(MetricsHooks):
    """Hooks that report runs, steps, tokens and durations to OpenTelemetry."""

    def __init__(self, meter: metrics.Meter | None = None) -> None:
        super().__init__(_Instruments(meter or metrics.get_meter("helix_agents")))


class _Instruments:
    """A `MetricsSink` on the instruments of a meter."""

    def __init__(self, meter: metrics.Meter) -> None:
        self._instruments: dict[str, Any] = {}
        for name, metric in METRICS.items():
            shown = NAMES.get(name) or name.removesuffix("_seconds").replace("_", ".")
            if metric.kind == "histogram":
                self._instruments[name] = meter.create_histogram(shown, unit="s", description=metric.help)
            elif name in NAMES:  # the conventions count tokens in a histogram, a value for each call
                self._instruments[name] = meter.create_histogram(shown, unit="{token}", description=metric.help)
            elif metric.kind == "gauge":
                self._instruments[name] = meter.create_up_down_counter(shown, description=metric.help)
            else:
                self._instruments[name] = meter.create_counter(shown, description=metric.help)

    def add(self, name: str, amount: float, labels: Labels) -> None:
        """Add to a counter."""
        instrument = self._instruments[name]
        record = instrument.record if name in NAMES else instrument.add
        record(amount, _attributes(labels))

    def observe(self, name: str, value: float, labels: Labels) -> None:
        """Record one value of a histogram."""
        self._instruments[name].record(value, _attributes(labels))


def _attributes(labels: Labels) -> dict[str, str]:
    named = {ATTRIBUTES.get(name, f"helix.{name}"): value for name, value in labels.items() if name != "kind"}
    if "kind" in labels:
        named["gen_ai.token.type"] = TOKEN_TYPES.get(labels["kind"], labels["kind"])
    return named
