"""No store blocks the event loop: a blocking call in our code raises.

Constructors may read the package's own files.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from blockbuster import blockbuster_ctx

from helix_agents.backends.inmemory.state_store import InMemoryStateStore
from helix_agents.conformance.run import run_checks
from helix_agents.stores.state.contract import StateStore
from tests.conformance import harnesses as state
from tests.streams import harnesses as streams

OF_CONSTRUCTORS = (
    "io.TextIOWrapper.read",
    "io.BufferedReader.read",
    "os.path.abspath",
    "os.stat",
    "os.listdir",
    "os.scandir",
)


@pytest.mark.parametrize(
    ("harness", "only"),
    [
        (state.MemoryHarness, ["S4", "S5", "S9", "S11"]),
        (state.SqliteHarness, ["S6", "S7", "S9", "S11"]),
        (streams.InMemoryHarness, ["T1", "T5", "T6", "T7"]),
    ],
    ids=["memory", "sqlite", "streams in memory"],
)
def test_blocking_calls_in_the_event_loop_fail(harness: type[Any], only: list[str]) -> None:
    with blockbuster_ctx("helix_agents", excluded_modules=["helix_agents.conformance"]) as blockbuster:
        for name in OF_CONSTRUCTORS:
            blockbuster.functions[name].deactivate()
        results = asyncio.run(run_checks(harness, only=only))
    assert [result for result in results if result.outcome == "failed"] == []


class SleepyStore(InMemoryStateStore):
    """Blocks, like a store with a synchronous driver."""

    async def _read_flag(self, session_id: str) -> Any:
        time.sleep(0.001)  # noqa: ASYNC251
        return await super()._read_flag(session_id)


class SleepyHarness(state.MemoryHarness):
    async def open(self) -> StateStore:
        return SleepyStore(self.data)


def test_a_blocking_call_is_noticed() -> None:
    with blockbuster_ctx([__name__.rpartition(".")[0]]):
        results = asyncio.run(run_checks(SleepyHarness, only=["S7.looking_does_not_clear"]))
    assert "BlockingError" in results[0].detail
