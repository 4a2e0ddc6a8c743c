"""GeminiLLM against a real HTTP server that replays the API's event streams."""

from __future__ import annotations

import base64
import re
from typing import Any

import pytest
from starlette.responses import PlainTextResponse

from helix_agents.errors import InvalidArgument, ModelError
from helix_agents.llm.contract import (
    Finished,
    ModelRequest,
    TextDelta,
    ThinkingDelta,
    TokenUsage,
    ToolCallDelta,
    ToolSpec,
)
from helix_agents.llm.gemini import GeminiLLM
from helix_agents.messages import Message
from tests.llm.dialects import ASK, ask, gemini, gemini_at, gemini_problem, native_of
from tests.llm.endpoint import Events, serving

SEARCH = ToolSpec("search", "Find things.", {"type": "object", "properties": {}})
HELLO = gemini([{"text": "Hello."}])
SIGNATURE = base64.b64encode(b"\x00\xffsig+/one").decode()
SIGNED_CALL = {
    "functionCall": {"name": "weather", "args": {"city": "Paris", "scale": 1.0}},
    "thoughtSignature": SIGNATURE,
}
SECOND_CALL = {"functionCall": {"name": "weather", "args": {"city": "Rome"}}}


async def sent_for(request: ModelRequest | list[Message], **options: Any) -> Any:
    """Return the request that a conversation becomes."""
    async with serving(HELLO) as endpoint:
        await ask(gemini_at(endpoint, **options), request)
    return camel(endpoint.requests[0])


def camel(value: Any) -> Any:
    """Return the names of the API as it documents them: the client sends some of them in snake_case, which it also
    takes."""
    if isinstance(value, list):
        return [camel(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {re.sub("_([a-z])", lambda match: match[1].upper(), name): camel(item) for name, item in value.items()}


async def test_a_reply_arrives_as_events() -> None:
    thoughts = [[{"text": "H", "thought": True}], [{"text": "m.", "thought": True}]]
    reply = gemini(*thoughts, [{"text": "Let me"}], [{"text": " look."}], [SIGNED_CALL, SECOND_CALL])
    async with serving(reply) as endpoint:
        events = await ask(gemini_at(endpoint))
    assert "".join(event.text for event in events if isinstance(event, ThinkingDelta)) == "Hm."
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "Let me look."
    calls = [event for event in events if isinstance(event, ToolCallDelta)]
    assert [(e.index, e.name, e.arguments) for e in calls] == [
        (0, "weather", '{"city":"Paris","scale":1.0}'),
        (1, "weather", '{"city":"Rome"}'),
    ]
    usage = TokenUsage("gemini-test-1", prompt=50, completion=37, reasoning=30, cached=16)
    assert events[-2:] == [Finished("tool_calls"), usage]
    blocks = native_of(events)["blocks"]
    assert [block.get("text") for block in blocks] == ["Hm.", "Let me look.", None, None]
    assert base64.urlsafe_b64decode(blocks[2]["thought_signature"]) == b"\x00\xffsig+/one"


async def test_signed_parts_are_not_joined() -> None:
    reply = gemini([{"text": "Sun"}], [{"text": "ny."}], [{"text": "", "thoughtSignature": SIGNATURE}])
    async with serving(reply) as endpoint:
        blocks = native_of(await ask(gemini_at(endpoint)))["blocks"]
    assert [block["text"] for block in blocks] == ["Sunny.", ""]


async def test_the_request_is_what_the_api_wants() -> None:
    async with serving(HELLO) as endpoint:
        request = ModelRequest(messages=ASK.messages, instructions="Be brief.", tools=[SEARCH], tool_choice="search")
        await ask(gemini_at(endpoint, temperature=0.5, tools=[{"google_search": {}}]), request)
    (body,) = camel(endpoint.requests)
    assert "gemini-test:streamGenerateContent" in endpoint.paths[0]
    assert endpoint.headers[0]["x-goog-api-key"] == "k"
    assert body["contents"] == [{"role": "user", "parts": [{"text": "Hi"}]}]
    assert body["systemInstruction"]["parts"] == [{"text": "Be brief."}]
    assert body["generationConfig"] == {"temperature": 0.5, "thinkingConfig": {"includeThoughts": True}}
    tools = {kind: tool[kind] for tool in body["tools"] for kind in tool}
    declared = {"name": "search", "description": "Find things.", "parametersJsonSchema": SEARCH.input_schema}
    assert tools == {"functionDeclarations": [declared], "googleSearch": {}}
    assert body["toolConfig"]["functionCallingConfig"] == {"mode": "ANY", "allowedFunctionNames": ["search"]}


@pytest.mark.parametrize(("choice", "mode"), [("auto", "AUTO"), ("required", "ANY"), ("none", "NONE")])
async def test_tool_choices(choice: str, mode: str) -> None:
    body = await sent_for(ModelRequest(messages=ASK.messages, tools=[SEARCH], tool_choice=choice))
    assert body["toolConfig"]["functionCallingConfig"] == {"mode": mode}


@pytest.mark.parametrize(
    ("finish", "reason"),
    [
        ("STOP", "stop"),
        ("MAX_TOKENS", "length"),
        ("SAFETY", "content_filter"),
        ("RECITATION", "content_filter"),
        ("SPII", "content_filter"),
        ("LANGUAGE", "language"),
    ],
)
async def test_finish_reasons(finish: str, reason: str) -> None:
    async with serving(gemini([{"text": "Hi"}], finish=finish)) as endpoint:
        assert Finished(reason) in await ask(gemini_at(endpoint))


# -- errors


RETRY_INFO = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "12.5s"}


@pytest.mark.parametrize(
    ("answer", "retryable", "wait"),
    [
        (gemini_problem(429, "Slow down", RETRY_INFO), True, 12.5),
        (gemini_problem(429, "Slow down", **{"retry-after": "3"}), True, 3.0),
        (gemini_problem(429, "Slow down", {"retryDelay": "soon"}), True, None),
        (gemini_problem(503, "Overloaded"), True, None),
        (gemini_problem(400, "What?"), False, None),
        (gemini_problem(403, "No"), False, None),
    ],
)
async def test_an_error_says_whether_to_retry(answer: Any, retryable: bool, wait: float | None) -> None:
    async with serving(answer) as endpoint:
        with pytest.raises(ModelError) as caught:
            await ask(gemini_at(endpoint))
    assert (caught.value.retryable, caught.value.retry_after_seconds) == (retryable, wait)
    assert len(endpoint.requests) == 1


@pytest.mark.parametrize(
    "answer",
    [
        gemini([{"text": "Hel"}], finish=None),
        [*gemini([{"text": "Hel"}], finish=None), {"drop": True}],
        [],
        gemini([], finish="MALFORMED_FUNCTION_CALL"),
        PlainTextResponse("data: {no json\n\n", media_type="text/event-stream"),
        PlainTextResponse("<html></html>"),
        [{"candidates": [{"content": {"parts": "no list"}}]}],
    ],
    ids=["no finish reason", "dropped", "empty", "malformed call", "not JSON", "a page", "no parts"],
)
async def test_a_stream_that_ends_early_or_makes_no_sense_may_be_retried(answer: Any) -> None:
    async with serving(answer) as endpoint:
        with pytest.raises(ModelError) as caught:
            await ask(gemini_at(endpoint))
    assert caught.value.retryable


async def test_a_blocked_prompt_is_not_retried() -> None:
    async with serving([{"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}}]) as endpoint:
        with pytest.raises(ModelError, match="PROHIBITED_CONTENT") as caught:
            await ask(gemini_at(endpoint))
    assert not caught.value.retryable


# -- parts


async def test_unknown_parts_are_not_sent_back() -> None:
    """The client drops unknown parts, so the reply cannot be sent back unchanged."""
    async with serving(gemini([{"dance": {"steps": 2}}], [SIGNED_CALL])) as endpoint:
        events = await ask(gemini_at(endpoint))
    assert [event.name for event in events if isinstance(event, ToolCallDelta)] == ["weather"]
    assert native_of(events) is None


async def test_plain_text_is_not_stored_twice() -> None:
    async with serving(gemini([{"text": "Hm", "thought": True}], [{"text": "Hi"}])) as endpoint:
        assert native_of(await ask(gemini_at(endpoint))) is None


async def test_calls_of_another_provider_get_the_documented_signature() -> None:
    calls = [{"id": f"c{n}", "name": "weather", "arguments": {"n": n}} for n in (1, 2)]
    messages: list[Message] = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c1", "tool_name": "weather", "content": "sunny", "success": True},
        {"role": "tool", "tool_call_id": "c2", "tool_name": "weather", "content": "Error: no", "success": False},
    ]
    body = await sent_for(messages)
    assert body["systemInstruction"]["parts"] == [{"text": "Be kind."}]
    _, made, results = body["contents"]
    signatures = [base64.urlsafe_b64decode(part.get("thoughtSignature", "")) for part in made["parts"]]
    assert signatures == [b"skip_thought_signature_validator", b""]
    assert [part["functionResponse"]["response"] for part in results["parts"]] == [
        {"output": "sunny"},
        {"error": "Error: no"},
    ]


async def test_a_reply_that_was_cut_off_is_followed_by_a_user_turn() -> None:
    cut: Message = {"role": "assistant", "content": "Hel", "interrupted": True}
    turns = (await sent_for([{"role": "user", "content": "Hi"}, cut]))["contents"]
    assert [(turn["role"], turn["parts"][0]["text"]) for turn in turns] == [
        ("user", "Hi"),
        ("model", "Hel"),
        ("user", "Continue."),
    ]


async def test_images_sounds_and_files() -> None:
    image = {"type": "image", "media_type": "image/png", "data": "AAAA"}
    sound = {"type": "audio", "media_type": "audio/wav", "data": "BBBB"}
    linked = {"type": "file", "media_type": "application/pdf", "url": "https://example.org/a.pdf"}
    text = {"type": "file", "media_type": "text/plain", "data": "aGk="}
    content = [{"type": "text", "text": "What?"}, image, sound, linked, text]
    (turn,) = (await sent_for([{"role": "user", "content": content}]))["contents"]
    assert turn["parts"] == [
        {"text": "What?"},
        {"inlineData": {"data": "AAAA", "mimeType": "image/png"}},
        {"inlineData": {"data": "BBBB", "mimeType": "audio/wav"}},
        {"fileData": {"fileUri": "https://example.org/a.pdf", "mimeType": "application/pdf"}},
        {"text": "hi"},
    ]
    zipped = {"type": "file", "media_type": "application/zip", "name": "a.zip", "data": "AAAA"}
    with pytest.raises(ModelError, match=r"does not accept the file 'a\.zip'"):
        await sent_for([{"role": "user", "content": [zipped]}])


async def test_a_result_may_hold_an_image() -> None:
    image = {"type": "image", "media_type": "image/png", "data": "AAAA"}
    call = {"id": "c1", "name": "weather", "arguments": {}}
    messages: list[Message] = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "tool_name": "w", "content": [{"type": "text", "text": "Here:"}, image]},
    ]
    result = (await sent_for(messages))["contents"][2]["parts"][0]["functionResponse"]
    assert result["response"] == {"output": "Here:"}
    assert result["parts"] == [{"inlineData": {"data": "AAAA", "mimeType": "image/png"}}]


async def test_an_unknown_option_is_rejected_when_the_model_is_made() -> None:
    with pytest.raises(InvalidArgument, match="temprature"):
        GeminiLLM("gemini-test", api_key="k", temprature=1)


async def test_vertex_is_an_issuer_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rejects the signatures of the other."""
    monkeypatch.setenv("GOOGLE_GENAI_USE_VERTEXAI", "true")
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "p")
    monkeypatch.setenv("GOOGLE_CLOUD_LOCATION", "global")
    llm = GeminiLLM("gemini-test", api_key="k")
    assert llm.issuer == "vertex"
    await llm.close()


EMPTY: Events = gemini([], finish="STOP")


async def test_an_empty_reply_is_a_reply() -> None:
    async with serving(EMPTY) as endpoint:
        assert Finished("stop") in await ask(gemini_at(endpoint))
