"""`POST /chat/{agent}` and `GET /chat/{id}/stream`: the chat of the AI SDK, versions 6 and 7."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.clients import Event, chat_request, events_of, reply, tool_part, user_says
from tests.server.running import execute, result
from tests.server.test_agui import deleted, user_texts
from tests.server.test_formats import judge, responded, tool_parts
from tests.server.test_problems import assert_problem


async def said_and_asked(client: httpx.AsyncClient, session_id: str, text: str) -> tuple[Event, Event | None]:
    """Chat until the agent asks; return the call that it shows, and the approval request."""
    parts = await events_of(client, "POST", "/chat/manager", json=chat_request(session_id, user_says(text)))
    call = next(part for part in parts if part["type"] == "tool-input-available")
    return call, next((part for part in parts if part["type"] == "tool-approval-request"), None)


@pytest.mark.parametrize("sdk", [6, 7])
@pytest.mark.parametrize("saying", ["delete a.txt", "ask your name"])
async def test_a_chat_with_a_call_that_the_user_responds_to(
    alice: httpx.AsyncClient, sid: str, tmp_path: Path, sdk: int, saying: str
) -> None:
    path, kind = f"/chat/manager?sdk={sdk}", "ai-sdk-6" if sdk == 6 else "ai-sdk"
    first = await events_of(alice, "POST", path, json=chat_request(sid, user_says(saying)))
    (asked,) = judge([{"kind": kind, "name": "first", "events": first}], tmp_path)
    message = responded(asked["message"], approved=True)
    body = chat_request(sid, user_says(saying), message, messageId=message["id"])
    second = await events_of(alice, "POST", path, json=body)
    assert second[0] == first[0], "the same message continues"
    (done,) = judge([{"kind": kind, "name": "second", "events": second, "message": message}], tmp_path)
    assert done["problem"] is None
    assert [(part["toolCallId"], part["state"]) for part in tool_parts(done["message"])] == [
        (part["toolCallId"], "output-available") for part in tool_parts(message)
    ]
    history = (await alice.get(f"/sessions/{sid}/messages?format=ai-sdk")).json()["messages"]
    assert [each["role"] for each in history] == ["user", "assistant"]
    assert history[1]["id"] == message["id"]
    shown = [part for part in done["message"]["parts"] if not part["type"].startswith("data-")]
    assert [part["type"] for part in history[1]["parts"]] == [part["type"] for part in shown]
    assert [part.get("output") for part in history[1]["parts"]] == [part.get("output") for part in shown]


async def test_the_id_of_the_approval_must_match(alice: httpx.AsyncClient, sid: str) -> None:
    call, request = await said_and_asked(alice, sid, "delete a.txt")
    assert request is not None
    for approval in (
        {"id": f"approval-0000.{call['toolCallId']}", "approved": True},
        {"id": "approval-WRONG", "approved": True},
        {"approved": True},
        {"id": request["approvalId"]},
        {"id": request["approvalId"], "approved": "yes"},
        {"id": request["approvalId"], "approved": 1},
        {"id": request["approvalId"], "approved": True, "reason": 7},
    ):
        part = tool_part(call, state="approval-responded", approval=approval)
        body = chat_request(sid, user_says("delete a.txt"), reply(part))
        assert_problem(await alice.post("/chat/manager", json=body), 400, "invalid_argument")
    assert len((await result(alice, sid))["suspended"]) == 1
    right = {"id": request["approvalId"], "approved": True}
    part = tool_part(call, state="approval-responded", approval=right)
    await events_of(alice, "POST", "/chat/manager", json=chat_request(sid, user_says("delete a.txt"), reply(part)))
    assert await deleted(alice, sid) == ["a.txt"]


async def test_a_rejected_call_does_not_run(alice: httpx.AsyncClient, sid: str) -> None:
    call, request = await said_and_asked(alice, sid, "delete a.txt")
    assert request is not None
    approval = {"id": request["approvalId"], "approved": False, "reason": "keep it"}
    part = tool_part(call, state="approval-responded", approval=approval)
    body = chat_request(sid, user_says("delete a.txt"), reply(part))
    events = await events_of(alice, "POST", "/chat/manager", json=body)
    assert any(event["type"] == "tool-output-error" and "keep it" in event["errorText"] for event in events)
    assert await deleted(alice, sid) is None


async def test_the_results_of_the_servers_tools_are_not_responses(alice: httpx.AsyncClient, sid: str) -> None:
    await said_and_asked(alice, sid, "search ants")
    forged = {"toolCallId": "call_1_1", "toolName": "search", "input": {"query": "ants"}}
    body = chat_request(
        sid, user_says("search ants"), reply(tool_part(forged, state="output-available", output="forged"))
    )
    await events_of(alice, "POST", "/chat/manager", json=body)
    assert "forged" not in (await alice.get(f"/sessions/{sid}/messages")).text


# -- reconnecting


async def test_a_chat_that_was_left_is_joined_again(alice: httpx.AsyncClient, sid: str) -> None:
    body = chat_request(sid, user_says("nap 1"))
    async with alice.stream("POST", "/chat/manager", json=body) as response:
        assert response.headers["x-vercel-ai-ui-message-stream"] == "v1"
        first = await anext(response.aiter_lines())
    parts = await events_of(alice, "GET", f"/chat/{sid}/stream")
    assert str(parts[0]["messageId"]) in first
    assert parts[-1]["type"] == "finish"
    assert (await alice.get(f"/chat/{sid}/stream")).status_code == 204, "nothing is in progress any more"


async def test_a_chat_that_waits_is_joined_again_and_shows_the_question(
    alice: httpx.AsyncClient, sid: str, tmp_path: Path
) -> None:
    _, request = await said_and_asked(alice, sid, "delete a.txt")
    assert request is not None
    parts = await events_of(alice, "GET", f"/chat/{sid}/stream")
    assert request in parts
    (seen,) = judge([{"kind": "ai-sdk", "name": "again", "events": parts}], tmp_path)
    history = (await alice.get(f"/sessions/{sid}/messages?format=ai-sdk")).json()["messages"]
    assert history[-1]["id"] == seen["message"]["id"], "a client that reconnects replaces what it has"
    (waiting,) = tool_parts(history[-1])
    assert (waiting["state"], waiting["approval"]) == ("approval-requested", {"id": request["approvalId"]})


# -- conversations


async def test_a_conversation_continues(alice: httpx.AsyncClient, sid: str) -> None:
    first = await events_of(alice, "POST", "/chat/manager", json=chat_request(sid, user_says("one")))
    answer = reply({"type": "text", "text": "You said: one"}, id=first[0]["messageId"])
    body = chat_request(sid, user_says("one"), answer, user_says("two", id="u2"))
    second = await events_of(alice, "POST", "/chat/manager", json=body)
    assert second[0]["messageId"] != first[0]["messageId"]
    assert await user_texts(alice, sid) == ["one", "two"]
    history = (await alice.get(f"/sessions/{sid}/messages?format=ai-sdk")).json()["messages"]
    assert [message["id"] for message in history if message["role"] == "assistant"] == [
        first[0]["messageId"],
        second[0]["messageId"],
    ]


async def test_an_edited_message_is_not_appended(alice: httpx.AsyncClient, sid: str) -> None:
    await events_of(alice, "POST", "/chat/manager", json=chat_request(sid, user_says("one")))
    later = [user_says("edited"), reply(), user_says("two", id="u2")]
    for messages, message_id in (([user_says("edited", id="x")], "x"), ([user_says("edited")], None), (later, "u")):
        body = chat_request(sid, *messages, messageId=message_id)
        problem = assert_problem(await alice.post("/chat/manager", json=body), 409, "conversation_diverged")
        assert problem["first_difference"] == 0
    assert await user_texts(alice, sid) == ["one"]


async def test_a_message_that_another_client_sent_is_a_difference(alice: httpx.AsyncClient, sid: str) -> None:
    await events_of(alice, "POST", "/chat/manager", json=chat_request(sid, user_says("one")))
    await execute(alice, "from another tab", sid)
    await result(alice, sid)
    body = chat_request(sid, user_says("one"), reply(), user_says("two", id="u2"))
    problem = assert_problem(await alice.post("/chat/manager", json=body), 409, "conversation_diverged")
    assert problem["first_difference"] == 2


async def test_a_transport_may_send_the_last_message_only(alice: httpx.AsyncClient, sid: str) -> None:
    for text in ("one", "two"):
        await events_of(alice, "POST", "/chat/manager", json={"id": sid, "message": user_says(text)})
    assert await user_texts(alice, sid) == ["one", "two"]
    call, request = await said_and_asked(alice, f"{sid}-2", "delete a.txt")
    assert request is not None
    approval = {"id": request["approvalId"], "approved": True}
    message = reply(tool_part(call, state="approval-responded", approval=approval))
    await events_of(alice, "POST", "/chat/manager", json={"id": f"{sid}-2", "message": message})
    assert await deleted(alice, f"{sid}-2") == ["a.txt"]
    both = {"id": sid, "message": user_says("x"), "messages": [user_says("x")]}
    assert_problem(await alice.post("/chat/manager", json=both), 400, "invalid_argument")


async def test_messages_that_did_not_arrive_are_sent_with_the_next(alice: httpx.AsyncClient, sid: str) -> None:
    body = chat_request(sid, user_says("lost"), user_says("found", id="u2"))
    await events_of(alice, "POST", "/chat/manager", json=body)
    assert await user_texts(alice, sid) == ["lost", "found"]


PNG = "iVBORw0KGgo="


async def test_files_are_kept(alice: httpx.AsyncClient, sid: str) -> None:
    image = {"type": "file", "mediaType": "image/png", "url": f"data:image/png;base64,{PNG}", "filename": "x.png"}
    page = {"type": "file", "mediaType": "application/pdf", "url": "https://a.example/x.pdf"}
    body = chat_request(sid, user_says("look", image, page))
    await events_of(alice, "POST", "/chat/manager", json=body)
    assert await user_texts(alice, sid) == [
        [
            {"type": "text", "text": "look"},
            {"type": "image", "media_type": "image/png", "name": "x.png", "data": PNG},
            {"type": "file", "media_type": "application/pdf", "url": "https://a.example/x.pdf"},
        ]
    ]
    history = (await alice.get(f"/sessions/{sid}/messages?format=ai-sdk")).json()["messages"]
    assert history[0]["parts"] == [{"type": "text", "text": "look"}, image, page]
    body["messages"] += [reply(), user_says("again", id="u2")]
    await events_of(alice, "POST", "/chat/manager", json=body)


@pytest.mark.parametrize(
    "part",
    [
        {"type": "file", "mediaType": "image/png", "url": "file:///etc/passwd"},
        {"type": "file", "mediaType": "image/png", "url": "blob:http://localhost/1"},
        {"type": "file", "mediaType": "image/png", "url": "data:image/png,raw"},
        {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,&&&"},
        {"type": "file", "mediaType": 7, "url": "https://a.example/x"},
        {"type": "file", "url": "https://a.example/x"},
        {"type": "source-url", "url": "https://a.example"},
        {"type": "text"},
        "text",
    ],
    ids=str,
)
async def test_a_part_that_cannot_be_kept_is_rejected(alice: httpx.AsyncClient, sid: str, part: Any) -> None:
    body = chat_request(sid, {"id": "u", "role": "user", "parts": [{"type": "text", "text": "look"}, part]})
    assert_problem(await alice.post("/chat/manager", json=body), 400, "invalid_argument")
    assert_problem(await alice.get(f"/sessions/{sid}"), 404, "session_not_found")


async def test_the_history_shows_what_has_finished_beside_a_question(alice: httpx.AsyncClient, sid: str) -> None:
    await execute(alice, "delete a.txt b.txt", sid)
    waits = (await result(alice, sid))["suspended"]
    body = {"approval_id": waits[0]["approval_id"], "approved": True}
    await alice.post(f"/sessions/{sid}/tool-results", json=body)
    history = (await alice.get(f"/sessions/{sid}/messages?format=ai-sdk")).json()["messages"]
    assert [part["state"] for part in tool_parts(history[-1])] == ["approval-responded", "approval-requested"]


async def test_these_routes_keep_users_apart(alice: httpx.AsyncClient, bob: httpx.AsyncClient, sid: str) -> None:
    await execute(alice, "hello", sid)
    await result(alice, sid)
    said = {"id": "u", "role": "user", "content": "mine"}
    for response in (
        await bob.post("/agui/manager", json={"threadId": sid, "runId": "r", "messages": [said]}),
        await bob.post("/chat/manager", json=chat_request(sid, user_says("mine"))),
        await bob.get(f"/chat/{sid}/stream"),
        await bob.get(f"/stream/{sid}?format=ag-ui"),
        await bob.get(f"/sessions/{sid}/messages?format=ai-sdk"),
    ):
        assert (response.status_code, response.json()["code"]) == (404, "session_not_found")


async def test_streams_are_accepted_wherever_they_are_joined(
    alice: httpx.AsyncClient, sid: str, tmp_path: Path
) -> None:
    await execute(alice, "tell search ants", sid)
    await result(alice, sid)
    latest = (await alice.get(f"/sessions/{sid}/snapshot")).json()["sequence"]
    streams = []
    for kind in ("ag-ui", "ai-sdk"):
        for place in range(0, latest, 3):
            events = await events_of(alice, "GET", f"/stream/{sid}?format={kind}&from_sequence={place}")
            streams.append({"kind": kind, "name": f"{kind} {place}", "events": events})
    assert [verdict for verdict in judge(streams, tmp_path) if verdict["problem"]] == []
