"""Regenerate, edit and switch: the REST routes, and what the AI SDK and AG-UI send for them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from helix_agents.backends.registry import Stores
from helix_agents.conformance.tools.operations import branch, prepare
from tests.server.clients import agui_input, chat_request, events_of, reply, user_says
from tests.server.running import execute, result
from tests.server.test_formats import judge
from tests.server.test_problems import assert_problem

Message = dict[str, Any]


async def messages_of(client: httpx.AsyncClient, session_id: str) -> list[Message]:
    found: list[Message] = (await client.get(f"/sessions/{session_id}/messages")).json()["items"]
    return found


async def texts_of(client: httpx.AsyncClient, session_id: str) -> list[Any]:
    return [message["content"] for message in await messages_of(client, session_id)]


async def branches_of(client: httpx.AsyncClient, session_id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await client.get(f"/sessions/{session_id}/branches")).json()["items"]
    return found


async def said(client: httpx.AsyncClient, session_id: str, *texts: str) -> list[Message]:
    """Send some texts to a session; return its messages."""
    for text in texts:
        await execute(client, text, session_id)
        await result(client, session_id)
    return await messages_of(client, session_id)


async def test_edit_regenerate_and_go_back(alice: httpx.AsyncClient, sid: str) -> None:
    first, _, second, answer = await said(alice, sid, "one", "two")
    edited = await alice.post(f"/sessions/{sid}/edit", json={"message_id": second["id"], "content": "three"})
    assert (edited.status_code, edited.json()["session_id"]) == (202, sid)
    await result(alice, sid)
    assert await texts_of(alice, sid) == ["one", "You said: one", "three", "You said: three"]
    assert (await alice.post(f"/sessions/{sid}/regenerate", json={})).status_code == 202
    await result(alice, sid)
    branches = await branches_of(alice, sid)
    assert [branch["is_active"] for branch in branches] == [False, True, False, True]
    assert branches[0].keys() == {"branch_id", "message_id", "message_count", "created_at", "is_active"}
    back = await alice.post(f"/sessions/{sid}/branches/{branches[0]['branch_id']}/switch")
    assert (back.status_code, back.json()["status"]) == (200, "completed")
    assert (await messages_of(alice, sid))[2:] == [second, answer]
    edited = await alice.post(f"/sessions/{sid}/edit", json={"message_id": first["id"], "content": "zero"})
    await result(alice, sid)
    assert await texts_of(alice, sid) == ["zero", "You said: zero"]


@pytest.mark.parametrize(
    ("verb", "body", "status", "code"),
    [
        ("regenerate", {"message_id": "unknown"}, 400, "invalid_argument"),
        ("regenerate", {"message_id": 7}, 400, "invalid_argument"),
        ("regenerate", {"if_running": "enqueue"}, 400, "invalid_argument"),
        ("regenerate", {"limits": {"steps": 0}}, 400, "invalid_argument"),
        ("edit", {"message_id": "unknown", "content": "x"}, 400, "invalid_argument"),
        ("edit", {"message_id": "REPLY", "content": "x"}, 400, "invalid_argument"),
        ("edit", {"message_id": "ASKED", "content": 7}, 400, "invalid_argument"),
        ("edit", {"message_id": "ASKED", "content": [{"type": "hologram"}]}, 400, "invalid_argument"),
        ("edit", {"message_id": "ASKED"}, 400, "invalid_argument"),
        ("edit", {"content": "x"}, 400, "invalid_argument"),
        ("edit", {"message_id": "FOREIGN", "content": "x"}, 400, "invalid_argument"),
        ("branches/unknown/switch", None, 400, "invalid_argument"),
    ],
)
async def test_what_cannot_be_done_is_a_problem(
    alice: httpx.AsyncClient, sid: str, verb: str, body: Any, status: int, code: str
) -> None:
    asked, answer = await said(alice, sid, "one")
    (foreign, _) = await said(alice, f"{sid}-2", "other")
    names = {"ASKED": asked["id"], "REPLY": answer["id"], "FOREIGN": foreign["id"]}
    if body is not None and "message_id" in body:
        body = {**body, "message_id": names.get(body["message_id"], body["message_id"])}
    assert_problem(await alice.post(f"/sessions/{sid}/{verb}", json=body), status, code)
    assert await texts_of(alice, sid) == ["one", "You said: one"]
    assert await branches_of(alice, sid) == []


async def test_a_branch_that_a_restore_deleted_is_not_switched_to(alice: httpx.AsyncClient, sid: str) -> None:
    (_, _, second, _) = await said(alice, sid, "one", "two")
    oldest = (await alice.get(f"/sessions/{sid}/checkpoints")).json()["items"][-1]
    await alice.post(f"/sessions/{sid}/edit", json={"message_id": second["id"], "content": "three"})
    await result(alice, sid)
    (left, _) = await branches_of(alice, sid)
    await alice.post(f"/sessions/{sid}/restore", json={"checkpoint_id": oldest["checkpoint_id"]})
    before = await messages_of(alice, sid)
    switched = await alice.post(f"/sessions/{sid}/branches/{left['branch_id']}/switch")
    assert_problem(switched, 400, "invalid_argument")
    assert (await branches_of(alice, sid), await messages_of(alice, sid)) == ([], before)


async def test_two_hundred_branches_are_listed_and_come_back(
    admin: httpx.AsyncClient, stores: Stores, sid: str
) -> None:
    await prepare(stores.state, sid)
    for number in range(199):
        await branch(stores.state, sid, 2, branch_id=f"branch-{number}")
    found = await branches_of(admin, sid)
    assert (len(found), [each["branch_id"] for each in found if each["is_active"]]) == (200, ["branch-198"])
    assert (await admin.post(f"/sessions/{sid}/branches/branch-100/switch")).status_code == 200
    assert (await texts_of(admin, sid))[-1] == "branch-100"


async def test_a_running_session_is_edited_only_if_it_may_be_interrupted(alice: httpx.AsyncClient, sid: str) -> None:
    await execute(alice, "nap 5", sid)
    (asked, *_) = await messages_of(alice, sid)
    body: dict[str, Any] = {"message_id": asked["id"], "content": "hello"}
    assert_problem(await alice.post(f"/sessions/{sid}/edit", json=body), 409, "already_running")
    assert (await alice.post(f"/sessions/{sid}/edit", json={**body, "if_running": "interrupt"})).status_code == 202
    await result(alice, sid)
    assert await texts_of(alice, sid) == ["hello", "You said: hello"]


async def test_one_of_two_that_regenerate_at_once_wins(alice: httpx.AsyncClient, sid: str) -> None:
    await said(alice, sid, "one")
    tries = await asyncio.gather(*(alice.post(f"/sessions/{sid}/regenerate", json={}) for _ in range(4)))
    await result(alice, sid)
    codes = sorted(response.status_code for response in tries)
    assert set(codes) <= {202, 409}
    assert {each.json()["code"] for each in tries if each.status_code == 409} <= {"version_conflict", "already_running"}
    assert await texts_of(alice, sid) == ["one", "You said: one"]
    assert len(await branches_of(alice, sid)) == codes.count(202) + 1


async def test_a_key_regenerates_once(alice: httpx.AsyncClient, sid: str) -> None:
    await said(alice, sid, "one")
    key = {"Idempotency-Key": "again"}
    started = [(await alice.post(f"/sessions/{sid}/regenerate", json={}, headers=key)).json() for _ in range(2)]
    await result(alice, sid)
    assert started[0]["run_id"] == started[1]["run_id"]
    assert len(await branches_of(alice, sid)) == 2


async def test_another_users_conversation_is_not_found(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, sid: str
) -> None:
    (asked, _) = await said(alice, sid, "one")
    await alice.post(f"/sessions/{sid}/regenerate", json={})
    await result(alice, sid)
    (branch, _) = await branches_of(alice, sid)
    body = {"message_id": asked["id"], "content": "x"}
    for response in (
        await bob.get(f"/sessions/{sid}/branches"),
        await bob.post(f"/sessions/{sid}/regenerate", json={}),
        await bob.post(f"/sessions/{sid}/edit", json=body),
        await bob.post(f"/sessions/{sid}/branches/{branch['branch_id']}/switch"),
    ):
        assert_problem(response, 404, "session_not_found")
    assert len(await branches_of(alice, sid)) == 2


# -- the AI SDK


@pytest.mark.parametrize("kind", ["ai-sdk", "ai-sdk-6"])
async def test_use_chat_regenerates_and_edits(alice: httpx.AsyncClient, sid: str, kind: str, tmp_path: Path) -> None:
    path = "/chat/manager?sdk=6" if kind == "ai-sdk-6" else "/chat/manager"
    one, two = user_says("one", id="u1"), user_says("two", id="u2")
    turns = [await events_of(alice, "POST", path, json=chat_request(sid, one))]
    turns.append(await events_of(alice, "POST", path, json=chat_request(sid, one, reply(), two)))
    again = chat_request(sid, one, reply(), two, trigger="regenerate-message")
    turns.append(await events_of(alice, "POST", path, json=again))
    assert turns[2][0]["messageId"] == turns[1][0]["messageId"]
    assert await texts_of(alice, sid) == ["one", "You said: one", "two", "You said: two"]
    edit = chat_request(sid, one, reply(), user_says("three", id="u2"), messageId="u2")
    turns.append(await events_of(alice, "POST", path, json=edit))
    edit = chat_request(sid, one, reply(), user_says("four", id="u2"), messageId="u2")
    turns.append(await events_of(alice, "POST", path, json=edit))
    assert await texts_of(alice, sid) == ["one", "You said: one", "four", "You said: four"]
    earlier = chat_request(sid, one, trigger="regenerate-message")
    turns.append(await events_of(alice, "POST", path, json=earlier))
    assert await texts_of(alice, sid) == ["one", "You said: one"]
    verdicts = judge([{"kind": kind, "name": str(n), "events": events} for n, events in enumerate(turns)], tmp_path)
    assert [verdict for verdict in verdicts if verdict["problem"]] == []
    shown = [part["text"] for part in verdicts[4]["message"]["parts"] if part["type"] == "text"]
    assert shown == ["You said: four"]


async def test_a_transport_that_sends_one_message_edits_and_regenerates(alice: httpx.AsyncClient, sid: str) -> None:
    for number, text in enumerate(("one", "two")):
        message = user_says(text, id=f"u{number}")
        await events_of(alice, "POST", "/chat/manager", json={"id": sid, "message": message})
    again = {"id": sid, "message": user_says("two", id="u1"), "trigger": "regenerate-message"}
    await events_of(alice, "POST", "/chat/manager", json=again)
    assert len(await branches_of(alice, sid)) == 2
    edit = {"id": sid, "message": user_says("first", id="u0"), "messageId": "u0"}
    await events_of(alice, "POST", "/chat/manager", json=edit)
    assert await texts_of(alice, sid) == ["first", "You said: first"]


@pytest.mark.parametrize(
    ("messages", "first_difference"),
    [([user_says("other", id="u1")], 0), ([user_says("one", id="u1"), reply(), user_says("new", id="u2")], 2)],
)
async def test_what_is_not_stored_is_not_regenerated(
    alice: httpx.AsyncClient, sid: str, messages: list[Any], first_difference: int
) -> None:
    await events_of(alice, "POST", "/chat/manager", json=chat_request(sid, user_says("one", id="u1")))
    body = chat_request(sid, *messages, trigger="regenerate-message")
    problem = assert_problem(await alice.post("/chat/manager", json=body), 409, "conversation_diverged")
    assert problem["first_difference"] == first_difference
    assert await texts_of(alice, sid) == ["one", "You said: one"]


# -- AG-UI


async def test_an_ag_ui_client_edits_and_regenerates(alice: httpx.AsyncClient, sid: str, tmp_path: Path) -> None:
    runs = [await events_of(alice, "POST", "/agui/manager", json=agui_input(sid, "1", "one"))]
    runs.append(await events_of(alice, "POST", "/agui/manager", json=agui_input(sid, "2", "one", "two")))
    runs.append(await events_of(alice, "POST", "/agui/manager", json=agui_input(sid, "3", "one", "three")))
    assert await texts_of(alice, sid) == ["one", "You said: one", "three", "You said: three"]
    again = agui_input(sid, "4", "one", "three", forwardedProps={"regenerate": True})
    runs.append(await events_of(alice, "POST", "/agui/manager", json=again))
    assert runs[3][-1]["result"] == "You said: three"
    assert len(await branches_of(alice, sid)) == 4
    named = [{"kind": "ag-ui", "name": str(n), "events": events} for n, events in enumerate(runs)]
    assert [verdict for verdict in judge(named, tmp_path) if verdict["problem"]] == []


async def test_streams_show_the_user_message_and_the_branch(alice: httpx.AsyncClient, sid: str, tmp_path: Path) -> None:
    (asked, _) = await said(alice, sid, "one")
    await alice.post(f"/sessions/{sid}/edit", json={"message_id": asked["id"], "content": "two"})
    await result(alice, sid)
    agui = await events_of(alice, "GET", f"/stream/{sid}?format=ag-ui")
    custom = {event["name"]: event["value"] for event in agui if event["type"] == "CUSTOM"}
    assert custom["helix.user_message"]["content"] == "two"
    assert custom["helix.branch_switched"]["message_count"] == 0
    ai_sdk = await events_of(alice, "GET", f"/stream/{sid}?format=ai-sdk")
    data = {part["type"]: part["data"] for part in ai_sdk if part["type"].startswith("data-")}
    assert data["data-helix-user-message"]["content"] == "two"
    assert data["data-helix-branch"]["message_count"] == 0
    named = [{"kind": "ag-ui", "name": "a", "events": agui}]
    named += [{"kind": kind, "name": kind, "events": ai_sdk} for kind in ("ai-sdk", "ai-sdk-6")]
    assert [verdict for verdict in judge(named, tmp_path) if verdict["problem"]] == []
