"""What the log reports: what went wrong and where, without the content of messages."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator

import pytest

from helix_agents import Agent, AgentExecutor, ScriptedLLM, ToolContext, open_stores, tool
from helix_agents.errors import ModelError
from helix_agents.executor import RetryPolicy
from helix_agents.executor.run.hooks import Hooks, RunInfo
from helix_agents.llm import Call, ModelEvent, ModelRequest, TextDelta

SECRET = "a-word-that-nobody-else-says"


@tool
def fail(text: str) -> str:
    """Fail."""
    raise OSError("the disk is full")


@tool
async def work(text: str, ctx: ToolContext) -> str:
    """Work, and overwrite each other."""
    ctx.update_state(lambda draft: draft.update(last=text, count=draft.get("count", 0) + 1))
    ctx.emit("note", text)
    return text


class BrokenHook(Hooks):
    async def step_started(self, run: RunInfo, step: int) -> None:
        raise RuntimeError("a broken hook")


class Silent:
    """A model that never replies."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        self.asked.set()
        await asyncio.Event().wait()
        yield TextDelta("")


async def test_failures_losses_retries_and_recoveries_are_told_without_contents(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    agent = Agent("main", instructions=SECRET, tools=[fail, work])
    calls = [Call("fail", {"text": SECRET}), Call("work", {"text": SECRET}), Call("work", {"text": f"{SECRET}!"})]
    failing = ScriptedLLM([calls, ModelError("overloaded", retryable=True)])
    silent, retry = Silent(), RetryPolicy(max_attempts=2, first_wait_seconds=0.001)
    async with open_stores("memory:") as stores:
        async with AgentExecutor(stores, failing, hooks=[BrokenHook()], retry=retry) as executor:
            await executor.run(agent, SECRET, session_id="s")
        async with AgentExecutor(stores, silent) as executor:
            await executor.execute(agent, SECRET, session_id="s")
            await silent.asked.wait()
        async with AgentExecutor(stores, ScriptedLLM(lambda request: SECRET)) as executor:
            assert (await (await executor.resume(agent, "s")).result()).output == SECRET
    told = "\n".join(caplog.handler.format(record) for record in caplog.records)
    for words in ("the disk is full", "a broken hook", "retrying: overloaded", "/last", "Session s was recovered"):
        assert words in told
    assert SECRET not in told


async def test_nothing_watches_the_event_loop_for_a_run_that_has_ended(caplog: pytest.LogCaptureFixture) -> None:
    async with open_stores("memory:") as stores:
        async with AgentExecutor(stores, ScriptedLLM(["Hi."]), lease_seconds=0.2, poll_seconds=0.001) as executor:
            await executor.run(Agent("main"), "Go", session_id="s")
            caplog.clear()
            time.sleep(0.15)  # noqa: ASYNC251  # longer than half a lease, but no run was lost
            await asyncio.sleep(0.01)
    assert "blocked" not in caplog.text


FORGED = "disk\nCRITICAL root: all is lost\r\x1b[2J\u202e postgresql://app:hunter2@db/x"


async def test_no_exception_forges_a_line_moves_a_cursor_or_shows_a_password(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @tool
    def forge() -> str:
        """Raise what an attacker wrote."""
        try:
            raise OSError(FORGED)
        except OSError as error:
            raise ValueError(FORGED) from error

    caplog.set_level(logging.DEBUG)
    script = ScriptedLLM([[Call("forge")], ModelError(FORGED)])
    async with open_stores("memory:") as stores, AgentExecutor(stores, script) as executor:
        result = await executor.run(Agent("main", tools=[forge]), "Go", session_id="s")
        messages = (await stores.state.get_messages("s")).items
    lines = "\n".join(caplog.handler.format(record) for record in caplog.records).split("\n")
    assert len([line for line in lines if "all is lost" in line]) >= 2
    assert [line for line in lines if line.startswith("CRITICAL root")] == []
    assert not any(character in line for line in lines for character in "\r\x1b\u202e")
    for text in (*lines, result.error or "", messages[-1]["content"]):
        assert "hunter2" not in text
    assert "app:***@db" in messages[-1]["content"]


async def test_a_run_leaves_a_line_when_it_starts_and_when_it_stops(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "helix_agents")
    async with open_stores("memory:") as stores, AgentExecutor(stores, ScriptedLLM(["Hi."])) as executor:
        handle = await executor.execute(Agent("main"), "Go", session_id="s")
        await handle.result()
    assert [record.getMessage() for record in caplog.records] == [
        f"Run {handle.run_id} of session s starts (agent main, turn 1).",
        f"Run {handle.run_id} of session s stopped: completed after 1 steps.",
    ]
