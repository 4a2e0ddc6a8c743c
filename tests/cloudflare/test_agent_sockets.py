"""The WebSockets of an agent in a Durable Object send exactly what its event streams send."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest

from tests.cloudflare.client import Client, narrow_session, numbers


async def both(client: Client, session_id: str, query: str = "") -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the frames of a stopped session, by WebSocket and by SSE."""
    events = await client.sse(session_id, query and f"?{query}")
    frames = await client.watch(session_id, query and f"&{query}")
    return frames, [{"event": name, "id": number, "data": data} for name, number, data in events]


async def at_rest(client: Client, session_id: str, agent_type: str, status: str) -> None:
    """Run an agent, and read a socket that was opened before to its end."""
    await client.execute(session_id, agent_type)
    watching = asyncio.create_task(client.watch(session_id))
    _, result = await client.ask("GET", f"/result/{session_id}?wait=60")
    assert result["status"] == status
    live = await watching
    frames, events = await both(client, session_id)
    assert live[1:] == frames[1:]
    assert frames == events


async def test_a_completed_run(client: Client) -> None:
    await at_rest(client, "same-completed", "author", "completed")
    frames, events = await both(client, "same-completed", "from_sequence=4")
    assert frames == events
    assert numbers(frames)[0] == 5


async def test_a_failed_run(client: Client) -> None:
    await at_rest(client, "same-failed", "breaker", "failed")
    frames, _ = await both(client, "same-failed")
    assert frames[-1]["event"] == "fail"


async def test_a_run_that_waits_for_a_person(client: Client) -> None:
    await at_rest(client, "same-paused", "asker", "suspended_client_tool")
    frames, _ = await both(client, "same-paused")
    assert frames[-1]["event"] == "pause"
    assert [question["tool_name"] for question in frames[-1]["data"]["suspended"]] == ["erase"]


async def test_a_fork_has_no_stream_and_nothing_to_wait_for(client: Client) -> None:
    await client.execute("same-fork")
    await client.ask("GET", "/result/same-fork?wait=60")
    status, made = await client.ask("POST", "/sessions/same-fork/fork", {"new_session_id": "forked"})
    assert status == 201, made
    frames, events = await both(client, "forked", "object=same-fork")
    assert frames == events
    assert frames[-1]["event"] in ("end", "pause")


async def test_a_deleted_session_is_gone(client: Client) -> None:
    await client.ask("GET", "/test/create/same-deleted")
    watching = [asyncio.create_task(client.watch("same-deleted"))]
    await client.ask("GET", "/test/pour/same-deleted?n=3")
    watching.append(asyncio.create_task(client.watch("same-deleted", "&from_sequence=3")))
    await client.ask("GET", "/test/look/same-deleted")
    assert (await client.ask("DELETE", "/sessions/same-deleted"))[0] == 204
    for frames in await asyncio.gather(*watching):
        assert frames[-1] == {"event": "gone", "id": None, "data": {}}


async def test_a_socket_that_follows_stays_for_the_next_turn(client: Client) -> None:
    await client.ask("GET", "/test/create/following")
    seen: list[str] = []
    address = f"{client.url}/ws/following?access_token=alice&follow=true"
    async with client.http.ws_connect(address, max_msg_size=0) as socket:
        for turn in (1, 2):
            await client.ask("GET", "/test/pour/following?n=2")
            await client.ask("GET", "/test/end/following")
            while seen.count("end") < turn:
                seen.append((await socket.receive_json())["event"])
            await client.ask("GET", "/test/again/following")
    assert [name for name in seen if name != "chunk"] == ["open", "end", "end"]
    assert seen.count("chunk") >= 4


async def test_long_ids_have_sockets_too(client: Client) -> None:
    name = "ü" * 256
    await client.ask("GET", f"/test/create/{name}")
    await client.ask("GET", f"/test/pour/{name}?n=2")
    await client.ask("GET", f"/test/end/{name}")
    assert numbers(await client.watch(name)) == [1, 2]


async def test_a_socket_that_asks_for_nonsense_is_refused(client: Client) -> None:
    await client.ask("GET", "/test/create/nonsense")
    for query in ("format=ag-ui", "from_sequence=x", "from_sequence=-1", "follow=perhaps"):
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await client.http.ws_connect(f"{client.url}/ws/nonsense?access_token=alice&{query}")
        assert refused.value.status == 400, query


async def test_a_cursor_before_the_first_kept_chunk_is_refused_as_over_http(client: Client) -> None:
    await client.ask("GET", "/test/create/truncated")
    await client.ask("GET", "/test/pour/truncated?n=30&keep=5")
    assert (await client.ask("GET", "/stream/truncated?from_sequence=3"))[0] == 410
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await client.http.ws_connect(f"{client.url}/ws/truncated?access_token=alice&from_sequence=3")
    assert refused.value.status == 410


# -- which object a request goes to


async def test_a_key_without_a_session_starts_one_run_however_often_it_is_sent(client: Client) -> None:
    body = {"agent_type": "author", "message": "go"}
    sent = [await client.ask("POST", "/execute", body, idempotency_key="once") for _ in range(2)]
    assert [status for status, _ in sent] == [202, 202]
    assert sent[0][1]["session_id"] == sent[1][1]["session_id"]
    assert sent[0][1]["run_id"] == sent[1][1]["run_id"]
    _, other = await client.ask("POST", "/execute", body, idempotency_key="once", token="bob")
    assert other["session_id"] != sent[0][1]["session_id"]
    status, refused = await client.ask("POST", "/execute", body, idempotency_key="x" * 300)
    assert (status, refused["code"]) == (400, "invalid_argument")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/chat/author", {"id": "chat-1", "messages": [{"role": "user", "parts": [{"type": "text", "text": "go"}]}]}),
        ("/agui/author", {"threadId": "agui-1", "runId": "r", "messages": [{"role": "user", "content": "go"}]}),
    ],
)
async def test_chats_live_in_the_object_of_their_session(client: Client, path: str, body: dict[str, Any]) -> None:
    headers = {"authorization": "Bearer alice"}
    async with client.http.post(client.url + path, json=body, headers=headers) as reply:
        assert reply.status == 200, await reply.text()
    session_id = body.get("id") or body["threadId"]
    _, result = await client.ask("GET", f"/result/{session_id}?wait=60")
    assert (result["status"], result["output"]) == ("completed", "Done, three notes.")


@pytest.mark.parametrize(("hint", "options"), [("weur", {"locationHint": "weur"}), ("", {})])
async def test_a_location_hint_reaches_the_namespace(client: Client, hint: str, options: dict[str, str]) -> None:
    await client.ask("GET", "/test/create/hinted")
    _, found = await client.ask("GET", f"/hinted/{hint}/sessions/hinted/state")
    assert found == {"asked": [["hinted", options]], "status": 200}


async def test_a_missing_namespace_is_named(client: Client) -> None:
    _, found = await client.ask("GET", "/unbound")
    assert found["error"].startswith(
        "None is not a Durable Object namespace. Pass the binding that wrangler.jsonc names"
    )


async def test_requests_do_not_put_the_alarm_off(client: Client) -> None:
    await client.ask("GET", "/test/create/alarmed")
    alarms = []
    for _ in range(3):
        await client.ask("POST", "/sessions/alarmed/interrupt", {"reason": "stop"})
        alarms.append((await client.ask("GET", "/test/look/alarmed"))[1]["alarm"])
    assert alarms[0] is not None
    assert len(set(alarms)) == 1


async def test_a_run_is_woken_soon_although_an_alarm_is_set_for_much_later(client: Client) -> None:
    await client.execute("retained", "asker")
    await client.ask("GET", "/result/retained?wait=60")
    _, later = await client.ask("GET", "/test/expire/retained?in=50000")
    await client.ask("POST", "/sessions/retained/interrupt", {"reason": "stop"})
    _, sooner = await client.ask("GET", "/test/look/retained")
    assert later["alarm"] - sooner["alarm"] > 40_000_000


async def test_a_socket_that_does_not_read_slows_no_other_and_loses_nothing(client: Client) -> None:
    await client.ask("GET", "/test/create/idle")
    await client.ask("GET", "/test/pour/idle?n=1")
    async with narrow_session() as session:
        idle = await session.ws_connect(f"{client.url}/ws/idle?access_token=alice", max_msg_size=0)
        watching = asyncio.create_task(client.watch("idle"))
        await client.ask("GET", "/test/pour/idle?n=60&size=100000")  # 6 MB, much more than a connection holds
        await client.ask("GET", "/test/end/idle")
        frames = await watching
        assert numbers(frames) == list(range(1, 62))
        assert [message.json() async for message in idle][1:] == frames[1:]
