"""Which part of a conversation the model sees, and which part is stored."""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import AsyncIterator, Sequence
from statistics import median
from types import FrameType
from typing import Any

import pytest

from helix_agents import Agent, AgentExecutor, InvalidArgument, ScriptedLLM, UsageLimits, open_stores, tool
from helix_agents.backends.registry import Stores
from helix_agents.errors import ModelError
from helix_agents.executor import AgentResult, Hooks
from helix_agents.executor.run.hooks import RunInfo
from helix_agents.history import History, HistoryContext, last, summarized, within_tokens
from helix_agents.llm import Call, ModelRequest, Reply, TextDelta, TokenUsage
from helix_agents.messages import Message


@tool
def look() -> str:
    """Look around."""
    return "nothing"


@pytest.fixture
async def stores() -> AsyncIterator[Stores]:
    async with open_stores("memory:") as opened:
        yield opened


async def talk(stores: Stores, history: History, turns: int, llm: ScriptedLLM) -> AgentResult:
    agent = Agent("main", tools=[look], history=history)
    async with AgentExecutor(stores.state, stores.streams, llm) as executor:
        for turn in range(turns):
            result = await (await executor.execute(agent, f"Question {turn}", session_id="s")).result()
    return result


def chatty() -> ScriptedLLM:
    """Calls a tool after every user message, then replies."""
    return ScriptedLLM(lambda request: "Answer." if request.messages[-1]["role"] == "tool" else [Call("look")])


async def test_the_last_messages_keep_their_pairs_and_the_transcript_stays_whole(stores: Stores) -> None:
    llm = chatty()
    await talk(stores, last(3), 3, llm)
    assert max(len(request.messages) for request in llm.requests) <= 3
    assert all(request.messages[0]["role"] != "tool" for request in llm.requests)
    assert (await stores.state.get_message_count("s")) == 12


async def test_tokens_bound_what_is_sent(stores: Stores) -> None:
    llm = chatty()
    await talk(stores, within_tokens(3, count=lambda message: 1), 3, llm)
    assert max(len(request.messages) for request in llm.requests) <= 3


async def test_what_is_old_is_summarized_once_and_stored(stores: Stores) -> None:
    llm = chatty()
    made = itertools.count(1)
    writer = ScriptedLLM(lambda request: f"Summary {next(made)}.")
    await talk(stores, summarized(writer, keep=2, after=5), 3, llm)
    first = llm.requests[-1].messages[0]
    assert first["content"] == f"Summary of the conversation so far:\nSummary {len(writer.requests)}."
    messages = (await stores.state.get_messages("s", limit=None)).items
    kept = [message for message in messages if message["role"] == "summary"]
    assert [message["content"] for message in kept] == [f"Summary {n + 1}." for n in range(len(writer.requests))]
    assert len(messages) - len(kept) == 12


async def test_a_summary_is_not_made_again_after_a_crash(stores: Stores) -> None:
    writer = ScriptedLLM(lambda request: "Summary.")
    asked = asyncio.Event()

    class Dying(ScriptedLLM):
        async def stream(self, request: Any) -> Any:
            asked.set()
            await asyncio.Event().wait()
            yield

    await talk(stores, lambda messages, context: messages, 2, chatty())
    agent = Agent("main", tools=[look], history=summarized(writer, keep=2, after=5))
    async with AgentExecutor(stores.state, stores.streams, Dying([])) as executor:
        await executor.execute(agent, "Question", session_id="s")
        await asked.wait()
    async with AgentExecutor(stores.state, stores.streams, chatty()) as other:
        result = await (await other.resume(agent, "s")).result()
    assert (result.output, len(writer.requests)) == ("Answer.", 1)
    messages = (await stores.state.get_messages("s", limit=None)).items
    assert [message["content"] for message in messages if message["role"] == "summary"] == ["Summary."]


class Broken:
    """An adapter with a bug."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta]:
        yield TextDelta("half a summ")
        raise ValueError("a bug")


@pytest.mark.parametrize("writer", [ScriptedLLM([ModelError("busy")]), Broken()])
async def test_a_summary_that_fails_leaves_the_messages_as_they_are(stores: Stores, writer: Any) -> None:
    llm = chatty()
    result = await talk(stores, summarized(writer, keep=2, after=5), 3, llm)
    assert (result.output, len(llm.requests[-1].messages)) == ("Answer.", 11)


def raises(messages: Sequence[Message], context: HistoryContext) -> Sequence[Message]:
    raise KeyError("oops")


@pytest.mark.parametrize(
    ("history", "words"),
    [
        (raises, "KeyError"),
        (lambda messages, context: [m for m in messages if m["role"] != "tool"], "lost its result"),
        (lambda messages, context: [m for m in messages if m["role"] != "assistant"], "lost its call"),
        (lambda messages, context: ["text"], "history failed"),
        (lambda messages, context: [], "no messages"),
        (lambda messages, context: [{"role": "wizard", "content": ""}], "Unknown role 'wizard'"),
    ],
)
async def test_a_history_that_misbehaves_fails_the_run_with_the_reason(
    stores: Stores, history: History, words: str
) -> None:
    result = await talk(stores, history, 1, chatty())
    session = await stores.state.load_state("s")
    assert session is not None
    assert (result.status, session.failure_reason) == ("failed", "history_error")
    assert words in (result.error or "")


async def test_what_a_summary_costs_is_counted(stores: Stores) -> None:
    writer = ScriptedLLM(lambda request: Reply("Summary.", usage=TokenUsage("cheap", prompt=10, completion=5)))
    agent = Agent("main", history=summarized(writer, keep=1, after=2), limits=UsageLimits(tokens=1_000, per="session"))
    async with AgentExecutor(stores, ScriptedLLM(lambda request: "Answer.")) as executor:
        for _ in range(3):
            await executor.run(agent, "Question", session_id="s")
    rollup = await stores.usage.get_rollup("s")
    assert rollup.by_model["cheap"].total == 15 * len(writer.requests) > 0


async def test_a_history_may_be_async_and_knows_where_it_is(stores: Stores) -> None:
    seen: list[tuple[str, int]] = []

    async def choose(messages: Sequence[Message], context: HistoryContext) -> Sequence[Message]:
        await asyncio.sleep(0)
        seen.append((context.session_id, context.step))
        return messages

    await talk(stores, choose, 1, chatty())
    assert seen == [("s", 1), ("s", 2)]


@pytest.mark.parametrize(
    "make", [lambda: last(0), lambda: within_tokens(-1), lambda: summarized(chatty(), keep=9, after=9)]
)
def test_numbers_that_make_no_sense_are_refused_at_once(make: Any) -> None:
    with pytest.raises(InvalidArgument):
        make()


async def test_a_step_costs_the_same_after_any_number_of_messages(stores: Stores) -> None:
    counts: list[int] = []

    class Counted(Hooks):
        """Counts the functions that each step calls, without those of the model."""

        def __init__(self) -> None:
            self.calls = 0

        def _count(self, frame: FrameType, event: str, argument: object) -> None:
            self.calls += event == "call" and "/llm/" not in frame.f_code.co_filename

        async def step_started(self, run: RunInfo, step: int) -> None:
            self.calls = 0
            sys.setprofile(self._count)

        async def step_ended(self, run: RunInfo, step: int, status: str) -> None:
            sys.setprofile(None)
            counts.append(self.calls)

    steps = 120
    llm = ScriptedLLM(lambda request: [Call("look")] if request.step < steps else "Done.")
    agent = Agent("main", tools=[look], max_steps=steps)
    async with AgentExecutor(stores, llm, hooks=[Counted()]) as executor:
        assert (await executor.run(agent, "Go")).status == "completed"
    early, late = median(counts[10:20]), median(counts[-12:-2])
    assert late < early * 1.05, (early, late)
