"""Every chunk that a run writes is one of `AnyChunk`, with all of its fields and no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import pytest

from helix_agents.agent import Agent
from helix_agents.backends.inmemory.state_store import InMemoryStateStore
from helix_agents.backends.inmemory.stream_manager import InMemoryStreamManager
from helix_agents.chunks import Chunk, chunk_types
from helix_agents.executor import AgentExecutor
from helix_agents.llm import Call, Reply, ScriptedLLM
from helix_agents.llm.contract import ModelRequest
from helix_agents.llm.scripted import Line
from helix_agents.tools import ToolContext, tool

PAGE = Path(__file__).parents[2] / "docs" / "chunks.md"


@tool
async def note(text: str, ctx: ToolContext) -> str:
    """Write down."""
    ctx.update_state(lambda state: state["notes"].append(text))
    ctx.emit("noted", {"text": text})
    return "noted"


@tool
def fail() -> str:
    """Fail."""
    raise ValueError("no")


@tool(requires_approval=True, deadline_seconds=3600)
def publish(title: str) -> str:
    """Publish."""
    return title


@tool(execute="client")
def ask(question: str) -> str:
    """Ask."""
    raise NotImplementedError


helper = Agent("reader", tools=[note], state={"notes": []})
everything = Agent("everything", tools=[note, fail, publish, ask, helper.as_tool()], state={"notes": []})


def play(request: ModelRequest) -> Line:
    spoken = sum(message["role"] == "assistant" for message in request.messages)
    if request.agent_type == "reader":
        return [Call("note", {"text": "read"})] if spoken == 0 else "Read."
    if spoken == 0:
        calls = [Call("note", {"text": "a"}), Call("fail", {}), Call("reader", {"input": "go"})]
        return Reply("Working.", calls, thinking="Hm.")
    if spoken == 1:
        return [Call("publish", {"title": "T"}), Call("ask", {"question": "Q"})]
    return "Done."


def problems(chunk: Chunk) -> list[str]:
    """Return what is wrong with a chunk that the library wrote."""
    kind = chunk_types().get(chunk["type"])
    if kind is None:
        return [f"{chunk['type']} is not in AnyChunk"]
    unknown = set(chunk) - set(get_type_hints(kind))
    try:
        msgspec.convert(chunk, kind)
    except msgspec.ValidationError as error:
        return [f"{chunk['type']}: {error}"]
    return [f"{chunk['type']} has the unlisted field {name}" for name in sorted(unknown)]


async def chunks_of_a_full_run() -> list[Chunk]:
    streams = InMemoryStreamManager()
    async with AgentExecutor(InMemoryStateStore(), streams, ScriptedLLM(play)) as executor:
        handle = await executor.execute(everything, "go", session_id="s")
        for wait in (await handle.result()).suspended:
            answer: dict[str, Any] = {"approved": True} if wait.tool_name == "publish" else {"result": "A"}
            await executor.submit_tool_result("s", wait.tool_call_id, **answer)
        await (await handle.resume()).result()
        first = await streams.get_all_chunks("s")
        await (await executor.execute(everything, "again", session_id="s")).result()
        await streams.cleanup_to_step("s", 2)
        return [stored.chunk for stored in (*first, *await streams.get_all_chunks("s"))]


async def test_a_run_writes_listed_chunks_only() -> None:
    chunks = await chunks_of_a_full_run()
    assert [problem for chunk in chunks for problem in problems(chunk)] == []
    unseen = set(chunk_types()) - {chunk["type"] for chunk in chunks}
    elsewhere = {"tool_outcome_request", "branch_switched"}
    assert unseen - elsewhere == {"error", "run_interrupted"}  # those of runs that end badly


@pytest.mark.parametrize("kind", sorted(chunk_types()))
def test_the_page_lists_every_type_with_its_fields(kind: str) -> None:
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith(f"| `{kind}` |")]
    assert len(lines) == 1
    own = set(chunk_types()[kind].__annotations__) - {"type"}
    shared = {"agent_id", "agent_type", "timestamp", "step", "sub_session_id", "sub_step"}
    assert {name for name in own - shared if f"`{name}`" not in lines[0]} == set()
