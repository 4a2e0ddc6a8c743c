"""OpenAILLM against a real HTTP server that speaks the protocol."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.responses import PlainTextResponse

from helix_agents.agent import Agent
from helix_agents.backends.registry import open_stores
from helix_agents.errors import ModelError
from helix_agents.executor import AgentExecutor, RetryPolicy
from helix_agents.llm.contract import (
    Finished,
    ModelEvent,
    ModelRequest,
    TextDelta,
    ThinkingDelta,
    TokenUsage,
    ToolCallDelta,
    ToolSpec,
)
from helix_agents.llm.openai import OpenAILLM
from helix_agents.tools import tool
from tests.llm.endpoint import Endpoint, call_delta, delta, problem, serving, usage

ASK = ModelRequest(messages=[{"role": "user", "content": "Hi"}], instructions="Be brief.")
NO_JSON = PlainTextResponse("data: {no json\n\n", media_type="text/event-stream")


@asynccontextmanager
async def model(endpoint: Endpoint) -> AsyncIterator[OpenAILLM]:
    llm = OpenAILLM("test-model", base_url=endpoint.base_url, api_key="secret", temperature=0)
    yield llm
    await llm.close()


async def ask(endpoint: Endpoint, request: ModelRequest = ASK) -> list[ModelEvent]:
    async with model(endpoint) as llm:
        return [event async for event in llm.stream(request)]


async def test_text_thinking_and_usage_arrive_in_order() -> None:
    chunks = [delta(role="assistant"), delta(reasoning_content="Hm."), delta(content="Hel"), delta(content="lo")]
    async with serving([*chunks, delta("stop"), usage(11, 7, reasoning=3, cached=5)]) as endpoint:
        events = await ask(endpoint)
    expected = [ThinkingDelta("Hm."), TextDelta("Hel"), TextDelta("lo")]
    assert events == [*expected, Finished("stop"), TokenUsage("test-model-1", 11, 7, 3, 5)]


async def test_the_request_is_what_the_protocol_wants() -> None:
    tools = [ToolSpec("search", "Find things.", {"type": "object", "properties": {}})]
    history: list[dict[str, Any]] = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "name": "search", "arguments": {"q": "é"}}]},
        {"role": "tool", "tool_call_id": "c1", "tool_name": "search", "content": "found", "success": True},
        {"role": "assistant", "content": "Cut o", "interrupted": True},
    ]
    async with serving([delta(content="ok"), delta("stop")]) as endpoint:
        await ask(endpoint, ModelRequest(messages=history, instructions="Be brief.", tools=tools))
        (sent,) = endpoint.requests
    assert endpoint.headers[0]["authorization"] == "Bearer secret"
    assert (sent["model"], sent["stream"], sent["temperature"]) == ("test-model", True, 0)
    assert sent["tools"][0]["function"]["name"] == "search"
    assert sent["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "search", "arguments": '{"q":"é"}'}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "found"},
        {"role": "assistant", "content": "Cut o"},
    ]


async def test_parallel_tool_calls_arrive_piece_by_piece() -> None:
    chunks = [
        call_delta(0, id="a", name="search"),
        call_delta(0, arguments='{"q":'),
        call_delta(1, id="b", name="search"),
        call_delta(0, arguments='"x"}'),
        call_delta(1, arguments='{"q":"y"}'),
    ]
    async with serving([*chunks, delta("tool_calls")]) as endpoint:
        events = await ask(endpoint)
    calls = [event for event in events if isinstance(event, ToolCallDelta)]
    assert "".join(call.arguments for call in calls if call.index == 0) == '{"q":"x"}'
    assert [(call.index, call.id, call.name) for call in calls if call.id] == [(0, "a", "search"), (1, "b", "search")]


@pytest.mark.parametrize(
    ("status", "retryable"), [(400, False), (401, False), (404, False), (429, True), (500, True), (503, True)]
)
async def test_an_error_status_says_whether_to_try_again(status: int, retryable: bool) -> None:
    async with serving(problem(status, "no luck", **{"retry-after": "3"})) as endpoint:
        with pytest.raises(ModelError, match=f"{status}.*no luck") as caught:
            await ask(endpoint)
    assert (caught.value.retryable, caught.value.retry_after_seconds) == (retryable, 3.0)


async def test_a_connection_that_breaks_off_may_be_tried_again() -> None:
    async with serving([delta(content="Hel"), {"drop": True}]) as endpoint:
        with pytest.raises(ModelError) as caught:
            await ask(endpoint)
    assert caught.value.retryable


async def test_an_answer_without_a_finish_reason_was_broken_off() -> None:
    async with serving([delta(content="half a")]) as endpoint:
        with pytest.raises(ModelError, match="finish_reason") as caught:
            await ask(endpoint)
    assert caught.value.retryable


async def test_a_silent_endpoint_in_mid_answer_may_be_tried_again() -> None:
    async with serving([delta(content="Hel"), {"sleep": 5}]) as endpoint:
        llm = OpenAILLM("test-model", base_url=endpoint.base_url, api_key="secret", timeout_seconds=0.2)
        with pytest.raises(ModelError) as caught:
            _ = [event async for event in llm.stream(ASK)]
        await llm.close()
    assert caught.value.retryable


@pytest.mark.parametrize("reason", ["length", "content_filter"])
async def test_a_run_tells_why_the_model_stopped(reason: str) -> None:
    async with serving([delta(content="Half"), delta(reason)]) as endpoint, open_stores("memory:") as stores:
        async with model(endpoint) as llm:
            executor = AgentExecutor(stores.state, stores.streams, llm)
            result = await (await executor.execute(Agent("main"), "Hi", session_id="s")).result()
        messages = (await stores.state.get_messages("s")).items
    assert (result.output, result.finish_reason) == ("Half", reason)
    assert messages[-1]["finish_reason"] == reason


@pytest.mark.parametrize("answer", [PlainTextResponse("<html></html>"), PlainTextResponse(""), NO_JSON])
async def test_what_is_no_answer_does_not_pass_for_an_empty_one(answer: PlainTextResponse) -> None:
    async with serving(answer) as endpoint:
        with pytest.raises(ModelError) as caught:
            await ask(endpoint)
    assert caught.value.retryable


async def test_whole_calls_without_an_index_stay_apart() -> None:
    calls = [{"id": f"c{n}", "type": "function", "function": {"name": "add", "arguments": "{}"}} for n in (1, 2)]
    async with serving([delta(tool_calls=calls), delta("tool_calls")]) as endpoint:
        events = await ask(endpoint)
    calls_seen = [ToolCallDelta(n - 1, id=f"c{n}", name="add", arguments="{}") for n in (1, 2)]
    assert events == [*calls_seen, Finished("tool_calls")]


async def test_text_that_no_request_can_carry_is_replaced() -> None:
    async with serving([delta("stop")]) as endpoint:
        await ask(endpoint, ModelRequest(messages=[{"role": "user", "content": "a\ud800b"}]))
    assert endpoint.requests[0]["messages"] == [{"role": "user", "content": "a?b"}]


async def test_nobody_listening_may_be_tried_again() -> None:
    async with serving() as endpoint:
        pass
    with pytest.raises(ModelError) as caught:
        await ask(endpoint)
    assert caught.value.retryable


async def test_a_whole_run_over_http_with_a_broken_answer_on_the_way() -> None:
    @tool
    def search(q: str) -> str:
        """Find things."""
        return f"found {q}"

    two_calls = [
        call_delta(0, id="a", name="search", arguments='{"q":"x"}'),
        call_delta(1, id="b", name="search", arguments='{"q":"y"}'),
        delta("tool_calls"),
        usage(10, 5),
    ]
    answers = (
        [delta(content="Broken"), {"drop": True}],
        two_calls,
        problem(503, "busy"),
        [delta(content="Done."), delta("stop"), usage(20, 2)],
    )
    async with serving(*answers) as endpoint, open_stores("memory:") as stores, model(endpoint) as llm:
        retry = RetryPolicy(first_wait_seconds=0.001)
        executor = AgentExecutor(stores.state, stores.streams, llm, usage_store=stores.usage, retry=retry)
        handle = await executor.execute(Agent("main", tools=[search]), "Hi", session_id="s")
        result = await handle.result()
        messages = (await stores.state.get_messages("s")).items
        chunks = [stored.chunk for stored in await stores.streams.get_all_chunks("s")]
        rollup = await handle.get_usage_rollup()
    assert result.output == "Done."
    assert [message["content"] for message in messages] == ["Hi", "", "found x", "found y", "Done."]
    assert "".join(chunk["delta"] for chunk in chunks if chunk["type"] == "text_delta") == "Done."
    assert rollup.by_model["test-model-1"].total == 37
    assert [message["role"] for message in endpoint.requests[-1]["messages"]] == ["user", "assistant", "tool", "tool"]
