"""What a tool asks in the middle of a call, over every protocol that shows questions."""

from __future__ import annotations

from typing import Any

import httpx

from tests.server.clients import agui_input, chat_request, events_of, reply, resume, tool_part, user_says
from tests.server.running import execute, read_stream, result
from tests.server.test_outcomes import told
from tests.server.test_problems import assert_problem

SAYS = 'call fit {"shirt": "blue"}'
QUESTION = {"message": "Which size?", "schema": {"type": "integer"}}


async def test_rest_shows_and_answers_it(alice: httpx.AsyncClient, sid: str) -> None:
    await execute(alice, SAYS, sid)
    (question,) = (await result(alice, sid))["suspended"]
    assert (question["kind"], question["question"], question["input"]) == ("client", QUESTION, {"shirt": "blue"})
    waiting = (await alice.get("/waiting")).json()["items"]
    assert [each["question"] for each in waiting if each["session_id"] == sid] == [QUESTION]
    frames = [frame for frame in await read_stream(alice, f"/stream/{sid}") if frame.event == "chunk"]
    assert [frame.data["question"] for frame in frames if frame.data["type"] == "client_tool_request"] == [QUESTION]
    answers = f"/sessions/{sid}/tool-results"
    given: dict[str, Any] = {"approval_id": question["approval_id"]}
    assert_problem(await alice.post(answers, json={**given, "approved": True}), 400, "invalid_argument")
    assert (await alice.post(answers, json={**given, "result": 42})).json()["receipt"] == "accepted"
    assert (await result(alice, sid))["status"] == "completed"
    assert await told(alice, sid) == ["fitted the blue shirt: 42"]


async def test_agui_shows_and_answers_it(alice: httpx.AsyncClient, sid: str) -> None:
    first = await events_of(alice, "POST", "/agui/manager", json=agui_input(sid, "run-1", SAYS))
    (interrupt,) = first[-1]["outcome"]["interrupts"]
    assert (interrupt["reason"], interrupt["message"]) == ("question", "Which size?")
    assert interrupt["metadata"]["question"] == QUESTION
    body = agui_input(sid, "run-2", SAYS, resume=resume(interrupt["id"], {"result": 42}))
    assert (await events_of(alice, "POST", "/agui/manager", json=body))[-1]["type"] == "RUN_FINISHED"
    assert await told(alice, sid) == ["fitted the blue shirt: 42"]


async def test_ai_sdk_shows_and_answers_it(alice: httpx.AsyncClient, sid: str) -> None:
    events = await events_of(alice, "POST", "/chat/manager", json=chat_request(sid, user_says(SAYS)))
    (asked,) = (event["data"] for event in events if event["type"] == "data-helix-question")
    assert asked["question"] == QUESTION
    call = next(event for event in events if event["type"] == "tool-input-available")
    output = {"state": "output-available", "output": 42}
    body = chat_request(sid, user_says(SAYS), reply(tool_part(call, **output)))
    await events_of(alice, "POST", "/chat/manager", json=body)
    assert await told(alice, sid) == ["fitted the blue shirt: 42"]
