"""The event streams of three providers, in the pieces in which their APIs send them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from starlette.responses import JSONResponse, Response

from helix_agents.llm.anthropic import AnthropicLLM
from helix_agents.llm.contract import ModelEvent, ModelRequest, NativeContent
from helix_agents.llm.gemini import GeminiLLM
from helix_agents.llm.responses import OpenAIResponsesLLM
from helix_agents.messages import Message

from .endpoint import Endpoint, Events

SIGNATURE_1 = "EqoBCkgIARABGAIiQL2UoU0b1OHYi+yCHpBY7U6FQW8/FcoLewocJQPa2HnmLM+NECy50y44F/kD4SULFXi57buI9fAvy==" * 3
SIGNATURE_2 = "ErUBCkYIBxgCIkDc" + "Zm9vL2Jhcis9" * 40
REDACTED = "EmwKAhgBEgy3va3pzix/LafPsn4aDFIT2Xlxh0L5L8rLVyIwxtE3rAFBa8cr3qpP" * 2
ENCRYPTED = "gAAAAABqX1a78BDqk_J4uGoxtDucvs8h-" + "kZ9_w-" * 60

THOUGHT: dict[str, Any] = {
    "type": "thinking",
    "thinking": "Two cities.\nAsk for both — ünïcödé.",
    "signature": SIGNATURE_1,
}
HIDDEN: dict[str, Any] = {"type": "redacted_thinking", "data": REDACTED}
SECOND_THOUGHT: dict[str, Any] = {"type": "thinking", "thinking": "Now the second.", "signature": SIGNATURE_2}
SAID: dict[str, Any] = {"type": "text", "text": "Let me look."}
PARIS: dict[str, Any] = {
    "type": "tool_use",
    "id": "toolu_01A",
    "name": "weather",
    "input": {"city": "Paris", "scale": 1.5},
}
ROME: dict[str, Any] = {
    "type": "tool_use",
    "id": "toolu_01B",
    "name": "weather",
    "input": {"city": "Rome", "scale": 1.0},
}
INTERLEAVED = [THOUGHT, HIDDEN, SAID, PARIS, SECOND_THOUGHT, ROME]
"""A reply that thinks between its calls, some of it hidden: the order counts."""

ASK = ModelRequest(messages=[{"role": "user", "content": "Hi"}], instructions="Be brief.")

Provider = AnthropicLLM | OpenAIResponsesLLM | GeminiLLM


def claude_at(endpoint: Endpoint, **options: Any) -> AnthropicLLM:
    return AnthropicLLM("claude-test", base_url=endpoint.url, api_key="k", **options)


def gpt_at(endpoint: Endpoint, **options: Any) -> OpenAIResponsesLLM:
    return OpenAIResponsesLLM("gpt-test", base_url=endpoint.base_url, api_key="k", **options)


def gemini_at(endpoint: Endpoint, **options: Any) -> GeminiLLM:
    return GeminiLLM("gemini-test", base_url=endpoint.url, api_key="k", **options)


async def ask(llm: Provider, request: ModelRequest | list[Message] = ASK) -> list[ModelEvent]:
    """Ask a model once and close it."""
    asked = request if isinstance(request, ModelRequest) else ModelRequest(messages=request)
    try:
        return [event async for event in llm.stream(asked)]
    finally:
        await llm.close()


def native_of(events: list[ModelEvent]) -> Any:
    """Return the part of a reply that is sent back unchanged; None if the neutral form is sent."""
    return next((event.native for event in events if isinstance(event, NativeContent)), None)


class Switching:
    """Gives each request to the next of several models."""

    def __init__(self, *models: Provider) -> None:
        self._models = list(models)

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        async for event in self._models.pop(0).stream(request):
            yield event


# -- Anthropic Messages


def claude(*blocks: dict[str, Any], stop: str = "end_turn", model: str = "claude-test-1") -> Events:
    """Return a reply that consists of these blocks."""
    usage = {"input_tokens": 25, "cache_creation_input_tokens": 100, "cache_read_input_tokens": 400, "output_tokens": 1}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": [], "usage": usage}
    events: Events = [
        {"type": "message_start", "message": {**message, "stop_reason": None, "stop_sequence": None}},
        {"type": "ping"},
    ]
    for index, block in enumerate(blocks):
        events += _claude_block(index, block)
    events.append(
        {
            "type": "message_delta",
            "delta": {"stop_reason": stop, "stop_sequence": None},
            "usage": {"output_tokens": 89, "output_tokens_details": {"thinking_tokens": 40}},
        }
    )
    return [*events, {"type": "message_stop"}]


def _claude_block(index: int, block: dict[str, Any]) -> Events:
    empty, deltas = block, []
    if block["type"] == "thinking":
        empty = {"type": "thinking", "thinking": "", "signature": ""}
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces(block["thinking"])]
        deltas.append({"type": "signature_delta", "signature": block["signature"]})
    elif block["type"] == "text":
        empty = {"type": "text", "text": ""}
        deltas = [{"type": "text_delta", "text": piece} for piece in pieces(block["text"])]
        deltas += [{"type": "citations_delta", "citation": citation} for citation in block.get("citations", ())]
    elif block["type"] == "tool_use":
        empty = {**block, "input": {}}
        text = json.dumps(block["input"]) if block["input"] else ""
        deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in ["", *pieces(text)]]
    start = {"type": "content_block_start", "index": index, "content_block": empty}
    middle = [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
    return [start, *middle, {"type": "content_block_stop", "index": index}]


def claude_problem(status: int, kind: str, message: str, **headers: str) -> Response:
    """Return an error as Anthropic sends it."""
    body = {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}
    return JSONResponse(body, status_code=status, headers=headers)


# -- OpenAI Responses


def responses(*items: dict[str, Any], status: str = "completed", why: str | None = None) -> Events:
    """Return a response with these output items."""
    events: Events = []

    def say(type: str, **fields: Any) -> None:
        events.append({"type": type, "sequence_number": len(events), **fields})

    shell = {"id": "resp_1", "object": "response", "created_at": 1, "model": "gpt-test-1", "output": [], "tools": []}
    shell |= {"parallel_tool_calls": True, "tool_choice": "auto", "error": None, "incomplete_details": None}
    say("response.created", response={**shell, "status": "in_progress"})
    say("response.in_progress", response={**shell, "status": "in_progress"})
    for index, item in enumerate(items):
        where = {"output_index": index, "item_id": item["id"]}
        started = {**item, "status": "in_progress"}
        match item["type"]:
            case "reasoning":
                started |= {"summary": [], "encrypted_content": "gAAA"}
                say("response.output_item.added", output_index=index, item=started)
                for number, part in enumerate(item["summary"]):
                    say(
                        "response.reasoning_summary_part.added",
                        **where,
                        summary_index=number,
                        part={**part, "text": ""},
                    )
                    for piece in pieces(part["text"]):
                        say("response.reasoning_summary_text.delta", **where, summary_index=number, delta=piece)
                    say("response.reasoning_summary_text.done", **where, summary_index=number, text=part["text"])
                    say("response.reasoning_summary_part.done", **where, summary_index=number, part=part)
            case "function_call":
                say("response.output_item.added", output_index=index, item={**started, "arguments": ""})
                for piece in pieces(item["arguments"]):
                    say("response.function_call_arguments.delta", **where, delta=piece)
                say("response.function_call_arguments.done", **where, arguments=item["arguments"], name=item["name"])
            case "message":
                say("response.output_item.added", output_index=index, item={**started, "content": []})
                part = item["content"][0]
                say("response.content_part.added", **where, content_index=0, part=part)
                for piece in pieces(part.get("text") or part["refusal"]):
                    kind = "output_text" if "text" in part else "refusal"
                    say(f"response.{kind}.delta", **where, content_index=0, delta=piece, logprobs=[])
                say("response.content_part.done", **where, content_index=0, part=part)
            case _:
                say("response.output_item.added", output_index=index, item=started)
        say("response.output_item.done", output_index=index, item=item)
    usage = {
        "input_tokens": 300,
        "input_tokens_details": {"cached_tokens": 256, "cache_write_tokens": 12},
        "output_tokens": 90,
        "output_tokens_details": {"reasoning_tokens": 64},
        "total_tokens": 390,
    }
    details = None if why is None else {"reason": why}
    ended = {**shell, "status": status, "output": list(items), "usage": usage, "incomplete_details": details}
    say(f"response.{status}", response=ended)
    return events


def message_item(text: str, id: str = "msg_1", **members: Any) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]
    return {"id": id, "type": "message", "role": "assistant", "status": "completed", "content": content, **members}


def reasoning_item(*texts: str, id: str = "rs_1", encrypted: str | None = ENCRYPTED) -> dict[str, Any]:
    summary = [{"type": "summary_text", "text": text} for text in texts]
    return {"id": id, "type": "reasoning", "summary": summary, "encrypted_content": encrypted}


def call_item(name: str, arguments: str, id: str = "fc_1", call_id: str = "call_abc") -> dict[str, Any]:
    call = {"id": id, "type": "function_call", "call_id": call_id, "name": name}
    return {**call, "arguments": arguments, "status": "completed"}


# -- Gemini


def gemini(*chunks: list[dict[str, Any]], finish: str | None = "STOP") -> Events:
    """Return a reply in these chunks of parts."""
    events: Events = []
    for number, parts in enumerate(chunks):
        candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
        if number == len(chunks) - 1 and finish is not None:
            candidate["finishReason"] = finish
        usage = {
            "promptTokenCount": 50,
            "candidatesTokenCount": 7,
            "thoughtsTokenCount": 30,
            "cachedContentTokenCount": 16,
        }
        events.append({"candidates": [candidate], "usageMetadata": usage, "modelVersion": "gemini-test-1"})
    return events


def gemini_problem(status: int, message: str, *details: dict[str, Any], **headers: str) -> Response:
    """Return an error as Google sends it."""
    error = {"code": status, "message": message, "status": "TEST", "details": list(details)}
    return JSONResponse({"error": error}, status_code=status, headers=headers)


def pieces(text: str, size: int = 9) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]
