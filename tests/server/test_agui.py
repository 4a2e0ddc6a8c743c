"""`POST /agui/{agent}`: runs, approvals that never fail open, conversations that continue or are rejected, files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from helix_agents.backends.registry import Stores
from tests.server.clients import Event, agui_input, events_of, resume
from tests.server.running import execute, result
from tests.server.test_formats import judge
from tests.server.test_problems import assert_problem


async def asked(client: httpx.AsyncClient, session_id: str, text: str) -> Event:
    """Run until the agent asks; return its question as an interrupt."""
    events = await events_of(client, "POST", "/agui/manager", json=agui_input(session_id, "run-1", text))
    interrupt: Event = events[-1]["outcome"]["interrupts"][0]
    return interrupt


async def deleted(client: httpx.AsyncClient, session_id: str) -> Any:
    return (await client.get(f"/sessions/{session_id}/state")).json()["custom_state"].get("deleted")


async def test_a_client_runs_an_agent_and_approves_a_call(alice: httpx.AsyncClient, sid: str, tmp_path: Path) -> None:
    first = await events_of(alice, "POST", "/agui/manager", json=agui_input(sid, "run-1", "delete a.txt"))
    assert first[0] == {"type": "RUN_STARTED", "threadId": sid, "runId": "run-1"}
    interrupts = first[-1]["outcome"]["interrupts"]
    assert [(each["reason"], each["metadata"]["input"]) for each in interrupts] == [("confirmation", {"path": "a.txt"})]
    given = resume(interrupts[0]["id"], {"approved": True})
    second = await events_of(
        alice, "POST", "/agui/manager", json=agui_input(sid, "run-2", "delete a.txt", resume=given)
    )
    assert second[-1]["type"] == "RUN_FINISHED"
    assert second[-1]["result"] == "Done: a.txt is gone."
    assert [event["type"] for event in second].count("TOOL_CALL_RESULT") == 1
    assert "TOOL_CALL_START" not in [event["type"] for event in second], "the client has the call already"
    body = agui_input(sid, "run-3", "delete a.txt", "search ants")
    third = await events_of(alice, "POST", "/agui/manager", json=body)
    named = [{"kind": "ag-ui", "name": str(n), "events": events} for n, events in enumerate((first, second, third))]
    assert [verdict for verdict in judge(named, tmp_path) if verdict["problem"]] == []


async def test_an_interrupt_says_which_response_it_expects(alice: httpx.AsyncClient, sid: str) -> None:
    interrupt = await asked(alice, sid, "delete a.txt")
    (wait,) = (await result(alice, sid))["suspended"]
    assert interrupt["id"] == wait["approval_id"]
    assert interrupt["toolCallId"] == wait["tool_call_id"]
    assert interrupt["responseSchema"]["required"] == ["approved"]
    client_tool = await asked(alice, f"{sid}-2", "ask your name")
    assert [each["required"] for each in client_tool["responseSchema"]["oneOf"]] == [["result"], ["error"]]


UNCLEAR = [
    None, {}, 0, 1, "", "no", "yes", "true", "reject", [], [True], [False],
    {"approved": "true"}, {"approved": "false"}, {"approved": "no"}, {"approved": 1}, {"approved": None},
    {"approve": False}, {"approve": True}, {"accepted": False}, {"decision": "reject"}, {"type": "reject"},
    {"Approved": False}, {"approved": True, "editedArgs": {"path": "b.txt"}}, {"approved": True, "arguments": "b.txt"},
    {"approved": False, "arguments": {"path": "b.txt"}}, {"approved": True, "reason": 7}, {"result": "yes"},
    {"error": "no"},
]  # fmt: skip


@pytest.mark.parametrize("payload", UNCLEAR, ids=str)
async def test_what_is_unclear_approves_nothing(alice: httpx.AsyncClient, sid: str, payload: Any) -> None:
    interrupt = await asked(alice, sid, "delete a.txt")
    for name in (interrupt["id"], interrupt["toolCallId"]):
        body = agui_input(sid, "run-2", "delete a.txt", resume=resume(name, payload))
        assert_problem(await alice.post("/agui/manager", json=body), 400, "invalid_argument")
    assert len((await result(alice, sid))["suspended"]) == 1
    assert await deleted(alice, sid) is None


@pytest.mark.parametrize(
    ("payload", "status", "outcome"),
    [
        (True, "resolved", ["a.txt"]),
        ({"approved": True}, "resolved", ["a.txt"]),
        ({"approved": True, "reason": "fine"}, "resolved", ["a.txt"]),
        ({"approved": True, "arguments": {"path": "b.txt"}}, "resolved", ["b.txt"]),
        (False, "resolved", None),
        ({"approved": False, "reason": "keep it"}, "resolved", None),
        (None, "cancelled", None),
        ({"approved": True}, "cancelled", None),
    ],
)
async def test_what_is_clear_is_done(
    alice: httpx.AsyncClient, sid: str, payload: Any, status: str, outcome: list[str] | None
) -> None:
    interrupt = await asked(alice, sid, "delete a.txt")
    given = resume(interrupt["id"], payload, status)
    events = await events_of(alice, "POST", "/agui/manager", json=agui_input(sid, "2", "delete a.txt", resume=given))
    assert events[-1]["outcome"] == {"type": "success"}
    assert await deleted(alice, sid) == outcome


async def test_a_client_that_sends_only_its_response_is_understood(alice: httpx.AsyncClient, sid: str) -> None:
    interrupt = await asked(alice, sid, "delete a.txt")
    await events_of(alice, "POST", "/agui/manager", json=agui_input(sid, "2", resume=resume(interrupt["id"], True)))
    assert await deleted(alice, sid) == ["a.txt"]


@pytest.mark.parametrize(
    ("payload", "reply"),
    [({"result": "Ann"}, "Done: Ann"), ({"result": None}, "Done: null"), ({"error": "away"}, "Done: Error: away")],
)
async def test_a_tool_of_the_client_takes_a_result_or_an_error(
    alice: httpx.AsyncClient, sid: str, payload: Any, reply: str
) -> None:
    interrupt = await asked(alice, sid, "ask your name")
    for wrong in ("Ann", None, True, {"approved": True}, {"result": 1, "more": 2}, {"error": 7}):
        body = agui_input(sid, "2", "ask your name", resume=resume(interrupt["id"], wrong))
        assert_problem(await alice.post("/agui/manager", json=body), 400, "invalid_argument")
    body = agui_input(sid, "2", "ask your name", resume=resume(interrupt["id"], payload))
    assert (await events_of(alice, "POST", "/agui/manager", json=body))[-1]["result"] == reply


async def test_a_tool_message_is_the_result_of_a_tool_of_the_client(alice: httpx.AsyncClient, sid: str) -> None:
    interrupt = await asked(alice, sid, "ask your name")
    body = agui_input(sid, "2", "ask your name")
    body["messages"].append({"id": "t", "role": "tool", "toolCallId": interrupt["toolCallId"], "content": "Ann"})
    assert (await events_of(alice, "POST", "/agui/manager", json=body))[-1]["result"] == "Done: Ann"


async def test_a_stale_or_unknown_interrupt_is_rejected(alice: httpx.AsyncClient, sid: str) -> None:
    interrupt = await asked(alice, sid, "delete a.txt")
    stale = f"approval-0000.{interrupt['toolCallId']}"
    for name in (stale, "unknown"):
        body = agui_input(sid, "2", "delete a.txt", resume=resume(name, True))
        assert_problem(await alice.post("/agui/manager", json=body), 400, "invalid_argument")
    body = agui_input(f"{sid}-new", "2", "hello", resume=resume("unknown", True))
    assert_problem(await alice.post("/agui/manager", json=body), 400, "invalid_argument")
    assert await deleted(alice, sid) is None


async def test_a_response_records_who_gave_it(alice: httpx.AsyncClient, stores: Stores, sid: str) -> None:
    await asked(alice, sid, "delete a.txt b.txt")
    first = (await result(alice, sid))["suspended"][0]
    body = agui_input(sid, "2", "delete a.txt b.txt", resume=resume(first["approval_id"], True))
    await events_of(alice, "POST", "/agui/manager", json=body)
    pending = (await alice.get(f"/sessions/{sid}")).json()["pending_client_tool_calls"]
    assert pending[first["tool_call_id"]]["answered_by"] == "alice"


# -- conversations


async def user_texts(client: httpx.AsyncClient, session_id: str) -> list[Any]:
    items = (await client.get(f"/sessions/{session_id}/messages")).json()["items"]
    return [item["content"] for item in items if item["role"] == "user"]


@pytest.mark.parametrize(
    ("texts", "first_difference"),
    [
        (["edited"], 0),
        (["edited", "two"], 0),
        (["one", "edited"], 1),
        (["one"], 1),
        (["one", "edited", "three"], 1),
        (["two", "one", "three"], 0),
    ],
)
async def test_a_conversation_that_diverges_is_rejected(
    alice: httpx.AsyncClient, sid: str, texts: list[str], first_difference: int
) -> None:
    await events_of(alice, "POST", "/agui/manager", json=agui_input(sid, "1", "one"))
    await events_of(alice, "POST", "/agui/manager", json=agui_input(sid, "2", "one", "two"))
    body = agui_input(sid, "3", *texts)
    body["messages"][-1]["id"] = "not a stored one"
    problem = await alice.post("/agui/manager", json=body)
    assert assert_problem(problem, 409, "conversation_diverged")["first_difference"] == first_difference
    assert await user_texts(alice, sid) == ["one", "two"]


async def test_a_new_session_starts_with_all_user_messages(alice: httpx.AsyncClient, sid: str) -> None:
    body = agui_input(sid, "1", "one", "two")
    body["messages"].insert(0, {"id": "greeting", "role": "assistant", "content": "Hello, who are you?"})
    await events_of(alice, "POST", "/agui/manager", json=body)
    assert await user_texts(alice, sid) == ["one", "two"]


async def test_a_request_that_is_sent_again_gets_the_same_run(alice: httpx.AsyncClient, sid: str) -> None:
    body = agui_input(sid, "1", "hello")
    first = await events_of(alice, "POST", "/agui/manager", json=body)
    assert await events_of(alice, "POST", "/agui/manager", json=body) == first
    assert await user_texts(alice, sid) == ["hello"]
    edit = agui_input(sid, "2", "bye")
    first = await events_of(alice, "POST", "/agui/manager", json=edit)
    assert await events_of(alice, "POST", "/agui/manager", json=edit) == first
    again = agui_input(sid, "3", "bye")
    first = await events_of(alice, "POST", "/agui/manager", json=again)
    assert await events_of(alice, "POST", "/agui/manager", json=again) == first
    assert len((await alice.get(f"/sessions/{sid}/branches")).json()["items"]) == 4


async def test_a_message_that_another_client_sent_is_a_difference(alice: httpx.AsyncClient, sid: str) -> None:
    await events_of(alice, "POST", "/agui/manager", json=agui_input(sid, "1", "one"))
    await execute(alice, "from elsewhere", sid)
    await result(alice, sid)
    problem = await alice.post("/agui/manager", json=agui_input(sid, "2", "one", "two"))
    assert_problem(problem, 409, "conversation_diverged")


PNG = "iVBORw0KGgo="


@pytest.mark.parametrize(
    ("part", "stored"),
    [
        (
            {"type": "image", "source": {"type": "data", "value": PNG, "mimeType": "image/png"}},
            {"type": "image", "media_type": "image/png", "data": PNG},
        ),
        (
            {"type": "image", "source": {"type": "url", "value": "https://a.example/x.png", "mimeType": "image/png"}},
            {"type": "image", "media_type": "image/png", "url": "https://a.example/x.png"},
        ),
        (
            {"type": "document", "source": {"type": "data", "value": PNG, "mimeType": "application/pdf"}},
            {"type": "file", "media_type": "application/pdf", "data": PNG},
        ),
        (
            {"type": "binary", "mimeType": "audio/wav", "data": PNG, "filename": "x.wav"},
            {"type": "audio", "media_type": "audio/wav", "name": "x.wav", "data": PNG},
        ),
    ],
)
async def test_files_are_kept(alice: httpx.AsyncClient, sid: str, part: Event, stored: Event) -> None:
    content = [{"type": "text", "text": "what is it?"}, part]
    body = agui_input(sid, "1", messages=[{"id": "u", "role": "user", "content": content}])
    await events_of(alice, "POST", "/agui/manager", json=body)
    assert await user_texts(alice, sid) == [[{"type": "text", "text": "what is it?"}, stored]]
    body["messages"].append({"id": "u2", "role": "user", "content": "and now?"})
    await events_of(alice, "POST", "/agui/manager", json=body)
    assert len(await user_texts(alice, sid)) == 2


async def test_another_picture_of_the_same_type_is_another_message(alice: httpx.AsyncClient, sid: str) -> None:
    message: Event = {"id": "u", "role": "user", "content": [{"type": "binary", "mimeType": "image/png", "data": PNG}]}
    await events_of(alice, "POST", "/agui/manager", json=agui_input(sid, "1", messages=[message]))
    message["content"] = [{"type": "binary", "mimeType": "image/png", "data": "iVBORw0KGgoA"}]
    await events_of(alice, "POST", "/agui/manager", json=agui_input(sid, "2", messages=[message]))
    stored = [{"type": "image", "media_type": "image/png", "data": "iVBORw0KGgoA"}]
    assert await user_texts(alice, sid) == [stored]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image", "source": {"type": "file", "value": "id-7"}},
        {"type": "image", "source": {"type": "data", "value": "not base64!", "mimeType": "image/png"}},
        {"type": "image", "source": {"type": "data", "value": PNG}},
        {"type": "image", "source": {"type": "url", "value": "file:///etc/passwd", "mimeType": "image/png"}},
        {"type": "binary", "mimeType": "image/png", "id": "x"},
        {"type": "hologram"},
        "text",
        7,
    ],
    ids=str,
)
async def test_a_part_that_cannot_be_kept_is_rejected(alice: httpx.AsyncClient, sid: str, part: Any) -> None:
    content = [{"type": "text", "text": "look"}, part]
    body = agui_input(sid, "1", messages=[{"id": "u", "role": "user", "content": content}])
    assert_problem(await alice.post("/agui/manager", json=body), 400, "invalid_argument")
    assert_problem(await alice.get(f"/sessions/{sid}"), 404, "session_not_found")


async def test_the_history_has_the_messages_and_the_interrupts(alice: httpx.AsyncClient, sid: str) -> None:
    await events_of(alice, "POST", "/agui/manager", json=agui_input(sid, "1", "search ants"))
    events = await events_of(alice, "POST", "/agui/manager", json=agui_input(sid, "2", "search ants", "delete a.txt"))
    history = (await alice.get(f"/sessions/{sid}/messages?format=ag-ui")).json()
    roles = [message["role"] for message in history["messages"]]
    assert roles == ["user", "reasoning", "assistant", "tool", "assistant", "user", "assistant"]
    call = history["messages"][-1]["toolCalls"][0]
    assert (call["function"]["name"], call["function"]["arguments"]) == ("delete_file", '{"path":"a.txt"}')
    assert history["interrupts"] == events[-1]["outcome"]["interrupts"]
    assert len({message["id"] for message in history["messages"]}) == len(roles)
    body = agui_input(sid, "3", resume=resume(history["interrupts"][0]["id"], True), messages=history["messages"])
    await events_of(alice, "POST", "/agui/manager", json=body)
    assert await deleted(alice, sid) == ["a.txt"]
