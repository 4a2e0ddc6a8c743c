"""`examples/worker` runs as it stands: the same file, in Pyodide in workerd."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from tests.cloudflare.workerd import PythonWorkerd
from tests.servers.fixtures import started

ENTRY = Path(__file__).parents[2] / "examples" / "worker" / "src" / "entry.py"


@pytest.fixture
def example() -> Iterator[PythonWorkerd]:
    with contextlib.ExitStack() as stack:
        yield started(stack, lambda: PythonWorkerd(ENTRY, objects="Assistant", binding="ASSISTANTS"))


async def test_the_example_answers_and_keeps_its_notes(example: PythonWorkerd) -> None:
    headers = {"authorization": f"Bearer {example.token}"}
    timeout = aiohttp.ClientTimeout(total=240)
    async with aiohttp.ClientSession(example.url, headers=headers, timeout=timeout) as session:
        body = {"agent_type": "assistant", "message": "Hello", "session_id": "first"}
        async with session.post("/execute", json=body) as reply:
            assert reply.status == 202, await reply.text()
        async with session.get("/result/first?wait=60") as reply:
            assert (await reply.json())["output"] == "I noted it."
        async with session.get("/sessions/first/state") as reply:
            assert (await reply.json())["custom_state"] == {"notes": ["hello"]}
