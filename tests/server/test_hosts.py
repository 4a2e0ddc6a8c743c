"""The `Host` and `Origin` headers that a browser sends: a rebound name and a foreign page reach nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from helix_agents import Agent, AgentExecutor, InvalidArgument, ScriptedLLM, open_stores
from helix_agents.server import User, create_app
from helix_agents.server.hosts import host_name, is_loopback
from tests.cli.test_serve import serving
from tests.server.test_access import client_of
from tests.server.test_problems import assert_problem


@pytest.fixture
async def executor() -> AsyncIterator[AgentExecutor]:
    async with open_stores("memory:") as stores:
        async with AgentExecutor(stores, ScriptedLLM(["Hi."] * 9), agents=[Agent("a")]) as made:
            yield made


@pytest.mark.parametrize(
    ("header", "name", "loopback"),
    [
        ("localhost", "localhost", True),
        ("LOCALHOST:8000", "localhost", True),
        ("app.localhost:8000", "app.localhost", True),
        ("127.0.0.1:8000", "127.0.0.1", True),
        ("127.8.9.1", "127.8.9.1", True),
        ("[::1]:8000", "::1", True),
        ("evil.example:8000", "evil.example", False),
        ("localhost.evil.example", "localhost.evil.example", False),
        ("127.0.0.1.evil.example", "127.0.0.1.evil.example", False),
        ("192.168.0.7", "192.168.0.7", False),
        ("[2001:db8::1]:80", "2001:db8::1", False),
        ("0.0.0.0", "0.0.0.0", False),
        ("", "", False),
    ],
)
def test_a_host_header_names_a_host(header: str, name: str, loopback: bool) -> None:
    assert host_name(header) == name
    assert is_loopback(name) is loopback


REQUESTS: list[tuple[str, str, Any]] = [
    ("GET", "/sessions", None),
    ("GET", "/agents", None),
    ("GET", "/", None),
    ("GET", "/openapi.json", None),
    ("GET", "/stream/s", None),
    ("POST", "/execute", {"agent_type": "a", "message": "hi", "session_id": "s"}),
    ("DELETE", "/sessions/s", None),
    ("POST", "/sessions/s/tool-results", {"tool_call_id": "c", "approved": True}),
]


@pytest.mark.parametrize(("method", "path", "body"), REQUESTS)
async def test_without_users_a_rebound_name_reaches_nothing(
    executor: AgentExecutor, method: str, path: str, body: Any
) -> None:
    async with client_of(create_app(executor, allow_unauthenticated=True)) as client:
        evil = {"Host": "evil.example:8000", "Origin": "http://evil.example:8000"}
        assert_problem(await client.request(method, path, json=body, headers=evil), 421, "misdirected_request")
        local = await client.request(method, path, json=body, headers={"Host": "127.0.0.1:8000"})
        assert local.status_code != 421
    assert not await executor.services.store.session_exists("s") or path == "/execute"


def test_a_websocket_of_a_rebound_name_is_rejected(executor: AgentExecutor) -> None:
    app = create_app(executor, allow_unauthenticated=True, recover=False)
    client = TestClient(app, base_url="http://evil.example")
    with pytest.raises(WebSocketDisconnect) as denied, client.websocket_connect("/ws/s"):
        pass
    assert getattr(denied.value, "status_code", None) == 421


async def test_more_hosts_can_be_allowed(executor: AgentExecutor) -> None:
    app = create_app(executor, allow_unauthenticated=True, allow_hosts=["App.Internal"])
    async with client_of(app) as client:
        for host, status in (("app.internal", 200), ("localhost", 200), ("other.internal", 421)):
            assert (await client.get("/agents", headers={"Host": host})).status_code == status
    app = create_app(executor, allow_unauthenticated=True, allow_hosts=["*"])
    async with client_of(app) as client:
        assert (await client.get("/agents", headers={"Host": "any.example"})).status_code == 200


async def test_with_users_any_host_is_served_unless_some_are_listed(executor: AgentExecutor) -> None:
    async with client_of(create_app(executor, authenticate=lambda _: User("ann"))) as client:
        assert (await client.get("/agents", headers={"Host": "any.example"})).status_code == 200
    listed = create_app(executor, authenticate=lambda _: User("ann"), allow_hosts=["app.example"])
    async with client_of(listed) as client:
        assert (await client.get("/agents", headers={"Host": "app.example:443"})).status_code == 200
        assert_problem(await client.get("/agents", headers={"Host": "any.example"}), 421, "misdirected_request")


@pytest.mark.parametrize(
    "bad", [{"allow_hosts": "app.example"}, {"allow_origins": "https://app.example"}, {"allow_origins": ["*"]}]
)
async def test_rules_that_would_open_the_server_are_rejected(executor: AgentExecutor, bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        create_app(executor, allow_unauthenticated=True, **bad)


async def test_helix_serve_without_a_token_serves_loopback_hosts_only(tmp_path: Path) -> None:
    with serving(tmp_path, "tests.cli.agents_for_the_cli:executor") as (_, address):
        async with httpx.AsyncClient(base_url=address) as client:
            assert (await client.get("/agents")).status_code == 200
            rebound = await client.get("/agents", headers={"Host": "evil.example"})
            assert_problem(rebound, 421, "misdirected_request")
