"""A real HTTP server on loopback that replays the replies of model providers and records the requests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

Events = list[dict[str, Any]]
Answer = Sequence[dict[str, Any]] | Response
"""Events to stream, or a whole response. `{"drop": True}` breaks the connection off, `{"raw": "..."}` is sent as is."""


class Endpoint:
    """Replies to requests one after the other from a list, and records them."""

    def __init__(self, answers: Sequence[Answer | Callable[[dict[str, Any]], Answer]]) -> None:
        self.requests: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.url = ""
        self._answers = list(answers)

    @property
    def base_url(self) -> str:
        """The address in the form that OpenAI's client expects."""
        return f"{self.url}/v1"

    async def handle(self, request: Request) -> Response:
        body = json.loads(await request.body())
        self.requests.append(body)
        self.paths.append(request.url.path)
        self.headers.append(dict(request.headers))
        answer = self._answers.pop(0)
        if callable(answer) and not isinstance(answer, Response):
            answer = answer(body)
        if isinstance(answer, Response):
            return answer
        is_chat = request.url.path.endswith("/chat/completions")
        return StreamingResponse(_events(answer, is_chat=is_chat), media_type="text/event-stream")


async def _events(events: Sequence[dict[str, Any]], *, is_chat: bool) -> AsyncIterator[bytes]:
    for event in events:
        if event.get("drop"):
            raise ConnectionResetError("dropped on purpose")
        if "sleep" in event:
            await asyncio.sleep(event["sleep"])
        elif "raw" in event:
            yield event["raw"].encode()
        else:
            name = f"event: {event['type']}\n" if "type" in event else ""
            yield f"{name}data: {json.dumps(event)}\n\n".encode()
    if is_chat:
        yield b"data: [DONE]\n\n"


def delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    """Return one chunk of Chat Completions."""
    choice = {"index": 0, "delta": fields, "finish_reason": finish}
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "test-model-1", "choices": [choice]}


def call_delta(index: int, *, id: str | None = None, name: str | None = None, arguments: str = "") -> dict[str, Any]:
    """Return a piece of a tool call."""
    function: dict[str, Any] = {"arguments": arguments}
    if name is not None:
        function["name"] = name
    call: dict[str, Any] = {"index": index, "function": function}
    if id is not None:
        call |= {"id": id, "type": "function"}
    return delta(tool_calls=[call])


def usage(prompt: int, completion: int, *, reasoning: int = 0, cached: int = 0) -> dict[str, Any]:
    """Return the last chunk, with what the call cost."""
    return {
        "id": "c",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "test-model-1",
        "choices": [],
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": cached},
            "completion_tokens_details": {"reasoning_tokens": reasoning},
        },
    }


def problem(status: int, message: str, *, code: str | None = None, **headers: str) -> Response:
    """Return an error as OpenAI's endpoints send it."""
    error = {"message": message, "type": "test", "code": code}
    return JSONResponse({"error": error}, status_code=status, headers=headers)


@asynccontextmanager
async def serving(*answers: Answer | Callable[[dict[str, Any]], Answer]) -> AsyncIterator[Endpoint]:
    """Run the endpoint on a free port during the block."""
    endpoint = Endpoint(answers)
    app = Starlette(routes=[Route("/{path:path}", endpoint.handle, methods=["POST"])])
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="critical", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    serving_task = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110  # uvicorn has no event for it
        await asyncio.sleep(0.005)
    port = server.servers[0].sockets[0].getsockname()[1]
    endpoint.url = f"http://127.0.0.1:{port}"
    try:
        yield endpoint
    finally:
        server.should_exit = True
        await serving_task
