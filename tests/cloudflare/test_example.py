"""`examples/worker` runs as it stands: the same file, in Pyodide in workerd."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import aiohttp
import pytest

from tests.cloudflare.workerd import WORKFLOW, PythonWorkerd
from tests.servers.fixtures import started


async def test_the_example_answers_and_keeps_its_notes(python_workers: PythonWorkerd) -> None:
    headers = {"authorization": f"Bearer {python_workers.token}"}
    timeout = aiohttp.ClientTimeout(total=240)
    async with aiohttp.ClientSession(f"{python_workers.url}/entry/", headers=headers, timeout=timeout) as session:
        body = {"agent_type": "assistant", "message": "Hello", "session_id": "first"}
        async with session.post("execute", json=body) as reply:
            assert reply.status == 202, await reply.text()
        async with session.get("result/first?wait=60") as reply:
            assert (await reply.json())["output"] == "I noted it."
        async with session.get("sessions/first/state") as reply:
            assert (await reply.json())["custom_state"] == {"notes": ["hello"]}


@pytest.fixture(scope="module")
def workflow_example() -> Iterator[PythonWorkerd]:
    with contextlib.ExitStack() as stack:
        yield started(stack, lambda: PythonWorkerd(WORKFLOW))


async def test_the_example_by_workflows_answers_streams_and_keeps_its_notes(workflow_example: PythonWorkerd) -> None:
    headers = {"authorization": f"Bearer {workflow_example.token}"}
    timeout = aiohttp.ClientTimeout(total=240)
    async with aiohttp.ClientSession(f"{workflow_example.url}/entry/", headers=headers, timeout=timeout) as session:
        body = {"agent_type": "assistant", "message": "Hello", "session_id": "first"}
        async with session.post("execute", json=body) as reply:
            assert reply.status == 202, await reply.text()
        async with session.get("stream/first") as reply:
            events = await reply.text()
        assert "event: end" in events
        async with session.get("result/first?wait=60") as reply:
            assert (await reply.json())["output"] == "I noted it."
        async with session.get("sessions/first/state") as reply:
            assert (await reply.json())["custom_state"] == {"notes": ["hello"]}
        async with session.get("stream/first", headers={"last-event-id": "3"}) as reply:
            assert "id: 4\n" in (again := await reply.text())
            assert "id: 3\n" not in again
