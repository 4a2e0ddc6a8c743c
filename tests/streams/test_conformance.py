"""The stream checks of the kit on our own backends."""

from __future__ import annotations

from pathlib import Path

import pytest

from helix_agents.conformance.registry import Check, NotApplicable
from helix_agents.conformance.streams import STREAM_MANAGER, StreamHarness

from .harnesses import InMemoryHarness, SqliteHarness

CHECKS = STREAM_MANAGER.select()


async def _run(check: Check[StreamHarness], harness: StreamHarness) -> None:
    try:
        await check.run(harness)
    except NotApplicable as reason:
        pytest.skip(str(reason))
    finally:
        await harness.dispose()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
async def test_in_memory(check: Check[StreamHarness]) -> None:
    await _run(check, InMemoryHarness())


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
async def test_sqlite(check: Check[StreamHarness], tmp_path: Path) -> None:
    await _run(check, SqliteHarness(tmp_path / "streams.db"))
