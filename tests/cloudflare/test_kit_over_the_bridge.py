"""The kit on D1 and on Durable Objects from outside, on the real runtime: workerd, through the bridge Worker.

In short form: each way carries the checks that could fail on it. `pytest -m soak tests/cloudflare` runs all of them on
all ways.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from helix_agents.conformance.contracts import checks_for
from helix_agents.conformance.executor import EXECUTOR
from helix_agents.conformance.options import Options
from helix_agents.conformance.pytest import conformance_tests
from helix_agents.conformance.registry import Check
from helix_agents.conformance.run import run_check
from tests.cloudflare import homes

pytestmark = pytest.mark.usefixtures("bridge_of_harnesses")

SLOW = {
    "S3.one_process_commits",
    "S6.one_process_swaps",
    "S6.only_legal_transitions",
    "S7.flag_crosses_processes",
    "T2.long_stream",
    "T7.random_walk",
}
"""What takes many requests, or many processes, and does not ask more of a way than others do: left to `soak`."""


def short(harness: type[Any], *only: str) -> Any:
    names = [check.name for check in checks_for(harness, only) if check.name not in SLOW]
    return conformance_tests(harness, only=names)


test_state_in_an_object = short(
    homes.StateOnObject, "S1.one_process_wins", "S2.killed_at_any_moment", "S8", "S12", "S15"
)
test_state_in_d1 = short(homes.StateOnD1, "S3", "S9", "S14.neighbours_stay_apart")
test_state_in_d1_by_rest = short(homes.StateOnRest, "S6", "S7")
test_streams_in_objects = short(homes.StreamsInObjects, "example", "tasks", "T8.other_processes")
test_streams_in_d1_by_rest = short(homes.StreamsOnRest, "T1", "T5", "T7")
test_usage_and_memory_in_d1 = short(homes.UsageAndMemoryOnD1, "U1", "U4", "M1", "M4")


def _run(check: Check[Any], harness: type[Any], options: Options) -> None:
    result = asyncio.run(run_check(check, harness, options))
    if result.outcome == "failed":
        pytest.fail(f"{check.title}: {result.detail}", pytrace=False)
    if result.outcome == "n/a":
        pytest.skip(result.detail)


@pytest.mark.parametrize("check", EXECUTOR.select(["X3"]), ids=lambda check: check.name)
def test_executor_on_d1(check: Check[Any]) -> None:
    _run(check, homes.ExecutorOnD1, replace(Options(), steps=50))


soak = pytest.mark.soak
test_all_of_state_in_an_object = soak(conformance_tests(homes.StateOnObject))
test_all_of_state_in_d1 = soak(conformance_tests(homes.StateOnD1))
test_all_of_state_in_d1_by_rest = soak(conformance_tests(homes.StateOnRest))
test_all_streams_in_objects = soak(conformance_tests(homes.StreamsInObjects))
test_all_streams_in_d1_by_rest = soak(conformance_tests(homes.StreamsOnRest))
test_all_of_usage_and_memory_in_d1 = soak(conformance_tests(homes.UsageAndMemoryOnD1))
test_usage_and_memory_in_an_object = soak(conformance_tests(homes.UsageAndMemoryOnObject))


@pytest.mark.soak
@pytest.mark.parametrize("harness", [homes.ExecutorOnObject, homes.ExecutorOnD1])
@pytest.mark.parametrize("check", EXECUTOR.select(), ids=lambda check: check.name)
def test_all_of_the_executor(check: Check[Any], harness: type[Any]) -> None:
    _run(check, harness, Options())
