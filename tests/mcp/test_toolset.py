"""MCP servers as toolsets: real servers in their own processes, over standard input and over HTTP."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from helix_agents import Agent, AgentExecutor, AgentResult, ScriptedLLM, Stores, open_stores, tool
from helix_agents.errors import InvalidArgument, ToolsUnavailable
from helix_agents.executor.step.artifacts import MAX_RESULT_CHARS
from helix_agents.llm.scripted import Call
from helix_agents.mcp import MCP, mcp_tools
from helix_agents.mcp.toolset import tool_name
from helix_agents.tools import Tool

LIBRARY = [sys.executable, "-m", "tests.mcp.library", "stdio"]


@pytest.fixture
async def stores() -> AsyncIterator[Stores]:
    async with open_stores("memory:") as opened:
        yield opened


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "journal"


@pytest.fixture
async def library(journal: Path) -> AsyncIterator[MCP]:
    toolset = MCP(command=LIBRARY, prefix="lib_", env={"LIBRARY_JOURNAL": str(journal)})
    yield toolset
    await toolset.close()


def noted(journal: Path) -> list[str]:
    return journal.read_text().splitlines() if journal.exists() else []


async def run(stores: Stores, agent: Agent, *script: Any, session_id: str = "s") -> AgentResult:
    return await AgentExecutor(stores, ScriptedLLM([*script])).run(agent, "go", session_id=session_id)


async def results(stores: Stores, session_id: str = "s") -> list[Any]:
    page = await stores.state.get_messages(session_id, limit=None)
    return [message["content"] for message in page.items if message["role"] == "tool"]


async def test_a_model_calls_tools_of_a_command(stores: Stores, library: MCP) -> None:
    agent = Agent("a", tools=[library])
    result = await run(stores, agent, [Call("lib_add", {"a": 2, "b": 40}), Call("lib_fail", {"why": "no"})], "Done.")
    assert result.status == "completed"
    added, failed = await results(stores)
    assert added == "42"
    assert "no" in failed


async def test_what_may_destroy_needs_approval(stores: Stores, library: MCP, journal: Path) -> None:
    agent = Agent("a", tools=[library])
    executor = AgentExecutor(stores, ScriptedLLM([[Call("lib_wipe", {"path": "/"})], "Done."]))
    result = await executor.run(agent, "go", session_id="s")
    assert [waiting.tool_name for waiting in result.suspended] == ["lib_wipe"]
    assert noted(journal) == []
    await executor.submit_tool_result("s", result.suspended[0].tool_call_id, approved=True)
    assert (await (await executor.resume(agent, "s")).result()).status == "completed"
    assert noted(journal) == ["wipe /"]


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ({}, {"wipe"}),
        ({"approve": "never"}, set()),
        ({"approve": lambda theirs: theirs.name == "add"}, {"add"}),
    ],
)
async def test_hints_decide_about_approval(options: dict[str, Any], asked: set[str]) -> None:
    async with mcp_tools(LIBRARY, **options) as tools:
        assert {each.name for each in tools if each.requires_approval} == asked


async def test_hints_of_an_untrusted_server_count_for_nothing() -> None:
    async with mcp_tools(LIBRARY, trusted=False) as tools:
        assert tools
        assert all(each.requires_approval for each in tools)


async def test_images_become_parts(stores: Stores, library: MCP) -> None:
    await run(stores, Agent("a", tools=[library]), [Call("lib_picture", {})], "Done.")
    chunks = [stored.chunk for stored in await stores.streams.get_all_chunks("s")]
    drawn = next(chunk["result"] for chunk in chunks if chunk["type"] == "tool_end")
    assert drawn == [{"type": "image", "media_type": "image/png", "data": "cGl4ZWw="}]


async def test_progress_reaches_the_stream(stores: Stores, library: MCP) -> None:
    await run(stores, Agent("a", tools=[library]), [Call("lib_work", {"steps": 3})], "Done.")
    chunks = [stored.chunk for stored in await stores.streams.get_all_chunks("s")]
    seen = [chunk["data"]["done"] for chunk in chunks if chunk.get("name") == "mcp_progress"]
    assert seen == [1.0, 2.0, 3.0]


async def test_a_server_that_dies_in_a_call_is_started_again(stores: Stores, library: MCP) -> None:
    agent = Agent("a", tools=[library])
    await run(stores, agent, [Call("lib_die_once", {})], [Call("lib_add", {"a": 1, "b": 1})], "Done.")
    assert await results(stores) == ["alive again", "2"]


async def test_a_call_with_an_effect_is_not_sent_again(stores: Stores, library: MCP, journal: Path) -> None:
    agent = Agent("a", tools=[library])
    executor = AgentExecutor(stores, ScriptedLLM([[Call("lib_die", {})], [Call("lib_add", {"a": 1, "b": 1})], "Done."]))
    result = await executor.run(agent, "go", session_id="s")
    assert [waiting.kind for waiting in result.suspended] == ["outcome"]
    await executor.submit_tool_result("s", result.suspended[0].tool_call_id, happened=None)
    assert (await (await executor.resume(agent, "s")).result()).status == "completed"
    died, added = await results(stores)
    assert "not known whether" in died
    assert added == "2"
    assert noted(journal) == ["die", "add 1 1"]


async def test_a_silent_call_ends_as_an_error_for_the_model(stores: Stores, journal: Path) -> None:
    toolset = MCP(LIBRARY, timeout_seconds=0.3)
    await run(stores, Agent("a", tools=[toolset]), [Call("hang", {})], "Done.")
    await toolset.close()
    assert "no sign of life" in (await results(stores))[0]


async def test_a_changed_list_is_offered_at_the_next_step(stores: Stores, library: MCP) -> None:
    agent = Agent("a", tools=[library])
    await run(stores, agent, [Call("lib_grow", {})], [Call("lib_added", {})], "Done.")
    assert (await results(stores))[1] == "added later"
    assert list(library.offered)[-1] == "lib_added"


async def test_five_megabytes_cost_the_limit_of_a_result(stores: Stores, library: MCP) -> None:
    await run(stores, Agent("a", tools=[library]), [Call("lib_large", {"size": 5_000_000})], "Done.")
    (shown,) = await results(stores)
    assert len(shown) <= MAX_RESULT_CHARS
    digest = re.findall(r"sha256:[0-9a-f]{64}", shown)[0]
    assert await stores.blobs.get("s", digest) == b"x" * 5_000_000


async def test_a_server_that_never_responds_fails_the_run_and_is_ended(stores: Stores, tmp_path: Path) -> None:
    silent = 'echo $$ > "$0"; exec sleep 600'
    toolset = MCP(["sh", "-c", silent, str(tmp_path / "pid")], open_seconds=2)
    result = await run(stores, Agent("a", tools=[toolset]), "Never asked.")
    assert (result.status, result.failure_reason) == ("failed", "tools_unavailable")
    assert "did not respond" in str(result.error)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


async def test_a_command_that_does_not_exist_is_named() -> None:
    with pytest.raises(ToolsUnavailable, match="no-such-program"):
        await MCP(["no-such-program"], open_seconds=5).refresh()


async def test_names_that_collide_are_refused(stores: Stores) -> None:
    @tool
    def add(a: int) -> int:
        return a

    toolset = MCP(LIBRARY)
    result = await run(stores, Agent("a", tools=[add, toolset]), "Never asked.")
    await toolset.close()
    assert result.status == "failed"
    assert "two tools called 'add'" in str(result.error)


def test_long_names_are_cut_and_stay_different() -> None:
    first, second = tool_name("x" * 80 + "1"), tool_name("x" * 80 + "2")
    assert len(first) == len(second) == 64
    assert first != second
    assert tool_name("read file!") == "read_file_"


@pytest.mark.parametrize("bad", [{}, {"url_or_command": "library"}, {"url_or_command": "http://x", "command": ["x"]}])
def test_bad_addresses_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        MCP(**bad)


def test_a_tool_from_a_schema_keeps_its_schema() -> None:
    schema = {"properties": {"a": {"$ref": "#/$defs/A"}}, "required": ["a"], "$defs": {"A": {"type": "string"}}}
    made = Tool.from_schema("made", "Does it.", schema, lambda arguments, context: arguments["a"])
    assert made.spec.input_schema == {**schema, "type": "object"}
    with pytest.raises(InvalidArgument):
        Tool.from_schema("made", "", {"type": "array"}, lambda arguments, context: None)


@pytest.fixture
def http_library(journal: Path) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen([*LIBRARY[:-1], "http", str(port)], stderr=subprocess.DEVNULL)
    yield f"http://127.0.0.1:{port}/mcp"
    process.kill()
    process.wait()


async def test_a_model_calls_tools_over_http(stores: Stores, http_library: str) -> None:
    toolset = MCP(http_library)
    async with asyncio.timeout(20):
        while not toolset.offered:
            try:
                await toolset.refresh()
            except ToolsUnavailable:
                toolset = MCP(http_library)
                await asyncio.sleep(0.1)
    await run(stores, Agent("a", tools=[toolset]), [Call("add", {"a": 2, "b": 40})], "Done.")
    await toolset.close()
    assert await results(stores) == ["42"]
