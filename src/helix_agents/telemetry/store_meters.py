"""OpenTelemetry gauges of what the stores say: queue depth, recoveries, sessions by status, workers, latency.

    async with StoreMeters(stores.state, stores.streams):
        await pool.run()

One process per application is enough: every process would report the same figures.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self

from ..clock import Clock, system_clock
from ..errors import HelixError, InvalidArgument
from ..safe_text import get_logger
from ..stores.state.contract import StateStore
from ..streams.contract import StreamManager
from .store_figures import STORE_METRICS, Gauges, measure_latency, read_gauges

try:
    from opentelemetry import metrics
except ImportError as error:  # pragma: no cover
    raise ImportError("StoreMeters needs opentelemetry: pip install 'helix-agents[otel]'.") from error

logger = get_logger("helix_agents.telemetry")


class StoreMeters:
    """Report figures of the stores to OpenTelemetry: a context manager that reads them every `every_seconds`."""

    def __init__(
        self,
        state_store: StateStore,
        stream_manager: StreamManager,
        *,
        every_seconds: float = 15.0,
        meter: metrics.Meter | None = None,
        clock: Clock = system_clock,
    ) -> None:
        if every_seconds <= 0:
            raise InvalidArgument(f"every_seconds must be positive, not {every_seconds}.")
        self._store, self._streams, self._clock = state_store, stream_manager, clock
        self._every_seconds = every_seconds
        self._latest: Gauges = {}
        self._reading: asyncio.Task[None] | None = None
        target = meter or metrics.get_meter("helix_agents")
        for name, description in STORE_METRICS.items():
            shown = name.removesuffix("_seconds").replace("_", ".")
            unit = "s" if name.endswith("_seconds") else ""
            target.create_observable_gauge(shown, [self._observed(name)], unit=unit, description=description)

    async def refresh(self) -> None:
        """Read the stores once. If they do not respond, nothing is reported until they do."""
        try:
            latency = await measure_latency(self._store)
            self._latest = await read_gauges(self._store, self._streams, self._clock(), latency_seconds=latency)
        except Exception as error:  # also of a store that is not ours: old figures must not look current
            self._latest = {}
            is_known = isinstance(error, HelixError)
            logger.warning("Could not read the figures of the stores: %s", error, exc_info=not is_known)

    async def __aenter__(self) -> Self:
        """Read the stores, and continue in the background."""
        await self.refresh()
        self._reading = asyncio.create_task(self._read_on())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop reading, and report nothing more."""
        reading, self._reading = self._reading, None
        try:
            if reading is not None:
                reading.cancel()
                await asyncio.wait([reading])
        finally:
            self._latest = {}

    async def _read_on(self) -> None:
        while True:
            await asyncio.sleep(self._every_seconds)
            await self.refresh()

    def _observed(self, name: str) -> Callable[[metrics.CallbackOptions], Iterable[metrics.Observation]]:
        def observe(options: metrics.CallbackOptions) -> Iterable[metrics.Observation]:
            series = self._latest.get(name, {})
            return [
                metrics.Observation(value, {f"helix.{label}": text for label, text in labels})
                for labels, value in series.items()
            ]

        return observe
