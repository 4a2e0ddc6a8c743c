"""The model adapters inside a Worker, through the official clients, against an endpoint on loopback."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cloudflare.client import new_session
from tests.cloudflare.parts import MODEL_PINS, PINS
from tests.cloudflare.workerd import MODELS, PythonWorkerd
from tests.llm.dialects import call_item, claude, gemini, message_item, responses
from tests.llm.endpoint import call_delta, delta, problem, serving
from tests.servers.fixtures import started

LOOK, SUNNY, CITY = "Let me look.", "It is sunny.", {"city": "Rome"}
REPLIES: dict[str, Any] = {
    "openai": (
        [delta(content=LOOK), call_delta(0, id="c1", name="weather", arguments=json.dumps(CITY)), delta("tool_calls")],
        [delta(content=SUNNY), delta("stop")],
    ),
    "responses": (
        responses(message_item(LOOK), call_item("weather", json.dumps(CITY))),
        responses(message_item(SUNNY)),
    ),
    "anthropic": (
        claude(
            {"type": "text", "text": LOOK},
            {"type": "tool_use", "id": "t1", "name": "weather", "input": CITY},
            stop="tool_use",
        ),
        claude({"type": "text", "text": SUNNY}),
    ),
    "gemini": (
        gemini([{"text": LOOK}], [{"functionCall": {"name": "weather", "args": CITY}}]),
        gemini([{"text": SUNNY}]),
    ),
}


@pytest.fixture(scope="module")
def server() -> Iterator[PythonWorkerd]:
    with contextlib.ExitStack() as stack:
        yield started(stack, lambda: PythonWorkerd(MODELS, pins=(PINS, MODEL_PINS)))


async def ask(server: PythonWorkerd, model: str, url: str, verb: str = "ask") -> Any:
    """Let the Worker use a model at this address."""
    address = url if model in ("anthropic", "gemini") else f"{url}/v1"
    async with (
        new_session() as session,
        session.get(f"{server.url}/model_worker/{verb}/{model}", params={"url": address}) as reply,
    ):
        text = await reply.text()
        assert reply.status == 200, text
        return json.loads(text)


@pytest.mark.parametrize("model", REPLIES)
async def test_an_agent_in_a_worker_calls_its_tool_and_replies(server: PythonWorkerd, model: str) -> None:
    async with serving(*REPLIES[model]) as endpoint:
        found = await ask(server, model, endpoint.url)
        assert found["error"] is None
        said = [["user", "How is the weather?"], ["assistant", LOOK], ["tool", "sunny in Rome"], ["assistant", SUNNY]]
        assert found["said"] == said
        assert "sunny in Rome" in json.dumps(endpoint.requests[1]), "the result of the tool was not sent back"


@pytest.mark.parametrize("model", REPLIES)
async def test_an_error_of_the_endpoint_says_what_the_provider_said(server: PythonWorkerd, model: str) -> None:
    async with serving(problem(401, "no such key")) as endpoint:
        found = await ask(server, model, endpoint.url)
    assert found["status"] == "failed"
    assert "401" in found["error"]


@pytest.mark.parametrize("model", REPLIES)
async def test_an_endpoint_that_falls_silent_is_a_model_error(server: PythonWorkerd, model: str) -> None:
    """The timeout of the adapter ends the wait: a Worker that waits is billed."""
    async with serving([*REPLIES[model][0][:1], {"sleep": 30}]) as endpoint:
        found = await ask(server, model, endpoint.url, "try")
    assert found["error"] is not None
    assert found["retryable"] is True
