"""Questions of a tool in the middle of a call, over every protocol that shows questions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.clients import agui_input, chat_request, events_of, reply, resume, tool_part, user_says
from tests.server.running import execute, read_stream, result
from tests.server.test_formats import judge
from tests.server.test_outcomes import told
from tests.server.test_problems import assert_problem

SAYS = 'call fit {"shirt": "blue"}'
SUB_AGENT_ASKS = ("subagent_start", "tool_approval_request")
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


@pytest.mark.parametrize("way", ["branch", "checkpoint"])
async def test_a_question_that_comes_back_is_shown_in_every_format(
    alice: httpx.AsyncClient, sid: str, way: str, tmp_path: Path
) -> None:
    await execute(alice, "delete a.txt", sid)
    (asked,) = (await result(alice, sid))["suspended"]
    await (come_back_with_branch if way == "branch" else come_back_with_checkpoint)(alice, sid)
    final = (await read_stream(alice, f"/stream/{sid}"))[-1]
    assert (final.event, [each["approval_id"] for each in final.data["suspended"]]) == ("pause", [asked["approval_id"]])
    chat = await events_of(alice, "GET", f"/chat/{sid}/stream")
    requests = [part["approvalId"] for part in chat if part["type"] == "tool-approval-request"]
    assert requests == [asked["approval_id"]]
    agui = await events_of(alice, "GET", f"/stream/{sid}?format=ag-ui")
    (call,) = (event for event in agui if event["type"] == "TOOL_CALL_START")
    assert call["parentMessageId"] == (await alice.get(f"/sessions/{sid}/messages")).json()["items"][1]["id"]
    assert [each["id"] for each in agui[-1]["outcome"]["interrupts"]] == [asked["approval_id"]]
    named = [{"kind": "ag-ui", "name": "ag-ui", "events": agui}]
    named += [{"kind": kind, "name": kind, "events": chat} for kind in ("ai-sdk", "ai-sdk-6")]
    verdicts = judge(named, tmp_path)
    assert [verdict for verdict in verdicts if verdict["problem"]] == []
    assert [part.get("state") for part in verdicts[1]["message"]["parts"]] == [None, "approval-requested"]
    await alice.post(f"/sessions/{sid}/tool-results", json={"approval_id": asked["approval_id"], "approved": False})
    assert (await result(alice, sid))["status"] == "completed"
    after = await events_of(alice, "GET", f"/stream/{sid}?format=ai-sdk")
    assert [verdict["problem"] for verdict in judge([{**named[1], "events": after}], tmp_path)] == [None]


@pytest.mark.parametrize("came_back", [False, True])
async def test_a_question_of_a_sub_agent_is_asked_once_in_every_format(
    alice: httpx.AsyncClient, sid: str, came_back: bool, tmp_path: Path
) -> None:
    await execute(alice, "tell delete a.txt", sid)
    (asked,) = (await result(alice, sid))["suspended"]
    if came_back:
        await come_back_with_branch(alice, sid)
    chat = await events_of(alice, "GET", f"/chat/{sid}/stream")
    of_the_sub_agent = [part["data"] for part in chat if part["type"] == "data-helix-subagent"]
    shown = {kind: [each for each in of_the_sub_agent if each["type"] == kind] for kind in SUB_AGENT_ASKS}
    assert [each["approval_id"] for each in shown["tool_approval_request"]] == [asked["approval_id"]]
    (start,), (request,) = shown.values()
    assert (start["sub_session_id"], start["step"]) == (request["sub_session_id"], request["step"])
    agui = await events_of(alice, "GET", f"/stream/{sid}?format=ag-ui")
    assert [event["name"] for event in agui if event["type"] == "SUBAGENT_STARTED"] == ["assistant"]
    of_the_sub_agent = [event for event in agui if "subagentRunId" in event and event["type"] == "TOOL_CALL_START"]
    assert [event["toolCallName"] for event in of_the_sub_agent] == ["delete_file"]
    assert [each["id"] for each in agui[-1]["outcome"]["interrupts"]] == [asked["approval_id"]]
    named = [{"kind": "ag-ui", "name": "ag-ui", "events": agui}]
    named += [{"kind": kind, "name": kind, "events": chat} for kind in ("ai-sdk", "ai-sdk-6")]
    assert [verdict for verdict in judge(named, tmp_path) if verdict["problem"]] == []
    await alice.post(f"/sessions/{sid}/tool-results", json={"approval_id": asked["approval_id"], "approved": False})
    assert (await result(alice, sid))["status"] == "completed"


async def come_back_with_branch(client: httpx.AsyncClient, session_id: str) -> None:
    """Switch to another branch while the question is pending, and back."""
    assert (await client.post(f"/sessions/{session_id}/regenerate", json={})).status_code == 202
    await result(client, session_id)
    branches = (await client.get(f"/sessions/{session_id}/branches")).json()["items"]
    (left,) = (each["branch_id"] for each in branches if not each["is_active"])
    assert (await client.post(f"/sessions/{session_id}/branches/{left}/switch")).status_code == 200


async def come_back_with_checkpoint(client: httpx.AsyncClient, session_id: str) -> None:
    """Abort the session, and restore it as it waited."""
    latest = (await client.get(f"/sessions/{session_id}/checkpoints")).json()["items"][0]["checkpoint_id"]
    assert (await client.post(f"/sessions/{session_id}/abort", json={})).status_code == 202
    assert (await result(client, session_id))["status"] == "failed"
    restored = await client.post(f"/sessions/{session_id}/restore", json={"checkpoint_id": latest})
    assert restored.json()["status"] == "suspended_client_tool"
