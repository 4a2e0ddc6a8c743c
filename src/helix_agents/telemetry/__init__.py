"""What runs report to operators: counters and durations as OpenMetrics text, and OpenTelemetry spans and meters.

The executor's hooks count runs; figures of the stores are read from them. The OpenTelemetry classes need the extra
`otel` and are loaded when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .metrics import MetricsHooks, MetricsSink, OpenMetrics

if TYPE_CHECKING:
    from .meters import OpenTelemetryMeters
    from .spans import OpenTelemetryHooks
    from .store_meters import StoreMeters

__all__ = ["MetricsHooks", "MetricsSink", "OpenMetrics", "OpenTelemetryHooks", "OpenTelemetryMeters", "StoreMeters"]

_HOMES = {"OpenTelemetryHooks": ".spans", "OpenTelemetryMeters": ".meters", "StoreMeters": ".store_meters"}


def __getattr__(name: str) -> Any:
    """Load an OpenTelemetry class; without the extra, the ImportError says what to install."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name], __name__), name)
