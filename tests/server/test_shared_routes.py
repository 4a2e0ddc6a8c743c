"""Apps of one process share their routes, and nothing else; bodies that are nested too deeply are never parsed."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from helix_agents import Agent, AgentExecutor, InvalidArgument, ScriptedLLM
from helix_agents.codec import MAX_DEPTH
from helix_agents.inmemory import InMemoryStateStore, InMemoryStreamManager
from helix_agents.server import create_app
from helix_agents.server.app import HelixApp
from helix_agents.server.requests import parse_json


def app_of(name: str, *, inspector: bool = True) -> HelixApp:
    executor = AgentExecutor(
        InMemoryStateStore(), InMemoryStreamManager(), ScriptedLLM(["Done."]), agents=[Agent(name)]
    )
    return create_app(executor, allow_unauthenticated=True, inspector=inspector)


@pytest.fixture
async def clients() -> AsyncIterator[list[httpx.AsyncClient]]:
    apps = [app_of("one"), app_of("two", inspector=False)]
    assert apps[0].routes[0] is apps[1].routes[0]
    found = [httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") for app in apps]
    yield found
    for client in found:
        await client.aclose()


async def test_each_app_has_its_own_agents_and_sessions(clients: list[httpx.AsyncClient]) -> None:
    one, two = clients
    assert [agent["name"] for agent in (await one.get("/agents")).json()["items"]] == ["one"]
    assert [agent["name"] for agent in (await two.get("/agents")).json()["items"]] == ["two"]
    body = {"agent_type": "one", "message": "Go", "session_id": "s"}
    assert (await one.post("/execute", json=body)).status_code == 202
    assert (await one.get("/sessions/s")).status_code == 200
    assert (await two.get("/sessions/s")).status_code == 404


async def test_the_inspector_may_be_left_out(clients: list[httpx.AsyncClient]) -> None:
    one, two = clients
    assert (await one.get("/")).status_code == 200
    assert (await two.get("/")).status_code == 404


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'{"a":[', b'["\\"",['], ids=repr)
def test_deep_bodies_are_rejected_before_they_are_parsed(opening: bytes) -> None:
    with pytest.raises(InvalidArgument, match=f"nested more than {MAX_DEPTH} levels deep"):
        parse_json(opening * (MAX_DEPTH + 1))


def test_what_only_looks_deep_is_parsed() -> None:
    deepest = b"[" * MAX_DEPTH + b"]" * MAX_DEPTH
    assert parse_json(deepest) is not None
    assert parse_json(b"[" + b"[]," * 5_000 + b"[]]") == [[] for _ in range(5_001)]
    assert parse_json(b'["' + b"[{" * 5_000 + b'\\\\\\"[[", 1]') == ["[{" * 5_000 + '\\"[[', 1]


def test_the_look_at_a_body_takes_linear_time() -> None:
    """A quadratic one would take minutes for these."""
    for text in (b'"' * 1_000_000, b'["\\' * 300_000, b"[]" * 500_000, b'{"a":"' + b"\\" * 900_000):
        with pytest.raises(InvalidArgument):
            parse_json(text)
