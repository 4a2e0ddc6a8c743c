"""What one user may occupy: runs, streams, waits and the bytes of large responses. Others are not affected."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from helix_agents import Agent, AgentExecutor, InvalidArgument, ScriptedLLM, open_stores
from helix_agents.llm.scripted import Call
from helix_agents.server import HelixApp, User, create_app
from helix_agents.server.connections import GuardedConnection
from helix_agents.server.limits import SLICE_BYTES
from helix_agents.server.serve import Server, listen
from helix_agents.tools import tool
from tests.server.running import frames_of
from tests.server.test_access import client_of
from tests.server.test_problems import assert_problem

PATIENCE_SECONDS = 30


@tool
async def forever() -> str:
    """Wait."""
    await asyncio.Event().wait()
    return "never"


sleeper = Agent("sleeper", tools=[forever])


def user_of(connection: Any) -> User:
    return User(connection.headers.get("x-user", "ann"))


@pytest.fixture
async def executor() -> AsyncIterator[AgentExecutor]:
    async with open_stores("memory:") as stores:
        llm = ScriptedLLM(lambda request: [Call("forever", {})])
        async with AgentExecutor(stores, llm, agents=[sleeper]) as made:
            yield made


@contextlib.asynccontextmanager
async def served(app: HelixApp) -> AsyncIterator[str]:
    """Serve the app on a socket of this process; yield its address."""
    listener = listen("127.0.0.1", 0)
    server = Server(app)
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await task


async def ask(address: str, path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Send a request and read its headers, but not its body."""
    host, port = urlsplit(address).netloc.split(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=1024)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    await reader.readuntil(b"\r\n\r\n")
    return reader, writer


def start(session_id: str) -> dict[str, Any]:
    return {"agent_type": "sleeper", "message": "go", "session_id": session_id}


async def test_one_user_has_so_many_runs_and_no_more(executor: AgentExecutor) -> None:
    app = create_app(executor, authenticate=user_of, max_runs_per_user=3)
    async with served(app) as address, httpx.AsyncClient(base_url=address, timeout=PATIENCE_SECONDS) as client:
        tries = [client.post("/execute", json=start(f"s{number}")) for number in range(8)]
        responses = await asyncio.gather(*tries)
        assert sorted(response.status_code for response in responses) == [202] * 3 + [429] * 5
        for response in responses:
            if response.status_code == 429:
                assert_problem(response, 429, "too_many_requests")
                assert response.headers["retry-after"]
        other = await client.post("/execute", json=start("bobs"), headers={"X-User": "bob"})
        assert other.status_code == 202
        started = next(response for response in responses if response.status_code == 202).json()["session_id"]
        await client.post(f"/sessions/{started}/abort")
        async with asyncio.timeout(PATIENCE_SECONDS):
            while executor.runs.count("ann") == 3:  # noqa: ASYNC110  # until its task has ended
                await asyncio.sleep(0)
        said = {"id": "1", "role": "user", "parts": [{"type": "text", "text": "go"}]}
        async with client.stream("POST", "/chat/sleeper", json={"id": "c", "messages": [said]}) as chat:
            assert chat.status_code == 200
        assert_problem(await client.post("/execute", json=start("more")), 429, "too_many_requests")


async def test_waiting_for_a_result_takes_a_stream_slot(executor: AgentExecutor) -> None:
    app = create_app(executor, authenticate=user_of, max_streams_per_user=2)
    async with client_of(app) as client:
        await client.post("/execute", json=start("s"))
        waits = [asyncio.create_task(client.get("/result/s?wait=30")) for _ in range(2)]
        async with asyncio.timeout(PATIENCE_SECONDS):
            while app.context.occupancy.open_streams(User("ann")) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0)
        assert_problem(await client.get("/result/s?wait=1"), 429, "too_many_requests")
        assert (await client.get("/result/s")).status_code == 200
        await client.post("/sessions/s/abort")
        assert [(await wait).status_code for wait in waits] == [200, 200]


async def test_bytes_that_a_user_does_not_read_are_bounded(executor: AgentExecutor) -> None:
    size = 20_000_000  # more than all buffers between the two ends hold
    stores = executor.services
    await stores.store.create_session(
        "big", agent_type="sleeper", user_id="ann", messages=[{"role": "user", "content": "x" * size}]
    )
    await stores.store.create_session("small", agent_type="sleeper", user_id="ann")
    app = create_app(executor, authenticate=user_of, max_bytes_per_user=2 * size)
    async with served(app) as address, httpx.AsyncClient(base_url=address, timeout=PATIENCE_SECONDS) as client:
        stalled = [await ask(address, "/sessions/big/snapshot") for _ in range(2)]
        for path in ("/sessions/big/snapshot", "/sessions/big/messages"):
            async with client.stream("GET", path) as refused:
                assert refused.status_code == 429
        assert (await client.get("/sessions/small")).status_code == 200
        for _, writer in stalled:
            writer.transport.abort()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (found := await client.get("/sessions/big/snapshot")).status_code == 429:  # noqa: ASYNC110  # until noticed
                await asyncio.sleep(0)
    assert len(found.json()["messages"][0]["content"]) == size


async def test_a_client_that_accepts_no_data_is_disconnected(executor: AgentExecutor) -> None:
    await executor.services.store.create_session(
        "big", agent_type="sleeper", user_id="ann", messages=[{"role": "user", "content": "x" * 20_000_000}]
    )
    app = create_app(executor, authenticate=user_of, stall_seconds=0.2)
    async with served(app) as address:
        reader, writer = await ask(address, "/sessions/big/snapshot")
        async with asyncio.timeout(PATIENCE_SECONDS):
            while app.context.occupancy.held_bytes(User("ann")):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            with contextlib.suppress(ConnectionError):
                while await reader.read(SLICE_BYTES):  # what was in flight, then the end
                    pass
        writer.close()


async def test_a_stream_ends_without_a_final_event_when_its_time_is_up(executor: AgentExecutor) -> None:
    app = create_app(executor, authenticate=user_of, max_stream_seconds=0.2)
    async with served(app) as address, httpx.AsyncClient(base_url=address, timeout=PATIENCE_SECONDS) as client:
        started = (await client.post("/execute", json=start("s"))).json()
        async with asyncio.timeout(PATIENCE_SECONDS), client.stream("GET", started["stream_url"]) as response:
            events = [frame.event async for frame in frames_of(response.aiter_lines())]
    assert events[0] == "open"
    assert set(events[1:]) <= {"chunk"}


@pytest.mark.parametrize(
    "name", ["max_body_bytes", "max_streams_per_user", "max_runs_per_user", "max_bytes_per_user", "max_stream_seconds"]
)
async def test_a_limit_must_be_positive(executor: AgentExecutor, name: str) -> None:
    with pytest.raises(InvalidArgument, match=name):
        create_app(executor, authenticate=user_of, **{name: 0})  # type: ignore[arg-type]


# -- connections


async def test_headers_must_arrive_in_time(executor: AgentExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GuardedConnection, "header_seconds", 0.2)
    app = create_app(executor, authenticate=user_of)
    async with served(app) as address, httpx.AsyncClient(base_url=address, timeout=PATIENCE_SECONDS) as client:
        host, port = urlsplit(address).netloc.split(":")
        await client.post("/execute", json=start("s"))
        unfinished = b"GET /agents HTTP/1.1\r\nHost: x\r\nX-A: "
        for sent in (b"", unfinished, f"GET /agents HTTP/1.1\r\nHost: {host}\r\n\r\n".encode() + unfinished):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(sent)
            async with asyncio.timeout(PATIENCE_SECONDS):
                with contextlib.suppress(ConnectionError):
                    while await reader.read(SLICE_BYTES):
                        pass
            writer.close()
        async with client.stream("GET", "/stream/s") as stream:  # a request in progress has all the time it needs
            frames = frames_of(stream.aiter_lines())
            async for frame in frames:
                if frame.event == "chunk" and frame.data["type"] == "tool_start":
                    break
            await asyncio.sleep(3 * GuardedConnection.header_seconds)
            await client.post("/sessions/s/abort")
            assert [frame.event async for frame in frames][-1] == "fail"


async def test_there_are_so_many_connections_and_no_more(
    executor: AgentExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("helix_agents.server.connections.MAX_CONNECTIONS", 5)
    app = create_app(executor, authenticate=user_of)
    async with served(app) as address:
        host, port = urlsplit(address).netloc.split(":")
        opened = [await asyncio.open_connection(host, int(port)) for _ in range(5)]
        reader, writer = await asyncio.open_connection(host, int(port))
        async with asyncio.timeout(PATIENCE_SECONDS):
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
        writer.close()
        opened[0][1].close()
        async with httpx.AsyncClient(base_url=address, timeout=PATIENCE_SECONDS) as client:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while True:
                    with contextlib.suppress(httpx.HTTPError):
                        if (await client.get("/healthz")).status_code == 200:
                            break
        for _, other in opened[1:]:
            other.close()
