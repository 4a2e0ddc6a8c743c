"""AnthropicLLM against a real HTTP server that replays the API's event streams."""

from __future__ import annotations

import base64
from typing import Any

import anthropic
import pytest
from starlette.responses import PlainTextResponse

from helix_agents.errors import ModelError
from helix_agents.llm.anthropic import AnthropicLLM
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
from tests.llm.dialects import (
    ASK,
    INTERLEAVED,
    PARIS,
    SAID,
    SECOND_THOUGHT,
    SIGNATURE_1,
    THOUGHT,
    ask,
    claude,
    claude_at,
    claude_problem,
    native_of,
)
from tests.llm.endpoint import Endpoint, serving

SEARCH = ToolSpec("search", "Find things.", {"type": "object", "properties": {}})
NOT_JSON = PlainTextResponse("event: message_start\ndata: {no json\n\n", media_type="text/event-stream")


async def sent_for(messages: list[Message], **options: Any) -> dict[str, Any]:
    """Return the request that a conversation becomes."""
    async with serving(claude(SAID)) as endpoint:
        await ask(claude_at(endpoint, **options), messages)
    return endpoint.requests[0]


def key_of(endpoint: Endpoint) -> str:
    """Return the key of the first request, in the header of old or new clients."""
    headers = endpoint.headers[0]
    return headers.get("x-api-key") or headers["authorization"].removeprefix("Bearer ")


def call(id: str, *, name: str = "weather", **arguments: Any) -> dict[str, Any]:
    return {"id": id, "name": name, "arguments": arguments}


def result(id: str, content: Any = "sunny", **members: Any) -> Message:
    return {"role": "tool", "tool_call_id": id, "tool_name": "weather", "content": content, **members}


async def test_a_reply_arrives_as_events() -> None:
    async with serving(claude(*INTERLEAVED, stop="tool_use")) as endpoint:
        events = await ask(claude_at(endpoint))
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    thinking = "".join(event.text for event in events if isinstance(event, ThinkingDelta))
    assert text == "Let me look."
    assert thinking == f"{THOUGHT['thinking']}\n\n{SECOND_THOUGHT['thinking']}"
    calls = [event for event in events if isinstance(event, ToolCallDelta)]
    assert [(e.index, e.id, e.name) for e in calls if e.id] == [
        (0, "toolu_01A", "weather"),
        (1, "toolu_01B", "weather"),
    ]
    assert "".join(e.arguments for e in calls if e.index == 0) == '{"city": "Paris", "scale": 1.5}'
    assert native_of(events)["blocks"] == INTERLEAVED
    assert native_of(events)["issuer"] == f"anthropic@{endpoint.url.removeprefix('http://')}"


async def test_usage_counts_what_the_cache_read_and_wrote() -> None:
    async with serving(claude(SAID)) as endpoint:
        events = await ask(claude_at(endpoint))
    usage = TokenUsage("claude-test-1", prompt=525, completion=89, reasoning=40, cached=400, cache_written=100)
    assert events[-2:] == [Finished("stop"), usage]


async def test_the_request_is_what_the_api_wants() -> None:
    async with serving(claude(SAID)) as endpoint:
        request = ModelRequest(messages=ASK.messages, instructions="Be brief.", tools=[SEARCH], tool_choice="search")
        await ask(claude_at(endpoint, temperature=0.5, thinking={"type": "adaptive"}), request)
    (body,) = endpoint.requests
    assert endpoint.paths == ["/v1/messages"]
    assert key_of(endpoint) == "k"
    assert body == {
        "model": "claude-test",
        "max_tokens": 16_384,
        "system": "Be brief.",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
        "tools": [{"name": "search", "description": "Find things.", "input_schema": SEARCH.input_schema}],
        "tool_choice": {"type": "tool", "name": "search"},
        "cache_control": {"type": "ephemeral"},
        "temperature": 0.5,
        "thinking": {"type": "adaptive"},
        "stream": True,
    }


@pytest.mark.parametrize(
    ("choice", "sent"), [("auto", None), ("required", {"type": "any"}), ("none", {"type": "none"})]
)
async def test_tool_choices(choice: str, sent: Any) -> None:
    async with serving(claude(SAID)) as endpoint:
        await ask(claude_at(endpoint), ModelRequest(messages=ASK.messages, tools=[SEARCH], tool_choice=choice))
    assert endpoint.requests[0].get("tool_choice") == sent


async def test_options_replace_defaults_and_none_removes_them() -> None:
    body = await sent_for([{"role": "user", "content": "Hi"}], cache_control=None, max_tokens=99)
    assert "cache_control" not in body
    assert body["max_tokens"] == 99


async def test_tools_that_the_provider_runs_are_added() -> None:
    search = {"type": "web_search_20250305", "name": "web_search"}
    async with serving(claude(SAID)) as endpoint:
        await ask(claude_at(endpoint, tools=[search]), ModelRequest(messages=ASK.messages, tools=[SEARCH]))
    assert [tool["name"] for tool in endpoint.requests[0]["tools"]] == ["search", "web_search"]


@pytest.mark.parametrize(
    ("stop", "reason"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("tool_use", "tool_calls"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "content_filter"),
        ("something_new", "something_new"),
    ],
)
async def test_finish_reasons(stop: str, reason: str) -> None:
    async with serving(claude(SAID, stop=stop)) as endpoint:
        assert Finished(reason) in await ask(claude_at(endpoint))


# -- errors


@pytest.mark.parametrize(
    ("answer", "retryable", "wait"),
    [
        (claude_problem(529, "overloaded_error", "Overloaded"), True, None),
        (claude_problem(429, "rate_limit_error", "Slow down", **{"retry-after": "7"}), True, 7.0),
        (claude_problem(429, "rate_limit_error", "Slow down", **{"retry-after-ms": "70"}), True, 0.07),
        (claude_problem(500, "api_error", "Sorry"), True, None),
        (claude_problem(400, "invalid_request_error", "No credit"), False, None),
        (claude_problem(401, "authentication_error", "Who?"), False, None),
        (claude_problem(403, "permission_error", "No"), False, None),
        (claude_problem(404, "not_found_error", "Which?"), False, None),
        (claude_problem(413, "request_too_large", "Too large"), False, None),
        (PlainTextResponse("Bad gateway", status_code=502), True, None),
    ],
)
async def test_an_error_says_whether_to_retry(answer: Any, retryable: bool, wait: float | None) -> None:
    async with serving(answer) as endpoint:
        with pytest.raises(ModelError) as caught:
            await ask(claude_at(endpoint))
    assert (caught.value.retryable, caught.value.retry_after_seconds) == (retryable, wait)
    assert len(endpoint.requests) == 1


@pytest.mark.parametrize(
    ("kind", "retryable"), [("overloaded_error", True), ("rate_limit_error", True), ("invalid_request_error", False)]
)
async def test_an_error_inside_the_stream_is_judged_by_its_type(kind: str, retryable: bool) -> None:
    """The client reports it with the status of the stream, which is 200."""
    failure = {"type": "error", "error": {"type": kind, "message": "Sorry"}}
    async with serving([*claude(SAID)[:4], failure]) as endpoint:
        with pytest.raises(ModelError, match="ended its reply early: Sorry") as caught:
            await ask(claude_at(endpoint))
    assert caught.value.retryable is retryable


@pytest.mark.parametrize(
    "answer",
    [
        claude(SAID)[:-1],
        claude(THOUGHT, SAID)[:6],
        [*claude(SAID)[:4], {"drop": True}],
        [],
        NOT_JSON,
        PlainTextResponse("<html></html>"),
        [{"type": "content_block_delta", "index": 7, "delta": {"type": "citations_delta", "citation": {}}}],
    ],
    ids=["no message_stop", "cut in thinking", "dropped", "empty", "not JSON", "a page", "a delta of no block"],
)
async def test_a_stream_that_ends_early_or_makes_no_sense_may_be_retried(answer: Any) -> None:
    async with serving(answer) as endpoint:
        with pytest.raises(ModelError) as caught:
            await ask(claude_at(endpoint))
    assert caught.value.retryable


async def test_a_silent_endpoint_may_be_retried() -> None:
    async with serving([*claude(SAID)[:4], {"sleep": 5}]) as endpoint:
        with pytest.raises(ModelError) as caught:
            await ask(claude_at(endpoint, timeout_seconds=0.2))
    assert caught.value.retryable


async def test_an_endpoint_that_is_down_may_be_retried() -> None:
    async with serving() as endpoint:
        pass
    with pytest.raises(ModelError) as caught:
        await ask(claude_at(endpoint))
    assert caught.value.retryable


async def test_a_missing_key_is_a_model_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    monkeypatch.delenv("ANTHROPIC_AUTH_TOKEN", raising=False)
    async with serving(claude(SAID)) as endpoint:
        with pytest.raises(ModelError, match="api_key") as caught:
            await ask(AnthropicLLM("claude-test", base_url=endpoint.url))
    assert not caught.value.retryable


# -- blocks


async def test_arguments_that_are_cut_off_are_not_sent_back() -> None:
    events = claude({**PARIS, "input": {"city": "Paris"}}, stop="max_tokens")
    cut = [e for e in events if not e.get("delta", {}).get("partial_json", "").endswith("}")]
    async with serving(cut) as endpoint:
        got = await ask(claude_at(endpoint))
    assert Finished("length") in got
    assert native_of(got) is None


async def test_empty_arguments_are_an_empty_object() -> None:
    async with serving(claude(THOUGHT, {**PARIS, "input": {}}, stop="tool_use")) as endpoint:
        events = await ask(claude_at(endpoint))
    assert native_of(events)["blocks"] == [THOUGHT, {**PARIS, "input": {}}]


async def test_unknown_events_say_nothing() -> None:
    events = claude(SAID)
    async with serving([*events[:3], {"type": "weather_report", "sun": True}, *events[3:]]) as endpoint:
        got = await ask(claude_at(endpoint))
    assert "".join(event.text for event in got if isinstance(event, TextDelta)) == "Let me look."


async def test_unknown_blocks_go_back_as_they_came() -> None:
    strange = {"type": "server_dance", "steps": [1, 2.5], "partner": None}
    async with serving(claude(SAID, strange)) as endpoint:
        events = await ask(claude_at(endpoint))
    assert native_of(events)["blocks"] == [SAID, strange]


async def test_a_block_with_deltas_of_unknown_types_is_not_sent_back() -> None:
    events = claude(THOUGHT, SAID)
    strange = {"type": "content_block_delta", "index": 0, "delta": {"type": "mood_delta", "mood": "calm"}}
    async with serving([*events[:4], strange, *events[4:]]) as endpoint:
        got = await ask(claude_at(endpoint))
    assert native_of(got) is None


async def test_thinking_without_a_signature_is_not_sent_back() -> None:
    events = [e for e in claude(THOUGHT, SAID) if e.get("delta", {}).get("type") != "signature_delta"]
    async with serving(events) as endpoint:
        got = await ask(claude_at(endpoint))
    assert native_of(got) is None


async def test_thinking_at_the_end_of_a_reply_is_not_sent_back() -> None:
    """The API rejects it: the reply ran out of tokens while it thought."""
    async with serving(claude(THOUGHT, SAID, SECOND_THOUGHT, stop="max_tokens")) as endpoint:
        events = await ask(claude_at(endpoint))
    assert native_of(events)["blocks"] == [THOUGHT, SAID]


async def test_citations_are_kept() -> None:
    cited = {**SAID, "citations": [{"type": "char_location", "cited_text": "a", "document_index": 0}]}
    async with serving(claude(cited)) as endpoint:
        events = await ask(claude_at(endpoint))
    assert native_of(events)["blocks"] == [cited]


SEARCHING: dict[str, Any] = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "sun"}}
FOUND: dict[str, Any] = {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []}


async def test_a_turn_that_the_provider_paused_is_continued() -> None:
    """Long turns of server tools arrive in several messages, which form one reply."""
    pauses = claude(THOUGHT, SEARCHING, stop="pause_turn"), claude(FOUND, stop="pause_turn")
    async with serving(*pauses, claude(SAID, PARIS, stop="tool_use")) as endpoint:
        events = await ask(claude_at(endpoint))
    sent = [request["messages"] for request in endpoint.requests]
    assert [len(turns) for turns in sent] == [1, 2, 2]
    assert sent[1][1] == {"role": "assistant", "content": [THOUGHT, SEARCHING]}
    assert sent[2][1] == {"role": "assistant", "content": [THOUGHT, SEARCHING, FOUND]}
    assert native_of(events)["blocks"] == [THOUGHT, SEARCHING, FOUND, SAID, PARIS]
    usage = TokenUsage("claude-test-1", prompt=1575, completion=267, reasoning=120, cached=1200, cache_written=300)
    assert events[-2:] == [Finished("tool_calls"), usage]


async def test_a_turn_is_not_continued_for_ever() -> None:
    async with serving(*[claude(SAID, stop="pause_turn")] * 9) as endpoint:
        events = await ask(claude_at(endpoint))
    assert len(endpoint.requests) == 6
    assert Finished("pause_turn") in events


@pytest.mark.parametrize("blocks", [[SAID], [SAID, PARIS], [PARIS], [{**PARIS, "caller": {"type": "direct"}}]])
async def test_nothing_is_stored_twice_without_need(blocks: list[dict[str, Any]]) -> None:
    async with serving(claude(*blocks)) as endpoint:
        assert native_of(await ask(claude_at(endpoint))) is None


async def test_text_that_no_request_can_carry_is_not_stored_as_blocks() -> None:
    broken = {"type": "text", "text": "a\ud800b"}
    async with serving(claude(THOUGHT, broken)) as endpoint:
        assert native_of(await ask(claude_at(endpoint))) is None


# -- conversations


async def test_calls_and_results_of_another_provider() -> None:
    messages: list[Message] = [
        {"role": "user", "content": "Hi"},
        {
            "role": "assistant",
            "content": "",
            "thinking": "Hm",
            "tool_calls": [call("functions.weather:0", city="a\ud800")],
        },
        result("functions.weather:0", success=False),
        {"role": "user", "content": "And?"},
    ]
    turns = (await sent_for(messages))["messages"]
    (use,) = turns[1]["content"]
    assert use["input"] == {"city": "a?"}
    assert use["id"].replace("_", "").isalnum()  # the API takes letters, digits, - and _
    assert turns[2]["content"] == [
        {"type": "tool_result", "tool_use_id": use["id"], "content": "sunny", "is_error": True},
        {"type": "text", "text": "And?"},
    ]


async def test_ids_that_repeat_are_told_apart() -> None:
    """A proxy may restart its call ids in every reply: the stored ids differ, those in the blocks do not."""
    async with serving(claude(SAID)) as endpoint:
        llm = claude_at(endpoint)
        native: Native = {"dialect": "anthropic", "issuer": llm.issuer, "model": "m", "blocks": [THOUGHT, PARIS]}
        messages: list[Message] = [{"role": "user", "content": "Hi"}]
        for id in ("toolu_01A", "call_2_1"):
            made: Message = {"role": "assistant", "content": "", "tool_calls": [call(id, **PARIS["input"])]}
            messages += [with_native(made, native), result(id)]
        await ask(llm, messages)
    blocks = [block for turn in endpoint.requests[0]["messages"] for block in turn["content"]]
    assert [block["id"] for block in blocks if block["type"] == "tool_use"] == ["toolu_01A", "call_2_1"]
    assert [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"] == ["toolu_01A", "call_2_1"]


async def test_a_reply_that_was_cut_off_is_followed_by_a_user_turn() -> None:
    """Newer models do not continue an open reply."""
    messages: list[Message] = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hel", "interrupted": True},
    ]
    assert (await sent_for(messages))["messages"][-1] == {
        "role": "user",
        "content": [{"type": "text", "text": "Continue."}],
    }
    messages += [{"role": "assistant", "content": "Hello."}, {"role": "user", "content": "Bye"}]
    turns = (await sent_for(messages))["messages"]
    assert [turn["content"][0]["text"] for turn in turns] == ["Hi", "Hel", "Continue.", "Hello.", "Bye"]


async def test_a_history_that_starts_with_a_reply_gets_a_user_turn() -> None:
    turns = (await sent_for([{"role": "assistant", "content": "Hello."}, {"role": "user", "content": "Hi"}]))[
        "messages"
    ]
    assert [turn["role"] for turn in turns] == ["user", "assistant", "user"]


async def test_system_messages() -> None:
    """Those at the start join the instructions; a later one stays in its place."""
    body = await sent_for(
        [
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "Hello."},
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": "Bye"},
        ]
    )
    assert body["system"] == "Be kind."
    assert [block["text"] for turn in body["messages"] for block in turn["content"]] == [
        "Hi",
        "Hello.",
        "Be brief.",
        "Bye",
    ]


async def test_empty_texts_and_thinking_are_left_out() -> None:
    messages: list[Message] = [
        {"role": "user", "content": "Hi"},
        {"role": "thinking", "content": "Hm"},
        {"role": "assistant", "content": " \n"},
        {"role": "user", "content": "There?"},
    ]
    (turn,) = (await sent_for(messages))["messages"]
    assert [block["text"] for block in turn["content"]] == ["Hi", "There?"]


async def test_manual_thinking_is_off_while_calls_made_without_thinking_are_answered() -> None:
    """The API demands a thinking block before such calls, for example if another provider's model made them."""
    made: Message = {"role": "assistant", "content": "", "tool_calls": [call("c1")]}
    messages: list[Message] = [{"role": "user", "content": "Hi"}, made, result("c1")]
    manual = {"type": "enabled", "budget_tokens": 2000}
    assert "thinking" not in await sent_for(messages, thinking=manual)
    assert (await sent_for([*messages, {"role": "assistant", "content": "Sunny."}], thinking=manual))[
        "thinking"
    ] == manual


# -- content parts


async def test_images_and_files() -> None:
    data = base64.b64encode(b"png").decode()
    text = base64.b64encode("ä,1".encode()).decode()
    content = [
        {"type": "text", "text": "What is it?"},
        {"type": "image", "media_type": "image/png", "data": data},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
        {"type": "file", "media_type": "application/pdf", "name": "a.pdf", "url": "https://example.org/a.pdf"},
        {"type": "file", "media_type": "text/csv", "name": "a.csv", "data": text},
    ]
    (turn,) = (await sent_for([{"role": "user", "content": content}]))["messages"]
    assert turn["content"] == [
        {"type": "text", "text": "What is it?"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}},
        {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
        {"type": "document", "source": {"type": "url", "url": "https://example.org/a.pdf"}, "title": "a.pdf"},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "ä,1"}, "title": "a.csv"},
    ]


async def test_a_result_may_hold_an_image() -> None:
    image = {"type": "image", "media_type": "image/png", "url": "https://example.org/a.png"}
    made: Message = {"role": "assistant", "content": "", "tool_calls": [call("c1")]}
    parts = [{"type": "text", "text": "Here:"}, image]
    turns = (await sent_for([{"role": "user", "content": "Hi"}, made, result("c1", parts)]))["messages"]
    assert [block["type"] for block in turns[2]["content"][0]["content"]] == ["text", "image"]


async def test_a_part_that_the_model_does_not_take_is_refused_or_referred_to() -> None:
    sound = {"type": "audio", "media_type": "audio/wav", "name": "a.wav", "data": "AAAA"}
    with pytest.raises(ModelError, match=r"does not accept the audio 'a\.wav'"):
        await sent_for([{"role": "user", "content": [sound]}])
    older: list[Message] = [{"role": "user", "content": [sound]}, {"role": "user", "content": "Never mind."}]
    (turn,) = (await sent_for(older))["messages"]
    assert turn["content"][0]["text"] == "[audio 'a.wav' (audio/wav): this model cannot read it]"


async def test_signatures_are_not_sent_to_another_endpoint() -> None:
    async with serving(claude(THOUGHT, SAID)) as endpoint:
        native = native_of(await ask(claude_at(endpoint)))
    reply = with_native({"role": "assistant", "content": "Let me look."}, native)
    assert SIGNATURE_1 not in str(await sent_for([{"role": "user", "content": "Hi"}, reply]))


async def test_a_client_of_the_caller_is_left_open() -> None:
    async with serving(claude(SAID)) as endpoint:
        client = anthropic.AsyncAnthropic(base_url=endpoint.url, api_key="mine", max_retries=0)
        await ask(AnthropicLLM("claude-test", client=client))
        assert not client.is_closed()
        await client.close()
    assert key_of(endpoint) == "mine"
