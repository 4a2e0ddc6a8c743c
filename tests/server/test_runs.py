"""Runs over HTTP: start, wait, stream, answer, interrupt, resume."""

from __future__ import annotations

import asyncio

import httpx

from tests.server.running import chunks, execute, read_stream, result, streaming, text_of


async def test_a_run_can_be_started_followed_and_asked_for_its_result(alice: httpx.AsyncClient, sid: str) -> None:
    begun = await execute(alice, "search ants", sid)
    assert begun["session_id"] == sid
    assert begun["stream_url"] == f"/stream/{sid}?from_sequence={begun['from_sequence']}"
    frames = await read_stream(alice, begun["stream_url"])
    assert frames[0].event == "open"
    assert frames[0].data["session_id"] == sid
    assert [frame.id for frame in chunks(frames)] == list(range(1, len(frames) - 1))
    assert frames[-1].event == "end"
    assert frames[-1].data == {"status": "completed", "output": "Done: Three pages speak of ants."}
    answer = await result(alice, sid)
    assert answer == {
        "session_id": sid,
        "run_id": begun["run_id"],
        "status": "completed",
        "output": "Done: Three pages speak of ants.",
        "error": None,
        "suspended": [],
    }


async def test_the_next_turn_streams_from_where_it_begins(alice: httpx.AsyncClient, sid: str) -> None:
    await execute(alice, "first", sid)
    await result(alice, sid)
    second = await execute(alice, "second", sid)
    assert second["from_sequence"] > 0
    assert text_of(await read_stream(alice, second["stream_url"])) == "You said: second"


async def test_messages_may_be_given_as_a_list(alice: httpx.AsyncClient, sid: str) -> None:
    body = {"agent_type": "manager", "session_id": sid, "message": [{"role": "user", "content": "hello", "x": 1}]}
    assert (await alice.post("/execute", json=body)).status_code == 202
    assert (await result(alice, sid))["output"] == "You said: hello"
    stored = (await alice.get(f"/sessions/{sid}/messages")).json()
    assert stored["items"][0] == {"role": "user", "content": "hello", "x": 1}
    assert stored["total"] == 2


async def test_a_result_without_wait_is_given_while_the_run_is_at_work(alice: httpx.AsyncClient, sid: str) -> None:
    await execute(alice, "nap 1.5", sid)
    answer = (await alice.get(f"/result/{sid}")).json()
    assert (answer["status"], answer["output"], answer["error"]) == ("active", None, None)
    assert (await result(alice, sid))["status"] == "completed"


async def test_an_approval_lets_the_run_go_on_by_itself(alice: httpx.AsyncClient, sid: str) -> None:
    begun = await execute(alice, "delete a.txt b.txt", sid)
    frames = await read_stream(alice, begun["stream_url"])
    assert frames[-1].event == "pause"
    assert frames[-1].data["status"] == "suspended_client_tool"
    waits = (await result(alice, sid))["suspended"]
    assert [wait["kind"] for wait in waits] == ["approval", "approval"]
    assert {wait["input"]["path"] for wait in waits} == {"a.txt", "b.txt"}
    assert frames[-1].data["suspended"] == waits
    first, second = (wait["tool_call_id"] for wait in waits)
    receipt = (await alice.post(f"/sessions/{sid}/tool-results", json={"tool_call_id": first, "approved": True})).json()
    assert receipt == {"receipt": "accepted", "can_resume": False}
    again = (await alice.post(f"/sessions/{sid}/tool-results", json={"tool_call_id": first, "approved": True})).json()
    assert again["receipt"] == "duplicate"
    body = {"tool_call_id": second, "approved": False, "reason": "keep it"}
    receipt = (await alice.post(f"/sessions/{sid}/tool-results", json=body)).json()
    assert receipt["receipt"] == "accepted"
    assert receipt["can_resume"] is True
    assert receipt["run_id"] not in (None, begun["run_id"])
    assert (await result(alice, sid))["status"] == "completed"
    state = (await alice.get(f"/sessions/{sid}/state")).json()
    assert state["custom_state"] == {"deleted": ["a.txt"]}


async def test_a_call_can_be_approved_with_other_arguments(alice: httpx.AsyncClient, sid: str) -> None:
    await execute(alice, "delete everything.txt", sid)
    wait = (await result(alice, sid))["suspended"][0]
    body = {"tool_call_id": wait["tool_call_id"], "approved": True, "arguments": {"path": "one.txt"}}
    assert (await alice.post(f"/sessions/{sid}/tool-results", json=body)).json()["receipt"] == "accepted"
    assert (await result(alice, sid))["status"] == "completed"
    assert (await alice.get(f"/sessions/{sid}/state")).json()["custom_state"] == {"deleted": ["one.txt"]}


async def test_a_client_tool_takes_a_result_and_waits_for_resume_if_asked_to(
    alice: httpx.AsyncClient, sid: str
) -> None:
    await execute(alice, "ask your name", sid)
    wait = (await result(alice, sid))["suspended"][0]
    assert (wait["kind"], wait["tool_name"]) == ("client", "ask_user")
    body = {"tool_call_id": wait["tool_call_id"], "result": None, "resume": False}
    receipt = (await alice.post(f"/sessions/{sid}/tool-results", json=body)).json()
    assert receipt == {"receipt": "accepted", "can_resume": True}
    assert (await alice.get(f"/result/{sid}")).json()["status"] == "suspended_client_tool"
    resumed = await alice.post(f"/sessions/{sid}/resume")
    assert resumed.status_code == 202, resumed.text
    frames = await read_stream(alice, resumed.json()["stream_url"])
    assert frames[-1].event == "end"


async def test_a_question_of_a_sub_agent_is_answered_at_the_root(alice: httpx.AsyncClient, sid: str) -> None:
    await execute(alice, "tell delete c.txt", sid)
    wait = (await result(alice, sid))["suspended"][0]
    listed = (await alice.get("/waiting")).json()["items"]
    mine = [item for item in listed if item["root_session_id"] == sid]
    assert [item["tool_call_id"] for item in mine] == [wait["tool_call_id"]]
    children = (await alice.get(f"/sessions/{sid}/children")).json()["items"]
    assert [child["sub_session_id"] for child in children] == [mine[0]["session_id"]]
    body = {"tool_call_id": wait["tool_call_id"], "approved": True}
    assert (await alice.post(f"/sessions/{sid}/tool-results", json=body)).json()["can_resume"] is True
    assert (await result(alice, sid))["status"] == "completed"


async def test_an_interrupted_run_can_be_resumed_with_a_message(alice: httpx.AsyncClient, sid: str) -> None:
    await execute(alice, "nap 3", sid)
    stopped = await alice.post(f"/sessions/{sid}/interrupt", json={"reason": "enough"})
    assert (stopped.status_code, stopped.json()) == (202, {})
    assert (await result(alice, sid))["status"] == "interrupted"
    resumed = await alice.post(f"/sessions/{sid}/resume", json={"message": "never mind"})
    assert resumed.status_code == 202, resumed.text


async def test_an_aborted_run_has_failed(alice: httpx.AsyncClient, sid: str) -> None:
    begun = await execute(alice, "nap 30", sid)
    assert (await alice.post(f"/sessions/{sid}/abort", json={"reason": "no"})).status_code == 202
    frames = await read_stream(alice, begun["stream_url"])
    assert frames[-1].event == "fail"
    assert "no" in frames[-1].data["error"]
    assert (await result(alice, sid))["status"] == "failed"


async def test_closing_a_connection_does_not_stop_the_run(alice: httpx.AsyncClient, sid: str) -> None:
    begun = await execute(alice, "nap 0.5", sid)
    async with streaming(alice, begun["stream_url"]) as frames:
        await anext(frames)
    async with asyncio.timeout(30):
        assert (await result(alice, sid))["status"] == "completed"
