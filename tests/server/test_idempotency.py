"""`Idempotency-Key`: a request that is sent again starts nothing, also after a crash of the server."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import httpx

from tests.server.running import execute, result, running
from tests.server.test_problems import assert_problem


async def test_a_request_sent_again_gets_the_same_run(alice: httpx.AsyncClient, sid: str) -> None:
    body = {"agent_type": "manager", "message": "nap 0.3", "session_id": sid}
    headers = {"Idempotency-Key": "k-1"}
    answers = await asyncio.gather(*(alice.post("/execute", json=body, headers=headers) for _ in range(5)))
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.text for answer in answers}) == 1
    await result(alice, sid)
    late = await alice.post("/execute", json=body, headers=headers)
    assert late.json() == answers[0].json()
    assert (await alice.get(f"/sessions/{sid}/runs")).json()["items"][-1]["turn"] == 1
    other = await alice.post("/execute", json={**body, "message": "other"}, headers=headers)
    problem = assert_problem(other, 409, "idempotency_conflict")
    assert problem["session_id"] == sid
    assert_problem(await alice.post("/execute", json=body, headers={"Idempotency-Key": ""}), 400, "invalid_argument")


async def test_a_key_without_a_session_finds_its_session(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, sid: str
) -> None:
    body = {"agent_type": "manager", "message": "hello"}
    headers = {"Idempotency-Key": sid}
    first = (await alice.post("/execute", json=body, headers=headers)).json()
    assert (await alice.post("/execute", json=body, headers=headers)).json() == first
    assert (await bob.post("/execute", json=body, headers=headers)).json()["session_id"] != first["session_id"]


async def test_a_key_holds_after_a_kill(tmp_path: Path, sid: str) -> None:
    url = f"sqlite:{tmp_path / 'h.db'}"
    headers = {"Idempotency-Key": "k"}
    body = {"agent_type": "manager", "message": "nap 1", "session_id": sid}
    with running(url, tmp_path) as first:
        async with first.client() as alice:
            begun = (await alice.post("/execute", json=body, headers=headers)).json()
        first.stop(signal.SIGKILL)
    with running(url, tmp_path) as second:
        async with second.client() as alice:
            assert (await alice.post("/execute", json=body, headers=headers)).json() == begun
            assert (await result(alice, sid))["status"] == "completed"
            messages = (await alice.get(f"/sessions/{sid}/messages")).json()["items"]
            assert [message["content"] for message in messages if message["role"] == "user"] == ["nap 1"]
            await execute(alice, "next", sid)
