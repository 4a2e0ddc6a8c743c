"""What an agent in a Durable Object shares with executors elsewhere: schedules, files, deferred calls, options."""

from __future__ import annotations

import asyncio

import pytest

from tests.cloudflare.client import Client
from tests.cloudflare.test_strangers import send, stored_objects
from tests.cloudflare.workerd import PythonWorkerd
from tests.executor.test_webhooks import Receiver

LIMIT_SECONDS = 120


async def completed(client: Client, session_id: str) -> None:
    """Wait until a session that somebody else starts has completed."""
    async with asyncio.timeout(LIMIT_SECONDS):
        while (await client.ask("GET", f"/sessions/{session_id}"))[1].get("status") != "completed":  # noqa: ASYNC110
            await asyncio.sleep(0.5)


async def test_a_schedule_starts_its_run_by_the_alarm_alone(client: Client) -> None:
    _, facts = await client.ask("GET", "/test/plan/planned?in=1")
    assert facts["alarm"] is not None
    await completed(client, "planned")


async def test_a_schedule_keeps_its_object_and_its_alarm(client: Client) -> None:
    await client.ask("GET", "/test/plan/later?in=3600")
    _, facts = await client.ask("GET", "/test/ttl/later?seconds=0")
    assert not facts["empty"], "the schedule was removed as an idle session"
    _, other = await client.ask("GET", "/test/plan/now?in=1")
    assert facts["alarm"] - other["alarm"] > 3_000_000, "the object wakes up although nothing is due"


async def test_a_run_that_no_route_has_started_is_guarded_by_the_alarm(client: Client) -> None:
    _, facts = await client.ask("GET", "/test/begin/begun-by-a-method")
    assert facts["alarm"] is not None
    await completed(client, "begun-by-a-method")


async def test_images_and_files_are_stored_in_the_object(client: Client) -> None:
    await client.ask("GET", "/test/create/files")
    data = bytes(range(256)) * 12_000  # 3 MB: larger than other bodies may be, and than a row
    headers = {"authorization": "Bearer alice", "content-type": "application/pdf"}
    async with client.http.post(f"{client.url}/sessions/files/blobs", data=data, headers=headers) as reply:
        assert reply.status == 201, await reply.text()
        found = await reply.json()
    async with client.http.get(f"{client.url}/sessions/files/blobs/{found['blob']}", headers=headers) as reply:
        assert await reply.read() == data
    assert (await client.ask("GET", f"/sessions/files/blobs/{found['blob']}", token="bob"))[0] == 404
    assert await send(client, "/sessions/files/blobs", bytes(5_000_001), token="alice") == 413


async def test_a_result_that_is_larger_than_a_row_becomes_an_artifact(client: Client) -> None:
    await client.execute("hoard", "hoarder")
    _, result = await client.ask("GET", "/result/hoard?wait=60")
    assert (result["status"], result["output"]) == ("completed", "Kept.")
    _, messages = await client.ask("GET", "/sessions/hoard/messages")
    (told,) = [each["content"] for each in messages["items"] if each["role"] == "tool"]
    assert "artifact sha256:" in told


async def test_a_deferred_call_is_completed_by_its_url_and_by_no_other(
    client: Client, python_workers: PythonWorkerd
) -> None:
    await client.execute("deferring", "deferrer")
    _, result = await client.ask("GET", "/result/deferring?wait=60")
    assert result["status"] == "suspended_client_tool"
    _, lives = await client.ask("GET", "/isolate/x")
    ((url, deps),) = lives["jobs"]
    assert deps == "given"
    path = url.removeprefix("https://agents.example")
    before = stored_objects(python_workers)
    for wrong in ("/hooks/nothing", path[:-2], f"{path}?object=elsewhere"):
        assert (await client.ask("POST", wrong, {"pages": 3}, token="wrong"))[0] == 404
    assert stored_objects(python_workers) == before
    assert (await client.ask("GET", "/isolate/x"))[1]["objects"] <= lives["objects"] + 1  # the one that was named
    assert (await client.ask("POST", path, {"pages": 3}, token="wrong"))[0] == 200
    assert (await client.ask("POST", path, {"pages": 3}, token="wrong"))[0] in (200, 409, 410)
    await completed(client, "deferring")


async def test_the_end_of_a_run_is_sent_to_a_webhook_again_by_the_alarm_if_it_was_not_accepted(client: Client) -> None:
    receiver = Receiver()
    receiver.script = [500]
    async with await asyncio.start_server(receiver.serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        await client.ask("GET", f"/test/webhook/reported?port={port}")
        await client.execute("reported")
        async with asyncio.timeout(LIMIT_SECONDS):
            while not receiver.taken:
                await receiver.has(requests=len(receiver.requests) + 1)
    assert receiver.types == ["1 run.completed"]
    assert len(receiver.requests) == 2


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_a_hook_is_nothing_but_a_post(client: Client, method: str) -> None:
    assert (await client.ask(method, "/hooks/token", token="wrong"))[0] == 401
