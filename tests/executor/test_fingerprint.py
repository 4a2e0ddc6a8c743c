"""The checkpoint of a step identifies the request that was sent to the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import pytest

from helix_agents.agent import Agent
from helix_agents.backends.registry import Stores, open_stores
from helix_agents.codec import decode, encode
from helix_agents.executor import AgentExecutor
from helix_agents.history import HistoryContext, last, summarized
from helix_agents.llm.scripted import Call, Script, ScriptedLLM
from helix_agents.messages import Message
from helix_agents.stores.blobs.spaces import REQUESTS
from helix_agents.tools import ToolContext, tool


@tool
async def count(ctx: ToolContext) -> str:
    """Count."""
    ctx.increment("n")
    return "counted"


@tool(when=lambda state: state["n"] > 1)
async def extra() -> str:
    """Comes later."""
    return "extra"


@tool(requires_approval=True)
async def pay() -> str:
    """Pay."""
    return "paid"


async def asked(stores: Stores, session_id: str = "s") -> list[dict[str, Any]]:
    """Return the fingerprints of a session's steps, oldest first."""
    page = await stores.state.list_checkpoints(session_id, limit=200)
    steps = sorted((c for c in page.items if c.kind == "step"), key=lambda c: c.step_count)
    return [step.request or {} for step in steps]


async def test_what_changes_shows() -> None:
    agent = Agent(
        "a",
        instructions=lambda state: f"n is {state['n'] // 2}",
        tools=[count, extra],
        state={"n": 0},
        version="7",
    )
    llm = ScriptedLLM([[Call("count")], [Call("count")], "Done."], model="m-1")
    async with open_stores("memory:") as stores:
        await AgentExecutor(stores, llm).run(agent, "Go", session_id="s")
        one, two, three = await asked(stores)
    assert one["instructions"] == two["instructions"] != three["instructions"]
    assert one["tools"] == two["tools"] != three["tools"]
    assert [each["window"] for each in (one, two, three)] == [[0, 1], [0, 3], [0, 5]]
    assert {each["agent"] for each in (one, two, three)} == {"7"}


async def test_the_model_its_options_and_the_tool_choice() -> None:
    class Named(ScriptedLLM):
        provider = "acme"
        model = "m-1"
        options: ClassVar[dict[str, Any]] = {"temperature": 0.5}

    agent = Agent("a", tools=[count], state={"n": 0}, tool_choice="count")
    async with open_stores("memory:") as stores:
        llm = Named([[Call("count")], "Done.", "Again."])
        await AgentExecutor(stores, llm).run(agent, "Go", session_id="s")
        Named.options = {"temperature": 0.7}
        await AgentExecutor(stores, llm).run(Agent("a"), "Go", session_id="s")
        one, two, three = await asked(stores)
    assert one["model"] == "acme:m-1"
    assert one["options"] == two["options"] != three["options"]
    assert (one["tool_choice"], two.get("tool_choice")) == ("count", None)


def invented(messages: Sequence[Message], context: HistoryContext) -> list[Message]:
    return [{"role": "user", "content": "x"}, dict(messages[-1])]


async def test_the_window_of_the_history() -> None:
    short = ScriptedLLM(lambda request: "Short.")
    async with open_stores("memory:") as stores:
        executor = AgentExecutor(stores, ScriptedLLM(lambda request: "Yes."))
        for history in (None, last(2), summarized(short, keep=1, after=2), invented):
            await executor.run(Agent("a", history=history), "Hi", session_id="s")
        windows = [each["window"] for each in await asked(stores)]
    assert windows == [[0, 1], [1, 3], [4, 5], None]


@pytest.mark.parametrize("durability", ["call", "step"])
async def test_a_step_that_another_process_commits_keeps_its_request(durability: Any) -> None:
    agent = Agent("a", instructions="Be brief.", tools=[pay])
    other = Agent("a", instructions="Be long.", tools=[pay])
    script: Script = [[Call("pay")], "Done."]
    async with open_stores("memory:") as stores:
        first = AgentExecutor(stores, ScriptedLLM(script), durability=durability)
        result = await first.run(agent, "Go", session_id="s")
        aside = (await stores.state.list_checkpoints("s")).items[0]
        assert aside.kind == "aside"
        second = AgentExecutor(stores, ScriptedLLM(script), agents=[other])
        await second.submit_tool_result("s", result.suspended[0].tool_call_id, approved=True)
        await (await second.resume("a", "s")).result()
        one, two = await asked(stores)
    assert aside.request == one
    assert one["instructions"] != two["instructions"]


async def test_texts_are_stored_once_per_version() -> None:
    agent = Agent("a", instructions="Be brief.", tools=[count], state={"n": 0})
    async with open_stores("memory:") as stores:
        executor = AgentExecutor(stores, ScriptedLLM([[Call("count")], "Done."]))
        for session_id in ("s", "t"):
            await executor.run(agent, "Go", session_id=session_id)
        (one, *_) = await asked(stores)
        assert await stores.blobs.get(REQUESTS, one["instructions"]) == b"Be brief."
        specs = decode((await stores.blobs.get(REQUESTS, one["tools"]) or b"").decode())
        assert len((await stores.blobs.list(REQUESTS)).items) == 2
    assert [spec[:2] for spec in specs] == [["count", "Count."]]


async def test_instructions_that_may_quote_the_state_are_not_stored() -> None:
    agent = Agent("a", instructions=lambda state: "The user is Ann.")
    async with open_stores("memory:") as stores:
        await AgentExecutor(stores, ScriptedLLM(["Hi."])).run(agent, "Go", session_id="s")
        (one,) = await asked(stores)
        assert await stores.blobs.get(REQUESTS, one["instructions"]) is None


async def test_a_fingerprint_is_small() -> None:
    async with open_stores("memory:") as stores:
        await AgentExecutor(stores, ScriptedLLM(["Hi."])).run(
            Agent("a", instructions="x" * 10_000), "Go", session_id="s"
        )
        (one,) = await asked(stores)
    assert len(encode(one)) < 400
