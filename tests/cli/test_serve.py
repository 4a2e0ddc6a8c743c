"""`helix serve` as a process: what it prints, what it serves, how it stops."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import uvicorn
from uvicorn.server import ServerState

from helix_agents import InvalidArgument
from helix_agents.server.connections import GuardedConnection
from helix_agents.server.serve import listen
from helix_agents.server.users_file import users_from_file
from tests.server.running import PATIENCE_SECONDS, ROOT, streaming

MODULE = "tests.cli.agents_for_the_cli"


@contextmanager
def serving(folder: Path, *arguments: str, token: str | None = None) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run the command in a folder on a free port; yield the process and its address."""
    environment = {name: value for name, value in os.environ.items() if name not in ("HELIX_URL", "HELIX_TOKEN")}
    environment |= {"PYTHONPATH": str(ROOT)} | ({} if token is None else {"HELIX_TOKEN": token})
    command = [sys.executable, "-m", "helix_agents.cli", "serve", "--port", "0", *arguments]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)
    assert process.stdout is not None
    try:
        first = process.stdout.readline()
        assert " at http://127.0.0.1:" in first, (first, (folder / "log").read_text())
        yield process, first.partition(" at ")[2].split()[0].rstrip(".")
    finally:
        process.kill()
        process.wait(PATIENCE_SECONDS)
        process.stdout.close()


async def test_an_executor_made_on_the_stores_is_served_to_whoever_has_the_token(tmp_path: Path) -> None:
    with serving(tmp_path, f"{MODULE}:make_executor", token="very-secret-token") as (process, address):
        async with httpx.AsyncClient(base_url=address, timeout=PATIENCE_SECONDS) as client:
            assert (await client.get("/agents")).status_code == 401
            client.headers["Authorization"] = "Bearer very-secret-token"
            assert [item["name"] for item in (await client.get("/agents")).json()["items"]] == ["publisher"]
            body = {"agent_type": "publisher", "message": "Go", "session_id": "s"}
            assert (await client.post("/execute", json=body)).status_code == 202
            async with streaming(client, "/stream/s?follow=true") as frames:
                async for frame in frames:
                    if frame.event == "pause":
                        break
                process.send_signal(signal.SIGTERM)
                assert [frame.event async for frame in frames] == []  # cut cleanly: no protocol error, no final event
        assert process.wait(PATIENCE_SECONDS) == 0
    assert (tmp_path / "helix.db").exists()
    assert "very-secret-token" not in (tmp_path / "log").read_text()


async def test_an_executor_that_is_there_is_served_on_its_own_stores(tmp_path: Path) -> None:
    with serving(tmp_path, f"{MODULE}:executor") as (process, address):
        async with httpx.AsyncClient(base_url=address, timeout=PATIENCE_SECONDS) as client:
            assert (await client.get("/healthz")).json() == {"status": "ok", "backend": "memory"}
            body = {"agent_type": "publisher", "message": "Hi", "session_id": "s"}
            assert (await client.post("/execute", json=body)).status_code == 202
            assert (await client.get("/result/s?wait=30")).json()["output"] == "Hello."
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_SECONDS) == 0
    assert os.listdir(tmp_path) == ["log"], "nobody asked for a database"


async def test_without_a_module_it_serves_something_to_try_and_says_how(tmp_path: Path) -> None:
    with serving(tmp_path) as (process, address):
        assert process.stdout is not None
        told = ""
        while "/snapshot" not in told:
            told += process.stdout.readline()
        assert f"Open {address} in a browser" in told
        assert f"curl -s {address}/execute" in told
        async with httpx.AsyncClient(base_url=address, timeout=PATIENCE_SECONDS) as client:
            body = {"agent_type": "assistant", "message": "search ants", "session_id": "s1"}
            assert (await client.post("/execute", json=body)).status_code == 202
            assert (await client.get("/result/s1?wait=60")).json()["status"] == "completed"
            assert "<html" in (await client.get("/")).text


USERS = """
[ann]
token = "ann-0123456789abcdef"

[root]
tokens = ["root-0123456789abcde", "root-9876543210edcba"]
is_admin = true
"""


async def test_users_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "users.toml").write_text(USERS)
    with serving(tmp_path, f"{MODULE}:executor", "--users", "users.toml") as (_, address):
        async with httpx.AsyncClient(base_url=address, timeout=PATIENCE_SECONDS) as client:

            async def status(token: str | None, path: str = "/sessions") -> int:
                headers = {} if token is None else {"Authorization": f"Bearer {token}"}
                return (await client.get(path, headers=headers)).status_code

            assert [await status(token) for token in (None, "wrong", "ann-0123456789abcdef")] == [401, 401, 200]
            assert await status("ann-0123456789abcdef", "/stats") == 403
            for token in ("root-0123456789abcde", "root-9876543210edcba"):
                assert await status(token, "/stats") == 200
            headers = {"Authorization": "Bearer ann-0123456789abcdef"}
            body = {"agent_type": "publisher", "message": "Hi", "session_id": "s"}
            assert (await client.post("/execute", json=body, headers=headers)).status_code == 202
            assert (await client.get("/sessions/s", headers=headers)).json()["user_id"] == "ann"
    assert "0123456789" not in (tmp_path / "log").read_text()


async def test_users_come_from_a_function(tmp_path: Path) -> None:
    with serving(tmp_path, f"{MODULE}:executor", "--authenticate", f"{MODULE}:by_header") as (_, address):
        async with httpx.AsyncClient(base_url=address, timeout=PATIENCE_SECONDS) as client:
            assert (await client.get("/sessions")).status_code == 401
            assert (await client.get("/sessions", headers={"X-Test-User": "ann"})).status_code == 200


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("not toml [", "not a TOML file"),
        ("", "has no users"),
        ("[ann]", "'ann' in"),
        ("ann = 'token'", "does not list users"),
        ("[ann]\ntoken = 'short'", "fewer than 16 characters"),
        ("[ann]\ntoken = '                  '", "fewer than 16 characters"),
        ("[ann]\ntoken = 'long-enough-secret'\nadmin = true", "does not list users"),
        ("[ann]\ntoken = 'long-enough-secret'\n[bob]\ntoken = 'long-enough-secret'", "the same token"),
        ("[\"a\\nb\"]\ntoken = 'long-enough-secret'", "must not contain"),
    ],
)
def test_a_file_of_users_that_is_wrong_is_rejected_without_showing_tokens(
    tmp_path: Path, text: str, problem: str
) -> None:
    path = tmp_path / "users.toml"
    path.write_text(text)
    with pytest.raises(InvalidArgument, match=re.escape(problem)) as raised:
        users_from_file(path)
    assert "long-enough-secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("arguments", "token", "problem"),
    [
        (["--users", "missing.toml"], None, "Cannot read the users"),
        (["--authenticate", f"{MODULE}:nothing"], None, "Cannot find"),
        (["--authenticate", f"{MODULE}:executor"], None, "is not a function"),
        (["--users", "a", "--authenticate", "b:c"], None, "not allowed with"),
        (["--users", "missing.toml"], "a-long-enough-token", "not both"),
        ([], "x", "fewer than 16 characters"),
        ([], "", "fewer than 16 characters"),
        (["--host", "0.0.0.0"], None, "--users"),
    ],
)
def test_users_that_cannot_be_known_stop_the_command(
    tmp_path: Path, arguments: list[str], token: str | None, problem: str
) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("HELIX_URL", "HELIX_TOKEN")}
    environment |= {"PYTHONPATH": str(ROOT)} | ({} if token is None else {"HELIX_TOKEN": token})
    command = [sys.executable, "-m", "helix_agents.cli", "serve", f"{MODULE}:executor", "--port", "0", *arguments]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert problem in done.stderr
    assert "Traceback" not in done.stderr


async def test_requests_on_a_kept_connection_do_not_wait_for_acknowledgements(tmp_path: Path) -> None:
    accepted: list[socket.socket] = []

    class Watched(GuardedConnection):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            accepted.append(transport.get_extra_info("socket"))

    listener = listen("127.0.0.1", 0)
    server = await asyncio.get_running_loop().create_server(
        lambda: Watched(uvicorn.Config(lambda scope: None), ServerState(), {}), sock=listener
    )
    _, writer = await asyncio.open_connection(*listener.getsockname())
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not accepted:  # noqa: ASYNC110
            await asyncio.sleep(0)
    assert accepted[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
    writer.close()
    server.close()
