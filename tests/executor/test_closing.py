"""A run record left `running` after its session finished delays a caller for a bounded time, whatever its lease."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from helix_agents.agent import Agent
from helix_agents.backends.inmemory.state_store import InMemoryStateStore
from helix_agents.backends.inmemory.stream_manager import InMemoryStreamManager
from helix_agents.clock import system_clock
from helix_agents.errors import AlreadyRunning, StoreError
from helix_agents.executor import AgentExecutor
from helix_agents.executor.session import closing
from helix_agents.llm import ScriptedLLM
from helix_agents.retry import CLOSING


async def test_who_waits_for_it_is_told_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closing, "CLOSING", replace(CLOSING, within_seconds=0.05))
    store = InMemoryStateStore()
    await store.create_session("s", agent_type="a")
    await store.create_run("s", "r", lease_until=system_clock() + 3_600_000)
    await store.update_status("s", "completed")
    executor = AgentExecutor(store, InMemoryStreamManager(), ScriptedLLM(["Done."]), lease_seconds=3600)
    async with asyncio.timeout(30):
        with pytest.raises(AlreadyRunning):
            await executor.execute(Agent("a"), "Go", session_id="s")


class CannotRelease(InMemoryStateStore):
    """Loses every write to a run's record."""

    async def update_run_status(self, *args: object, **changes: object) -> None:  # type: ignore[override]
        raise StoreError("The store is broken.")


async def test_a_run_that_cannot_be_released_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    executor = AgentExecutor(CannotRelease(), InMemoryStreamManager(), ScriptedLLM(["Done."]))
    handle = await executor.execute(Agent("a"), "Go", session_id="s")
    with pytest.raises(StoreError):
        await handle.result()
    assert "Could not release run" in caplog.text
    assert "others must wait until its lease expires" in caplog.text
