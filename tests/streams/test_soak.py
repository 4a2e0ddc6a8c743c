"""Long random runs of the stream checks, each with another seed: `pytest -m soak tests/streams`."""

from __future__ import annotations

import secrets

import pytest

from helix_agents.conformance.harness import Harness
from helix_agents.conformance.options import Options
from helix_agents.conformance.registry import Check
from helix_agents.conformance.streams import STREAM_MANAGER

from .harnesses import InMemoryHarness, SqliteHarness

CHECKS = STREAM_MANAGER.select(["random", "faults", "tasks"])


@pytest.mark.soak
@pytest.mark.parametrize("backend", ["memory", "sqlite"])
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
async def test_again_and_again(check: Check[Harness], backend: str) -> None:
    for _ in range(10):
        harness: Harness = InMemoryHarness() if backend == "memory" else SqliteHarness()
        harness.options = Options(seed=secrets.randbits(32), steps=1000)
        print(f"seed {harness.options.seed}")
        try:
            await check.run(harness)
        finally:
            await harness.dispose()
