"""An agent in a Durable Object, in Pyodide in workerd: routes, sockets, hibernation, death and the alarm."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.cloudflare.workerd import PythonWorkerd
from tests.servers.fixtures import started

INSIDE = Path(__file__).parent / "inside"
SOURCES = (INSIDE / "agent_worker.py", INSIDE / "costs.py")
NOTES = {"notes": ["a", "b", "c"]}
LIMIT = aiohttp.ClientTimeout(total=240)


@pytest.fixture(scope="module")
def server() -> Iterator[PythonWorkerd]:
    with contextlib.ExitStack() as stack:
        yield started(stack, lambda: PythonWorkerd(*SOURCES))


@pytest.fixture
def mortal_server() -> Iterator[PythonWorkerd]:
    with contextlib.ExitStack() as stack:
        yield started(stack, lambda: PythonWorkerd(*SOURCES))


def new_session() -> aiohttp.ClientSession:
    # A connection for each request: one that was kept may be closed by the time it is used again.
    return aiohttp.ClientSession(timeout=LIMIT, connector=aiohttp.TCPConnector(force_close=True, limit=0))


class Client:
    """What a browser or another service does."""

    def __init__(self, server: PythonWorkerd, session: aiohttp.ClientSession) -> None:
        self.url = server.url
        self.http = session

    async def ask(self, method: str, path: str, body: Any = None, *, token: str = "alice") -> tuple[int, Any]:
        headers = {"authorization": f"Bearer {token}"}
        async with self.http.request(method, self.url + path, json=body, headers=headers) as reply:
            text = await reply.text()
            try:
                return reply.status, json.loads(text) if text else None
            except ValueError:
                pytest.fail(f"{method} {path}: {reply.status} {text[-3000:]}")

    async def execute(self, session_id: str) -> None:
        body = {"agent_type": "author", "message": "go", "session_id": session_id}
        status, answer = await self.ask("POST", "/execute", body)
        assert status == 202, answer

    async def sse(self, session_id: str, query: str = "") -> list[tuple[str, int | None, Any]]:
        """Events of a stream until it ends: name, id, data."""
        headers = {"authorization": "Bearer alice"}
        async with self.http.get(f"{self.url}/stream/{session_id}{query}", headers=headers) as reply:
            assert reply.status == 200, await reply.text()
            text = await reply.text()
        events = []
        for block in text.split("\n\n"):
            lines = dict(line.partition(": ")[::2] for line in block.splitlines() if not line.startswith(":"))
            if "event" in lines:
                number = int(lines["id"]) if "id" in lines else None
                events.append((lines["event"], number, json.loads(lines["data"])))
        return events

    async def watch(self, session_id: str, query: str = "") -> list[dict[str, Any]]:
        """Frames of a WebSocket until it closes."""
        address = f"{self.url}/ws/{session_id}?access_token=alice{query}"
        async with self.http.ws_connect(address, max_msg_size=0) as socket:
            return [message.json() async for message in socket]


@pytest.fixture
async def client(server: PythonWorkerd) -> AsyncIterator[Client]:
    async with new_session() as session:
        yield Client(server, session)


def numbers(frames: list[dict[str, Any]]) -> list[int]:
    return [frame["id"] for frame in frames if frame["event"] == "chunk"]


async def test_a_run_streams_by_sse_and_by_websocket_and_is_there_afterwards(client: Client) -> None:
    await client.execute("s1")
    watching = asyncio.create_task(client.watch("s1"))
    events = await client.sse("s1")
    assert [events[0][0], events[-1][0]] == ["open", "end"]
    sequences = [number for name, number, _ in events if name == "chunk"]
    assert sequences == list(range(1, len(sequences) + 1))
    frames = await watching
    assert frames[0]["event"] == "open"
    assert numbers(frames) == sequences
    assert frames[-1]["event"] == "end"
    status, result = await client.ask("GET", "/result/s1?wait=30")
    assert (status, result["status"], result["output"]) == (200, "completed", "Done, three notes.")
    _, state = await client.ask("GET", "/sessions/s1/state")
    assert state["custom_state"] == NOTES
    _, usage = await client.ask("GET", "/sessions/s1/usage")
    assert usage["tools"]["note"]["calls"] == 3
    assert usage["tools"]["shout"]["calls"] == 1
    again = await client.sse("s1", f"?from_sequence={sequences[-3]}")
    assert [number for name, number, _ in again if name == "chunk"] == sequences[-2:]


async def test_rows_written_inside_an_object_stay_few(client: Client) -> None:
    _, found = await client.ask("GET", "/test/costs/costs")
    assert found["commit"] <= 13
    assert found["thousand_chunks_by_ten"] <= 300
    written = []
    for turn in range(2):
        body = {"agent_type": "marathon", "message": "go", "session_id": "billed"}
        await client.ask("POST", "/execute", body)
        _, result = await client.ask("GET", "/result/billed?wait=60")
        assert result["status"] == "completed", turn
        _, facts = await client.ask("GET", "/test/look/billed")
        written.append(facts["written"])
    turn_of_eleven = written[1] - written[0]
    print(found, "rows of a turn of eleven steps:", turn_of_eleven)
    assert turn_of_eleven / 11 <= 45


async def test_a_session_without_an_id_gets_one_and_an_object(client: Client) -> None:
    status, begun = await client.ask("POST", "/execute", {"agent_type": "author", "message": "go"})
    assert status == 202
    _, result = await client.ask("GET", f"/result/{begun['session_id']}?wait=60")
    assert result["status"] == "completed"


async def test_twelve_objects_run_agents_at_once(client: Client) -> None:
    names = [f"twelve-{number}" for number in range(12)]
    await asyncio.gather(*(client.execute(name) for name in names))
    results = await asyncio.gather(*(client.ask("GET", f"/result/{name}?wait=60") for name in names))
    assert [result["status"] for _, result in results] == ["completed"] * 12


async def test_users_are_kept_apart_and_strangers_out(client: Client) -> None:
    await client.ask("GET", "/test/create/private")
    assert (await client.ask("GET", "/sessions/private", token="alice"))[0] == 200
    for path in ("/sessions/private", "/stream/private", "/result/private"):
        assert (await client.ask("GET", path, token="bob"))[0] == 404
        assert (await client.ask("GET", path, token="wrong"))[0] == 401
    for token, status in (("bob", 404), ("wrong", 401)):
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await client.http.ws_connect(f"{client.url}/ws/private?access_token={token}")
        assert refused.value.status == status


async def test_problems_are_told_as_elsewhere(client: Client) -> None:
    assert (await client.ask("POST", "/execute", {"agent_type": "nobody", "message": "go"}))[1][
        "code"
    ] == "agent_not_found"
    assert (await client.ask("GET", "/sessions"))[1]["code"] == "not_found"
    assert (await client.ask("GET", "/result/missing"))[1]["code"] == "session_not_found"
    await client.ask("GET", "/test/create/ahead")
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await client.http.ws_connect(f"{client.url}/ws/ahead?access_token=alice&from_sequence=7")
    assert refused.value.status == 416


async def test_ten_thousand_chunks_reach_thirty_sockets_whole_though_one_never_reads(client: Client) -> None:
    await client.ask("GET", "/test/create/many")
    silent = await client.http.ws_connect(f"{client.url}/ws/many?access_token=alice")
    readers = [asyncio.create_task(client.watch("many")) for _ in range(30)]
    await client.ask("GET", "/test/pour/many?n=10000")
    await client.ask("GET", "/test/end/many")
    for frames in await asyncio.gather(*readers):
        assert numbers(frames) == list(range(1, 10_001))
        assert frames[-1] == {"event": "end", "id": None, "data": {"status": "ended", "output": "done"}}
    await silent.close()


async def test_sockets_outlive_a_hibernation(client: Client) -> None:
    _, before = await client.ask("GET", "/test/create/sleepy")
    await client.ask("GET", "/test/pour/sleepy?n=3")
    async with client.http.ws_connect(f"{client.url}/ws/sleepy?access_token=alice") as socket:
        frames = [await socket.receive_json() for _ in range(4)]
        after = before
        while after["born"] == before["born"]:
            await asyncio.sleep(12)  # workerd lets an object hibernate after 10 s; there is no event to wait for
            _, after = await client.ask("GET", "/test/look/sleepy")
        await client.ask("GET", "/test/pour/sleepy?n=4")
        await client.ask("GET", "/test/end/sleepy")
        frames += [message.json() async for message in socket]
    assert numbers(frames) == list(range(1, 8))
    assert frames[-1]["event"] == "end"


async def test_the_alarm_takes_up_a_run_whose_runtime_was_killed(mortal_server: PythonWorkerd) -> None:
    async with new_session() as session:
        client = Client(mortal_server, session)
        await client.execute("crash")
        async with session.ws_connect(f"{client.url}/ws/crash?access_token=alice") as socket:
            while (await socket.receive_json())["event"] != "chunk":
                pass
            mortal_server.kill9()
    mortal_server.start()
    async with new_session() as session:
        client = Client(mortal_server, session)
        frames = await client.watch("crash")
        assert frames[-1]["event"] == "end"
        _, result = await client.ask("GET", "/result/crash?wait=60")
        assert result["status"] == "completed"
        _, state = await client.ask("GET", "/sessions/crash/state")
        assert state["custom_state"] == NOTES
