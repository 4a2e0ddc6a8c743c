"""A session that waited for a person and expired: nothing of it stays open."""

from __future__ import annotations

import time

from helix_agents import Agent, AgentExecutor, ScriptedLLM, expired_session_cleanup, open_stores, tool
from helix_agents.backends.registry import Stores
from helix_agents.llm import Call

NOW = int(time.time() * 1000)


@tool(requires_approval=True)
def publish(title: str) -> str:
    """Publish."""
    return f"published {title}"


@tool
def remember(text: str) -> str:
    """Note something."""
    return text


agent = Agent("writer", tools=[publish, remember])


async def expired(stores: Stores) -> tuple[AgentExecutor, str]:
    """Let a run ask, and let cleanup remove it; return the id of the pending call."""
    calls = [Call("publish", {"title": "Ants"}), Call("remember", {"text": "x"})]
    executor = AgentExecutor(stores, ScriptedLLM([calls, "Done."]), agents=[agent])
    result = await executor.run(agent, "Go", session_id="s", expires_at=NOW - 1)
    assert result.suspended is not None
    summary = await expired_session_cleanup(stores.state, stream_manager=stores.streams)
    assert (summary.marked, summary.errors) == (1, [])
    return executor, result.suspended[0].tool_call_id


async def test_its_run_and_its_questions_are_closed() -> None:
    async with open_stores("memory:") as stores:
        executor, _ = await expired(stores)
        session, run = await stores.state.load_state("s"), await stores.state.get_current_run("s")
        assert session is not None
        assert (session.status, session.failure_reason) == ("failed", "session_expired")
        assert session.pending_client_tool_calls == {}
        assert run is not None
        assert (run.status, run.error, run.completed_at is not None) == ("failed", "session_expired", True)
        assert (await executor.list_waiting()).items == []


async def test_a_late_answer_is_late_and_changes_nothing() -> None:
    async with open_stores("memory:") as stores:
        executor, call = await expired(stores)
        before = await stores.state.load_state("s")
        receipt = await executor.submit_tool_result("s", call, approved=True)
        assert receipt.status == "late"
        after = await stores.state.load_state("s")
        assert before is not None
        assert after is not None
        assert (after.status, after.pending_client_tool_calls) == (before.status, {})
        assert (await executor.submit_tool_result("s", call, approved=True)).status == "duplicate"
