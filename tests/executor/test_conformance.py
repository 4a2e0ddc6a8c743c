"""The executor checks of the kit on memory and SQLite; servers are added where their fixtures are."""

from __future__ import annotations

from pathlib import Path

import pytest

from helix_agents.conformance.executor import EXECUTOR, ExecutorHarness
from helix_agents.conformance.registry import Check, NotApplicable
from tests.executor.harnesses import MemoryExecutorHarness, sqlite_harness

CHECKS = EXECUTOR.select()


async def run_check(check: Check[ExecutorHarness], harness: ExecutorHarness) -> None:
    print("seed", harness.options.seed)
    try:
        await check.run(harness)
    except NotApplicable as reason:
        pytest.skip(str(reason))
    finally:
        await harness.dispose()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
async def test_memory(check: Check[ExecutorHarness]) -> None:
    await run_check(check, MemoryExecutorHarness())


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
async def test_sqlite(check: Check[ExecutorHarness], tmp_path: Path) -> None:
    await run_check(check, sqlite_harness(tmp_path))
