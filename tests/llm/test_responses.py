"""OpenAIResponsesLLM against a real HTTP server that replays the API's event streams."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.responses import PlainTextResponse

from helix_agents.errors import ModelError
from helix_agents.llm.contract import (
    Finished,
    ModelRequest,
    TextDelta,
    ThinkingDelta,
    TokenUsage,
    ToolCallDelta,
    ToolSpec,
)
from helix_agents.llm.native import Native, with_native
from helix_agents.messages import Message
from tests.llm.dialects import ASK, ask, call_item, gpt_at, message_item, native_of, reasoning_item, responses
from tests.llm.endpoint import Events, problem, serving

SEARCH = ToolSpec("search", "Find things.", {"type": "object", "properties": {}})
HELLO = responses(message_item("Hello."))
NOT_JSON = PlainTextResponse("event: response.created\ndata: {no json\n\n", media_type="text/event-stream")


async def sent_for(messages: list[Message], **options: Any) -> list[dict[str, Any]]:
    """Return the items that a conversation becomes."""
    async with serving(HELLO) as endpoint:
        await ask(gpt_at(endpoint, **options), messages)
    items: list[dict[str, Any]] = endpoint.requests[0]["input"]
    return items


async def test_a_reply_arrives_as_events() -> None:
    items = [
        reasoning_item("First.", "Second."),
        message_item("Let me look."),
        call_item("weather", '{"city": "Paris"}'),
        call_item("weather", '{"city": "Rome"}', id="fc_2", call_id="call_def"),
    ]
    async with serving(responses(*items)) as endpoint:
        events = await ask(gpt_at(endpoint))
    assert "".join(event.text for event in events if isinstance(event, ThinkingDelta)) == "First.\n\nSecond."
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "Let me look."
    calls = [event for event in events if isinstance(event, ToolCallDelta)]
    assert [(e.index, e.id, e.name) for e in calls if e.id] == [(0, "call_abc", "weather"), (1, "call_def", "weather")]
    assert "".join(e.arguments for e in calls if e.index == 1) == '{"city": "Rome"}'
    assert native_of(events)["blocks"] == items
    assert native_of(events)["issuer"] == f"openai@{endpoint.base_url.removeprefix('http://')}"


async def test_the_request_is_what_the_api_wants() -> None:
    async with serving(HELLO) as endpoint:
        request = ModelRequest(messages=ASK.messages, instructions="Be brief.", tools=[SEARCH], tool_choice="search")
        await ask(gpt_at(endpoint, reasoning={"effort": "low"}, prompt_cache_key="a"), request)
    assert endpoint.paths == ["/v1/responses"]
    assert endpoint.requests == [
        {
            "model": "gpt-test",
            "instructions": "Be brief.",
            "input": [{"role": "user", "content": "Hi"}],
            "store": False,
            "include": ["reasoning.encrypted_content"],
            "stream": True,
            "reasoning": {"effort": "low"},
            "prompt_cache_key": "a",
            "tool_choice": {"type": "function", "name": "search"},
            "tools": [
                {
                    "type": "function",
                    "name": "search",
                    "description": "Find things.",
                    "parameters": SEARCH.input_schema,
                    "strict": False,
                }
            ],
        }
    ]


async def test_tools_that_the_provider_runs_are_added() -> None:
    async with serving(HELLO) as endpoint:
        request = ModelRequest(messages=ASK.messages, tools=[SEARCH], tool_choice="required")
        await ask(gpt_at(endpoint, tools=[{"type": "web_search"}]), request)
    assert [tool["type"] for tool in endpoint.requests[0]["tools"]] == ["function", "web_search"]
    assert endpoint.requests[0]["tool_choice"] == "required"


REFUSAL = {**message_item(""), "content": [{"type": "refusal", "refusal": "I cannot."}]}


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        (HELLO, "stop"),
        (responses(call_item("f", "{}")), "tool_calls"),
        (responses(message_item("Hi"), status="incomplete", why="max_output_tokens"), "length"),
        (responses(message_item("Hi"), status="incomplete", why="content_filter"), "content_filter"),
        (responses(message_item("Hi"), status="incomplete", why="something_new"), "something_new"),
        (responses(REFUSAL), "content_filter"),
    ],
)
async def test_finish_reasons_and_usage(events: Events, reason: str) -> None:
    async with serving(events) as endpoint:
        got = await ask(gpt_at(endpoint))
    usage = TokenUsage("gpt-test-1", prompt=300, completion=90, reasoning=64, cached=256, cache_written=12)
    assert got[-2:] == [Finished(reason), usage]


async def test_a_refusal_is_text() -> None:
    async with serving(responses(REFUSAL)) as endpoint:
        events = await ask(gpt_at(endpoint))
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "I cannot."


# -- errors


@pytest.mark.parametrize(
    ("answer", "retryable", "wait"),
    [
        (problem(429, "Slow down", code="rate_limit_exceeded", **{"retry-after": "3"}), True, 3.0),
        (problem(429, "Pay first", code="insufficient_quota"), False, None),
        (problem(500, "Sorry"), True, None),
        (problem(400, "What?", code="invalid_prompt"), False, None),
        (problem(401, "Who?", code="invalid_api_key"), False, None),
        (PlainTextResponse("Bad gateway", status_code=502), True, None),
    ],
)
async def test_an_error_says_whether_to_retry(answer: Any, retryable: bool, wait: float | None) -> None:
    async with serving(answer) as endpoint:
        with pytest.raises(ModelError) as caught:
            await ask(gpt_at(endpoint))
    assert (caught.value.retryable, caught.value.retry_after_seconds) == (retryable, wait)
    assert len(endpoint.requests) == 1


def failed(code: str) -> dict[str, Any]:
    response = {**HELLO[0]["response"], "status": "failed", "error": {"code": code, "message": "Sorry"}}
    return {"type": "response.failed", "sequence_number": 9, "response": response}


def error(code: str) -> dict[str, Any]:
    return {"type": "error", "sequence_number": 9, "code": code, "message": "Sorry", "param": None}


@pytest.mark.parametrize(
    ("end", "retryable"),
    [
        (failed("server_error"), True),
        (failed("rate_limit_exceeded"), True),
        (failed("invalid_prompt"), False),
        (error("rate_limit_exceeded"), True),
        (error("insufficient_quota"), False),
        ({"type": "error", "error": {"message": "Sorry", "code": "insufficient_quota"}}, False),
        ({"type": "error", "error": {"message": "Sorry", "code": None}}, True),
    ],
)
async def test_an_error_inside_the_stream_is_judged_by_its_code(end: dict[str, Any], retryable: bool) -> None:
    async with serving([*HELLO[:3], end]) as endpoint:
        with pytest.raises(ModelError, match="ended its reply early: Sorry") as caught:
            await ask(gpt_at(endpoint))
    assert caught.value.retryable is retryable


@pytest.mark.parametrize(
    "answer",
    [
        HELLO[:-1],
        [*HELLO[:4], {"drop": True}],
        [],
        NOT_JSON,
        PlainTextResponse("<html></html>"),
        [{"type": "response.function_call_arguments.delta", "output_index": 4, "delta": "{"}],
    ],
    ids=["no response.completed", "dropped", "empty", "not JSON", "a page", "arguments of no call"],
)
async def test_a_stream_that_ends_early_or_makes_no_sense_may_be_retried(answer: Any) -> None:
    async with serving(answer) as endpoint:
        with pytest.raises(ModelError) as caught:
            await ask(gpt_at(endpoint))
    assert caught.value.retryable


# -- items


async def test_unknown_events_and_items() -> None:
    strange = {"id": "x_1", "type": "dance_call", "steps": [1, 2.5]}
    events = responses(message_item("Hi"), strange)
    async with serving([*events[:2], {"type": "response.mood.delta", "delta": "calm"}, *events[2:]]) as endpoint:
        got = await ask(gpt_at(endpoint))
    assert "".join(event.text for event in got if isinstance(event, TextDelta)) == "Hi"
    assert native_of(got)["blocks"] == [message_item("Hi"), strange]


async def test_a_call_that_comes_in_one_piece() -> None:
    """Compatible servers may send only the finished item."""
    events = [e for e in responses(call_item("f", '{"a":1}')) if "arguments" not in e["type"]]
    async with serving([e for e in events if e["type"] != "response.output_item.added"], events) as endpoint:
        for _ in range(2):
            calls = [event for event in await ask(gpt_at(endpoint)) if isinstance(event, ToolCallDelta)]
            assert (calls[0].id, calls[0].name) == ("call_abc", "f")
            assert "".join(event.arguments for event in calls) == '{"a":1}'


@pytest.mark.parametrize(
    "items", [[message_item("Hi")], [message_item("Hi"), call_item("f", '{"a":1}')], [call_item("f", "{}")]]
)
async def test_nothing_is_stored_twice_without_need(items: list[dict[str, Any]]) -> None:
    async with serving(responses(*items)) as endpoint:
        assert native_of(await ask(gpt_at(endpoint))) is None


@pytest.mark.parametrize(
    "items",
    [
        [message_item("Hi", phase="final_answer")],
        [call_item("f", '{"a": 1}')],  # with its space, for the prompt cache
        [call_item("f", '{"a":')],
        [call_item("f", "{}"), message_item("Hi")],
    ],
    ids=["a phase", "a space", "cut arguments", "another order"],
)
async def test_what_the_neutral_form_cannot_say_is_stored(items: list[dict[str, Any]]) -> None:
    async with serving(responses(*items)) as endpoint:
        assert native_of(await ask(gpt_at(endpoint)))["blocks"] == items


async def test_an_incomplete_reply_is_not_sent_back() -> None:
    items = [reasoning_item("Hm."), {**message_item("Hal"), "status": "incomplete"}]
    incomplete = responses(*items, status="incomplete", why="max_output_tokens")
    async with serving(incomplete, responses(*items)) as endpoint:
        for _ in range(2):
            assert native_of(await ask(gpt_at(endpoint))) is None


# -- conversations


def reply(llm: Any, content: str, calls: list[Any], *items: dict[str, Any]) -> Message:
    native: Native = {"dialect": "openai", "issuer": llm.issuer, "model": "m", "blocks": list(items)}
    message: Message = {"role": "assistant", "content": content}
    return with_native({**message, "tool_calls": calls} if calls else message, native)


async def test_reasoning_that_cannot_be_read_again_is_not_sent() -> None:
    """Without encrypted content the API looks the ids up and does not find them."""
    bare = [reasoning_item("Hm.", encrypted=None), message_item("Hi")]
    async with serving(HELLO) as endpoint:
        llm = gpt_at(endpoint)
        await ask(
            llm, [{"role": "user", "content": "One"}, reply(llm, "Hi", [], *bare), {"role": "user", "content": "Two"}]
        )
    assert endpoint.requests[0]["input"][1] == {"role": "assistant", "content": "Hi"}


async def test_results_go_out_under_the_id_of_their_call() -> None:
    items = [reasoning_item("Hm."), call_item("f", '{"a": 1}', call_id="call_abc")]
    ours = {"id": "call_abc-9f2c", "name": "f", "arguments": {"a": 1}}
    result: Message = {"role": "tool", "tool_call_id": "call_abc-9f2c", "tool_name": "f", "content": "ok"}
    async with serving(HELLO) as endpoint:
        llm = gpt_at(endpoint)
        await ask(llm, [{"role": "user", "content": "Hi"}, reply(llm, "", [ours], *items), result])
    sent = endpoint.requests[0]["input"]
    assert sent[1:] == [*items, {"type": "function_call_output", "call_id": "call_abc", "output": "ok"}]


async def test_calls_of_another_provider() -> None:
    calls = [
        {"id": "x" * 80, "name": "f", "arguments": {"a": 1}},
        {"id": "c2", "name": "f", "arguments": {}, "invalid_arguments": '{"a":'},
    ]
    messages: list[Message] = [
        {"role": "system", "content": "Be kind."},
        {"role": "assistant", "content": "Wait.", "tool_calls": calls, "thinking": "Hm"},
        *({"role": "tool", "tool_call_id": c["id"], "tool_name": "f", "content": "ok"} for c in calls),
    ]
    items = await sent_for(messages)
    assert items[0] == {"role": "system", "content": "Be kind."}
    assert items[1] == {"role": "assistant", "content": "Wait."}
    assert [item["arguments"] for item in items[2:4]] == ['{"a":1}', '{"a":']
    ids = [item["call_id"] for item in items[2:]]
    assert ids[:2] == ids[2:]
    assert all(len(id) <= 64 for id in ids)


async def test_images_and_files() -> None:
    content = [
        {"type": "text", "text": "What?"},
        {"type": "image", "media_type": "image/png", "data": "AAAA"},
        {"type": "file", "media_type": "application/pdf", "name": "a.pdf", "data": "BBBB"},
        {"type": "file", "media_type": "application/pdf", "url": "https://example.org/a.pdf"},
        {"type": "file", "media_type": "text/plain", "name": "a.txt", "data": "aGk="},
    ]
    parts = [
        {"type": "input_text", "text": "What?"},
        {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "auto"},
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,BBBB"},
        {"type": "input_file", "file_url": "https://example.org/a.pdf"},
        {"type": "input_text", "text": "a.txt:\nhi"},
    ]
    call = {"id": "c1", "name": "f", "arguments": {}}
    items = await sent_for(
        [
            {"role": "user", "content": content},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "tool_name": "f", "content": content},
        ]
    )
    assert items[0] == {"role": "user", "content": parts}
    assert items[2] == {"type": "function_call_output", "call_id": "c1", "output": parts}


async def test_audio_is_refused() -> None:
    with pytest.raises(ModelError, match="does not accept the audio"):
        await sent_for([{"role": "user", "content": [{"type": "audio", "media_type": "audio/wav", "data": "AAAA"}]}])
