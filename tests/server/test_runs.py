"""Runs over HTTP: start, wait, stream, respond, interrupt, resume."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from helix_agents import Agent, AgentExecutor, ScriptedLLM, UsageLimits, open_stores
from helix_agents.demo.served import ask_user
from helix_agents.llm.scripted import Call
from helix_agents.server import User, create_app
from tests.server.agents import nap
from tests.server.running import chunks, execute, read_stream, result, streaming, text_of
from tests.server.test_access import client_of
from tests.server.test_problems import assert_problem


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
    said = {"role": "user", "content": "hello", "x": 1, "id": "m1"}
    body = {"agent_type": "manager", "session_id": sid, "message": [said]}
    assert (await alice.post("/execute", json=body)).status_code == 202
    assert (await result(alice, sid))["output"] == "You said: hello"
    stored = (await alice.get(f"/sessions/{sid}/messages")).json()
    assert stored["items"][0] == said
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


async def test_a_client_tool_takes_a_result_and_waits_for_resume_if_asked_to(sid: str) -> None:
    agent = Agent("asker", tools=[ask_user])
    llm = ScriptedLLM([[Call("ask_user", {"question": "your name"})], "Thanks."])
    async with open_stores("memory:") as stores, AgentExecutor(stores, llm, agents=[agent]) as executor:
        # Without a worker: with one, either of the two could continue the session first.
        async with client_of(create_app(executor, authenticate=lambda _: User("ann"), recover=False)) as ann:
            await execute(ann, "Ask", sid, agent_type="asker")
            wait = (await result(ann, sid))["suspended"][0]
            assert (wait["kind"], wait["tool_name"]) == ("client", "ask_user")
            body = {"tool_call_id": wait["tool_call_id"], "result": None, "resume": False}
            receipt = (await ann.post(f"/sessions/{sid}/tool-results", json=body)).json()
            assert receipt == {"receipt": "accepted", "can_resume": True}
            assert (await ann.get(f"/result/{sid}")).json()["status"] == "suspended_client_tool"
            assert (await ann.post(f"/sessions/{sid}/resume")).status_code == 202
            assert (await result(ann, sid))["status"] == "completed"


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


# -- messages to a session that runs


async def test_a_message_to_a_running_session_is_enqueued_if_asked_to(alice: httpx.AsyncClient, sid: str) -> None:
    begun = await execute(alice, "nap 0.5", sid)
    same = await execute(alice, "second", sid, if_running="enqueue")
    assert same["run_id"] == begun["run_id"]
    assert (await result(alice, sid))["status"] == "completed"
    items = (await alice.get(f"/sessions/{sid}/messages")).json()["items"]
    assert [item["content"] for item in items if item["role"] == "user"] == ["nap 0.5", "second"]


async def test_a_message_to_a_running_session_interrupts_it_if_asked_to(alice: httpx.AsyncClient, sid: str) -> None:
    begun = await execute(alice, "nap 3", sid)
    other = await execute(alice, "never mind", sid, if_running="interrupt")
    assert other["run_id"] != begun["run_id"]
    assert (await result(alice, sid))["status"] == "completed"


async def test_if_running_starts_a_session_that_does_not_run(alice: httpx.AsyncClient, sid: str) -> None:
    for choice in ("reject", "enqueue", "interrupt"):
        await execute(alice, "hello", f"{sid}-{choice}", if_running=choice)
        assert (await result(alice, f"{sid}-{choice}"))["output"] == "You said: hello"


# -- limits and retries


async def test_a_client_may_limit_its_run(alice: httpx.AsyncClient, sid: str) -> None:
    await execute(alice, "search ants", sid, limits={"steps": 1})
    found = await result(alice, sid)
    assert found["status"] == "failed"
    assert (await alice.get(f"/sessions/{sid}")).json()["failure_reason"] == "usage_limit"
    await execute(alice, "search ants", f"{sid}-2", limits={"steps": 5, "tool_calls": 3, "tokens": 100_000})
    assert (await result(alice, f"{sid}-2"))["status"] == "completed"


@pytest.mark.parametrize(
    "limits",
    [
        {"steps": 0},
        {"steps": -1},
        {"steps": 1.5},
        {"tokens": "many"},
        {"cost": 0},
        {"cost": 1},  # this agent has no prices, and a client cannot give them
        {"prices": {}},
        {"per": "session"},
        [],
    ],
    ids=str,
)
async def test_limits_that_cannot_hold_are_rejected(alice: httpx.AsyncClient, sid: str, limits: Any) -> None:
    body = {"agent_type": "manager", "message": "hello", "session_id": sid, "limits": limits}
    assert_problem(await alice.post("/execute", json=body), 400, "invalid_argument")
    assert (await alice.get(f"/sessions/{sid}")).status_code == 404


async def test_limits_are_never_above_those_of_the_agent() -> None:
    strict = Agent("strict", tools=[nap], limits=UsageLimits(steps=1))
    async with open_stores("memory:") as stores:
        script = ScriptedLLM(lambda request: [Call("nap", {"seconds": 0})])
        async with AgentExecutor(stores, script, agents=[strict]) as executor:
            async with client_of(create_app(executor, authenticate=lambda _: User("ann"))) as client:
                body = {"agent_type": "strict", "message": "go", "session_id": "s", "limits": {"steps": 10}}
                assert (await client.post("/execute", json=body)).status_code == 202
                assert (await client.get("/result/s?wait=10")).json()["status"] == "failed"
            session = await stores.state.load_state("s")
            assert session is not None
            assert (session.step_count, session.failure_reason) == (1, "usage_limit")


async def test_a_failed_turn_is_run_again(alice: httpx.AsyncClient, sid: str) -> None:
    await execute(alice, "search ants", sid, limits={"tool_calls": 1, "steps": 1})
    assert (await result(alice, sid))["status"] == "failed"
    again = await alice.post(f"/sessions/{sid}/retry")
    assert again.status_code == 202, again.text
    assert again.json()["session_id"] == sid
    await result(alice, sid)
    runs = (await alice.get(f"/sessions/{sid}/runs")).json()["items"]
    assert [run["run_id"] for run in runs][-1] == again.json()["run_id"]
    await execute(alice, "hello", f"{sid}-fine")
    await result(alice, f"{sid}-fine")
    assert_problem(await alice.post(f"/sessions/{sid}-fine/retry"), 409, "not_resumable")


async def test_who_responded_to_a_call_is_stored_with_its_result(
    alice: httpx.AsyncClient, admin: httpx.AsyncClient, sid: str
) -> None:
    await execute(alice, "delete a.txt b.txt", sid)
    first, second = (await result(alice, sid))["suspended"]
    for client, wait, approved in ((alice, first, True), (admin, second, False)):
        body = {"approval_id": wait["approval_id"], "approved": approved}
        assert (await client.post(f"/sessions/{sid}/tool-results", json=body)).status_code == 200
    assert (await result(alice, sid))["status"] == "completed"
    items = (await alice.get(f"/sessions/{sid}/messages")).json()["items"]
    assert [item["answered_by"] for item in items if item["role"] == "tool"] == ["alice", "root"]
