"""Convenience methods: one call for what most programs need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from helix_agents import Agent, AgentExecutor, ScriptedLLM, open_stores, tool
from helix_agents.backends.inmemory.state_store import InMemoryStateStore
from helix_agents.backends.inmemory.stream_manager import InMemoryStreamManager
from helix_agents.errors import InvalidArgument, ModelError
from helix_agents.llm import Call
from helix_agents.tools import memory_tools


@pytest.fixture(params=["memory:", "sqlite:helix.db"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    return str(request.param)


@tool
async def work() -> str:
    """Work."""
    return "worked"


async def test_stores_and_a_model_make_an_executor_that_records_usage(url: str) -> None:
    async with open_stores(url) as stores, AgentExecutor(stores, ScriptedLLM([[Call("work")], "Done."])) as executor:
        result = await executor.run(Agent("worker", tools=[work]), "Go", session_id="s")
        assert (result.status, result.output) == ("completed", "Done.")
        rollup = await stores.usage.get_rollup("s")
        assert rollup.tokens.total > 0
        assert rollup.tools["work"].calls == 1


async def test_a_result_tells_whose_it_is_and_why_it_failed_here_and_elsewhere(url: str) -> None:
    agent = Agent("greeter")
    async with open_stores(url) as stores, AgentExecutor(stores, ScriptedLLM([ModelError("down"), "Hi."])) as executor:
        result = await executor.run(agent, "Hi")
        handle = await executor.get_handle(agent, result.session_id)
        assert handle is not None
        assert (result.failure_reason, result.run_id) == ("model_error", handle.run_id)
        assert await handle.result() == result
        again = await (await executor.retry(result.session_id)).result()
        assert (again.status, again.session_id, again.failure_reason) == ("failed", result.session_id, "model_error")


async def test_a_stream_is_the_run(url: str) -> None:
    async with open_stores(url) as stores, AgentExecutor(stores, ScriptedLLM(["Hello you."])) as executor:
        chunks = executor.stream(Agent("greeter"), "Hi", session_id="s")
        with pytest.raises(InvalidArgument):
            _ = chunks.handle
        seen = [chunk async for chunk in chunks]
        assert "".join(chunk["delta"] for chunk in seen if chunk["type"] == "text_delta") == "Hello you."
        assert seen[-1]["type"] == "output"
        assert (await chunks.handle.result()).output == "Hello you."


def test_where_no_loop_runs_a_run_is_a_plain_call_again_and_again() -> None:
    executor = AgentExecutor(InMemoryStateStore(), InMemoryStreamManager(), ScriptedLLM(["One.", "Two."]))
    agent = Agent("greeter")
    assert executor.run_sync(agent, "Hi", session_id="s").output == "One."
    assert executor.run_sync(agent, "And?", session_id="s").output == "Two."


def test_a_script_that_calls_plainly_leaves_no_loop_open() -> None:
    script = """
import asyncio
from helix_agents import Agent, AgentExecutor, ScriptedLLM, tool
from helix_agents.backends.inmemory.state_store import InMemoryStateStore
from helix_agents.backends.inmemory.stream_manager import InMemoryStreamManager
from helix_agents.llm import Call

jobs = []

async def wait():
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        print("Tidied up.")
        raise

@tool
async def begin() -> str:
    "Begin something that nobody waits for."
    jobs.append(asyncio.create_task(wait()))
    return "begun"

llm = ScriptedLLM([[Call("begin")], "One."])
executor = AgentExecutor(InMemoryStateStore(), InMemoryStreamManager(), llm)
print(executor.run_sync(Agent("greeter", tools=[begin]), "Hi").output)
"""
    done = subprocess.run([sys.executable, "-X", "dev", "-c", script], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("One.\nTidied up.\n", "")


async def test_where_a_loop_runs_a_plain_call_says_what_to_write(url: str) -> None:
    async with open_stores(url) as stores, AgentExecutor(stores, ScriptedLLM(["One."])) as executor:
        with pytest.raises(InvalidArgument, match=r"await executor.run"):
            executor.run_sync(Agent("greeter"), "Hi")


async def test_what_is_neither_form_is_refused(url: str) -> None:
    async with open_stores(url) as stores:
        with pytest.raises(InvalidArgument, match="model"):
            AgentExecutor(stores)
        with pytest.raises(InvalidArgument, match="takes only the stores"):
            AgentExecutor(stores, stores.streams, ScriptedLLM([]))


async def test_a_model_remembers_its_user_over_sessions_and_nobody_else(url: str) -> None:
    agent = Agent("companion", tools=memory_tools())
    save = [Call("save_memory", {"content": "Ann likes green tea."})]
    search = [Call("search_memory", {"query": "tea"})]
    async with open_stores(url) as stores:
        async with AgentExecutor(stores, ScriptedLLM([save, "Noted."])) as executor:
            await executor.run(agent, "I like green tea", user_id="ann")
        async with AgentExecutor(stores, ScriptedLLM([search, "Tea."])) as executor:
            for user_id, found in (("ann", '["Ann likes green tea."]'), ("bob", "[]")):
                await executor.run(agent, "What do I like?", user_id=user_id, session_id=f"of-{user_id}")
                messages = (await stores.state.get_messages(f"of-{user_id}")).items
                assert [message["content"] for message in messages if message["role"] == "tool"] == [found]
            await executor.run(agent, "What do I like?", session_id="of-nobody")
            told = (await stores.state.get_messages("of-nobody")).items[2]["content"]
            assert "has no user" in told
