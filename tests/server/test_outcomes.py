"""Calls whose outcome is unknown, over every protocol: shown as such, and never closed by an approval."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.server.clients import agui_input, chat_request, events_of, reply, resume, tool_part, user_says
from tests.server.running import execute, read_stream, result
from tests.server.test_problems import assert_problem

SAYS = 'call transfer {"account": "slow"}'


async def unknown(client: httpx.AsyncClient, sid: str) -> dict[str, Any]:
    """Start a run whose transfer has an unknown outcome; return its question."""
    await execute(client, SAYS, sid)
    (question,) = (await result(client, sid))["suspended"]
    assert (question["kind"], question["effect_key"]) == ("outcome", "transfer:slow")
    return dict(question)


async def told(client: httpx.AsyncClient, sid: str) -> list[str]:
    messages = (await client.get(f"/sessions/{sid}/messages")).json()["items"]
    return [message["content"] for message in messages if message["role"] == "tool"]


async def test_rest_shows_and_answers_it(alice: httpx.AsyncClient, sid: str) -> None:
    question = await unknown(alice, sid)
    waiting = (await alice.get("/waiting")).json()["items"]
    assert [each["kind"] for each in waiting if each["session_id"] == sid] == ["outcome"]
    requests = [frame for frame in await read_stream(alice, f"/stream/{sid}") if frame.event == "chunk"]
    assert [frame.data["effect_key"] for frame in requests if frame.data["type"] == "tool_outcome_request"] == [
        "transfer:slow"
    ]
    answers = f"/sessions/{sid}/tool-results"
    for answer in ({"approved": True}, {"result": "done"}, {"happened": True, "approved": True}):
        refused = await alice.post(answers, json={"tool_call_id": question["tool_call_id"], **answer})
        assert_problem(refused, 400, "invalid_argument")
    given = {"approval_id": question["approval_id"], "happened": True, "result": "transferred by hand"}
    assert (await alice.post(answers, json=given)).json()["receipt"] == "accepted"
    assert (await result(alice, sid))["status"] == "completed"
    assert await told(alice, sid) == ["transferred by hand"]


@pytest.mark.parametrize(("payload", "expected"), [
    ({"happened": True, "result": "transferred"}, "transferred"),
    ({"happened": None, "reason": "The bank is closed."}, "Error: It is not known whether this call took effect: "),
])  # fmt: skip
async def test_agui_shows_and_answers_it(alice: httpx.AsyncClient, sid: str, payload: Any, expected: str) -> None:
    first = await events_of(alice, "POST", "/agui/manager", json=agui_input(sid, "run-1", SAYS))
    (interrupt,) = first[-1]["outcome"]["interrupts"]
    assert (interrupt["reason"], interrupt["metadata"]["effectKey"]) == ("unknown_outcome", "transfer:slow")
    assert interrupt["responseSchema"]["required"] == ["happened"]
    for unclear in (True, {"approved": True}, {"happened": "yes"}, {"happened": True, "arguments": {}}):
        body = agui_input(sid, "run-2", SAYS, resume=resume(interrupt["id"], unclear))
        assert_problem(await alice.post("/agui/manager", json=body), 400, "invalid_argument")
    body = agui_input(sid, "run-3", SAYS, resume=resume(interrupt["id"], payload))
    assert (await events_of(alice, "POST", "/agui/manager", json=body))[-1]["type"] == "RUN_FINISHED"
    assert (await told(alice, sid))[0].startswith(expected)


async def test_ai_sdk_shows_and_answers_it(alice: httpx.AsyncClient, sid: str) -> None:
    events = await events_of(alice, "POST", "/chat/manager", json=chat_request(sid, user_says(SAYS)))
    types = [event["type"] for event in events]
    assert "data-helix-outcome" in types
    assert "tool-approval-request" not in types
    call = next(event for event in events if event["type"] == "tool-input-available")
    (question,) = (await result(alice, sid))["suspended"]
    approval = {"state": "approval-responded", "approval": {"id": question["approval_id"], "approved": True}}
    body = chat_request(sid, user_says(SAYS), reply(tool_part(call, **approval)))
    assert_problem(await alice.post("/chat/manager", json=body), 400, "invalid_argument")
    output = {"state": "output-available", "output": {"happened": True, "result": "transferred"}}
    body = chat_request(sid, user_says(SAYS), reply(tool_part(call, **output)))
    await events_of(alice, "POST", "/chat/manager", json=body)
    assert await told(alice, sid) == ["transferred"]
