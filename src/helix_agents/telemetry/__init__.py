"""What runs report to operators: counters and durations as OpenMetrics text, and OpenTelemetry spans and meters.

Built on the executor's hooks only. The OpenTelemetry classes need the extra `otel` and are loaded when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .metrics import MetricsHooks, MetricsSink, OpenMetrics

if TYPE_CHECKING:
    from .meters import OpenTelemetryMeters
    from .spans import OpenTelemetryHooks

__all__ = ["MetricsHooks", "MetricsSink", "OpenMetrics", "OpenTelemetryHooks", "OpenTelemetryMeters"]


def __getattr__(name: str) -> Any:
    """Load an OpenTelemetry class; without the extra, the ImportError says what to install."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(".spans" if name == "OpenTelemetryHooks" else ".meters", __name__), name)
