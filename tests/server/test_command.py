"""`helix serve` itself, as a process: what it says, what it serves, how it stops."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.server.running import PATIENCE_SECONDS, ROOT, streaming

MODULE = "tests.operations.agents_for_the_cli"


@contextmanager
def serving(folder: Path, *arguments: str, token: str | None = None) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command on a free port, run in a folder; the process and its address."""
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
    with serving(tmp_path, f"{MODULE}:make_executor", token="very-secret") as (process, address):
        async with httpx.AsyncClient(base_url=address, timeout=PATIENCE_SECONDS) as client:
            assert (await client.get("/agents")).status_code == 401
            client.headers["Authorization"] = "Bearer very-secret"
            assert [item["name"] for item in (await client.get("/agents")).json()["items"]] == ["publisher"]
            body = {"agent_type": "publisher", "message": "Go", "session_id": "s"}
            assert (await client.post("/execute", json=body)).status_code == 202
            async with streaming(client, "/stream/s?follow=true") as frames:
                async for frame in frames:
                    if frame.event == "pause":
                        break
                process.send_signal(signal.SIGTERM)
                assert [frame.event async for frame in frames] == []  # cut cleanly: no protocol error, no last word
        assert process.wait(PATIENCE_SECONDS) == 0
    assert (tmp_path / "helix.db").exists()
    assert "very-secret" not in (tmp_path / "log").read_text()


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
