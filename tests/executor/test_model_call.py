"""What models can do wrong, and how a run reports it; on memory, since the store does not matter."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from helix_agents.agent import Agent
from helix_agents.backends.registry import Stores, open_stores
from helix_agents.executor import AgentExecutor, AgentResult
from helix_agents.llm import Call, ScriptedLLM
from helix_agents.llm.contract import (
    Finished,
    ModelEvent,
    ModelRequest,
    StartOver,
    TextDelta,
    ThinkingDelta,
    TokenUsage,
    ToolCallDelta,
)
from helix_agents.llm.scripted import Script
from helix_agents.messages import without_id
from helix_agents.tools import ToolContext, tool


@pytest.fixture
async def stores() -> AsyncIterator[Stores]:
    async with open_stores("memory:") as opened:
        yield opened


async def run(stores: Stores, agent: Agent, script: Script, **options: Any) -> AgentResult:
    async with AgentExecutor(stores.state, stores.streams, ScriptedLLM(script), **options) as executor:
        return await (await executor.execute(agent, "Go", session_id="s")).result()


async def tool_answers(stores: Stores) -> list[str]:
    messages = (await stores.state.get_messages("s", limit=None)).items
    return [message["content"] for message in messages if message["role"] == "tool"]


@pytest.mark.parametrize("event", ["a plain text", {"type": "text", "text": "hi"}, None])
async def test_an_event_that_nobody_knows_fails_the_run_by_name(stores: Stores, event: Any) -> None:
    class Odd:
        async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
            yield event

    async with AgentExecutor(stores.state, stores.streams, Odd()) as executor:
        result = await (await executor.execute(Agent("main"), "Go")).result()
    assert (result.status, result.output) == ("failed", None)
    assert repr(event) in (result.error or "")


async def test_a_run_that_used_up_its_steps_goes_on_as_its_error_says(stores: Stores) -> None:
    @tool
    def look() -> str:
        """Look around."""
        return "nothing"

    agent = Agent("main", tools=[look], max_steps=1)
    async with AgentExecutor(stores.state, stores.streams, ScriptedLLM([[Call("look")], "Done."])) as executor:
        first = await (await executor.execute(agent, "Go", session_id="s")).result()
        again = await (await executor.execute(agent, "Go on", session_id="s")).result()
    assert first.status == "failed"
    assert "execute() on the session with a message" in (first.error or "")
    assert (again.status, again.output) == ("completed", "Done.")


async def test_a_bad_value_in_the_state_or_in_a_chunk_is_not_blamed_on_the_answer(stores: Stores) -> None:
    @tool
    async def put(where: str, ctx: ToolContext) -> object:
        """Put something that is not JSON somewhere."""
        if where == "state":
            ctx.update_state(lambda draft: draft.update(callback=print))
        if where == "chunk":
            ctx.emit("news", {"callback": print})
        return print

    calls = [Call("put", {"where": where}) for where in ("state", "chunk", "answer")]
    await run(stores, Agent("main", tools=[put]), [calls, "Done."])
    state, chunk, answer = await tool_answers(stores)
    assert "The tool's result is not JSON" in answer
    assert "/callback" in state
    assert "/callback" in chunk
    assert "answer" not in state + chunk


async def test_lost_writes_are_logged_as_warnings(stores: Stores, caplog: pytest.LogCaptureFixture) -> None:
    @tool
    async def choose(topic: str, ctx: ToolContext) -> str:
        """Choose a topic."""
        ctx.update_state(lambda draft: draft.update(topic=topic))
        return topic

    calls = [Call("choose", {"topic": topic}) for topic in ("cats", "dogs")]
    with caplog.at_level(logging.WARNING, logger="helix_agents"):
        result = await run(stores, Agent("main", tools=[choose]), [calls, "Done."])
    logged = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(result.warnings) == 1
    assert any("/topic" in line and "'s'" not in line for line in logged)


@pytest.mark.parametrize("kind", [TextDelta, ThinkingDelta])
async def test_a_character_that_the_model_splits_over_two_deltas_is_joined(kind: Any) -> None:
    smile, half = "\N{GRINNING FACE}", "\ud83d"

    class Splits:
        async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
            for text in ("Hi ", half, "\ude00", f"{half}\ude00 and{half}", "\ude00!", half):
                yield kind(text)
            yield TextDelta("")
            yield Finished("stop")

    async with open_stores("memory:") as stores:
        async with AgentExecutor(stores.state, stores.streams, Splits()) as executor:
            await (await executor.execute(Agent("a"), "Go", session_id="s")).result()
        said = (await stores.state.get_messages("s", include_thinking=True)).items[-1]
        shown = [stored.chunk for stored in await stores.streams.get_all_chunks("s")]
    whole = f"Hi {smile}{smile} and{smile}!{half}"
    assert said["content" if kind is TextDelta else "thinking"] == whole
    pieces = [chunk.get("delta") or chunk.get("content") or "" for chunk in shown]
    assert whole in "".join(piece for piece in pieces if isinstance(piece, str))


async def test_the_name_of_a_call_may_come_late_and_counts_once(stores: Stores) -> None:
    class Late:
        async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
            if request.messages[-1]["role"] == "tool":
                yield TextDelta("Done.")
                return
            yield ToolCallDelta(0, "c1", None, '{"text": ')
            yield ToolCallDelta(0, None, "echo", '"hi"')
            yield ToolCallDelta(0, None, "other", "}")

    @tool
    def echo(text: str) -> str:
        """Say it again."""
        return text

    async with AgentExecutor(stores.state, stores.streams, Late()) as executor:
        result = await (await executor.execute(Agent("main", tools=[echo]), "Go", session_id="s")).result()
    assert (result.output, await tool_answers(stores)) == ("Done.", ["hi"])


async def test_nothing_that_came_before_a_new_beginning_counts(stores: Stores) -> None:
    class Changing:
        async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
            yield ThinkingDelta("hm")
            yield TextDelta("half")
            yield ToolCallDelta(0, "c1", "nothing", "{}")
            yield TokenUsage("first", 10, 10)
            yield Finished("length")
            yield StartOver()
            yield TextDelta("Done.")

    async with AgentExecutor(stores, Changing()) as executor:
        handle = await executor.execute(Agent("main"), "Go", session_id="s")
        result = await handle.result()
        rollup = await handle.get_usage_rollup()
    assert (result.output, result.finish_reason, rollup.tokens.total) == ("Done.", None, 0)
    answer = (await stores.state.get_messages("s")).items[-1]
    assert without_id(answer) == {"role": "assistant", "content": "Done."}
    shown = [stored.chunk["type"] for stored in await stores.streams.get_all_chunks("s")]
    assert [kind for kind in shown if kind in ("thinking", "text_delta", "tool_arg_delta")] == ["text_delta"]


async def test_a_stream_of_events_that_is_given_up_is_closed(stores: Stores) -> None:
    closed: list[bool] = []
    kept: list[AsyncIterator[ModelEvent]] = []

    class Odd:
        def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
            kept.append(self.events())
            return kept[-1]

        async def events(self) -> AsyncIterator[Any]:
            try:
                yield "not an event"
            finally:
                closed.append(True)

    async with AgentExecutor(stores.state, stores.streams, Odd()) as executor:
        result = await (await executor.execute(Agent("main"), "Go")).result()
    assert (result.status, closed, len(kept)) == ("failed", [True], 1)


async def test_readers_are_told_when_the_model_has_thought_to_its_end(stores: Stores) -> None:
    class Thinking:
        async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
            yield ThinkingDelta("hm")
            yield TextDelta("Done.")

    async with AgentExecutor(stores.state, stores.streams, Thinking()) as executor:
        await (await executor.execute(Agent("main"), "Go", session_id="s")).result()
    shown = [each.chunk for each in await stores.streams.get_all_chunks("s") if each.chunk["type"] == "thinking"]
    assert [(chunk["content"], chunk["is_complete"]) for chunk in shown] == [("hm", False), ("", True)]


ODD_ARGUMENTS = {
    "3,000 levels": '{"value": ' + "[" * 3000 + "]" * 3000 + "}",
    "190 levels": '{"value": ' + "[" * 190 + "]" * 190 + "}",
    "100,000 levels": '{"value": ' + "[" * 100_000 + "]" * 100_000 + "}",
    "NaN": '{"value": NaN}',
    "infinity": '{"value": [-Infinity]}',
    "1e999": '{"value": 1e999}',
    "5,000 digits": '{"value": ' + "9" * 5000 + "}",
}


@pytest.mark.parametrize("name", ODD_ARGUMENTS)
async def test_arguments_that_cannot_be_stored_are_reported_to_the_model(stores: Stores, name: str) -> None:
    @tool
    def keep(value: Any) -> str:
        """Keep a value."""
        return "kept"

    script: Script = [[Call("keep", ODD_ARGUMENTS[name]), Call("keep", {"value": 1})], "Sorry."]
    result = await run(stores, Agent("main", tools=[keep]), script)
    assert (result.status, result.output) == ("completed", "Sorry.")
    odd, usual = await tool_answers(stores)
    assert "one JSON object" in odd
    assert usual == "kept"
