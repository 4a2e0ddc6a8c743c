"""`examples/worker` runs as it stands: the same file, in Pyodide in workerd."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import aiohttp
import pytest
from playwright.sync_api import Page, Playwright, expect, sync_playwright

from tests.cloudflare.workerd import ASSISTANT, WORKFLOW, PythonWorkerd
from tests.inspector.conftest import PATIENCE_MS
from tests.servers import node
from tests.servers.fixtures import started, without_server
from tests.servers.process import ServerUnavailable


@contextlib.contextmanager
def launched(playwright: Playwright) -> Iterator[Page]:
    """Start Chromium and open an empty page."""
    try:
        program = node.chromium()
    except ServerUnavailable as error:
        without_server(str(error))
    browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
    try:
        yield browser.new_page()
    finally:
        browser.close()


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


async def test_the_cron_trigger_of_the_example_ends_expired_sessions_in_d1(workflow_example: PythonWorkerd) -> None:
    """A fork in the middle of a turn waits for its user; an expired one is ended, another one is left alone."""
    headers = {"authorization": f"Bearer {workflow_example.token}"}
    timeout = aiohttp.ClientTimeout(total=240)
    async with aiohttp.ClientSession(f"{workflow_example.url}/entry/", headers=headers, timeout=timeout) as session:
        for name, more in (("expiring", {"expires_at": 1}), ("lasting", {})):
            body = {"agent_type": "assistant", "message": "Hello", "session_id": name, **more}
            async with session.post("execute", json=body) as reply:
                assert reply.status == 202, await reply.text()
            async with session.get(f"result/{name}?wait=60") as reply:
                assert (await reply.json())["status"] == "completed"
            async with session.get(f"sessions/{name}/checkpoints") as reply:
                (first,) = [each for each in (await reply.json())["items"] if each["step_count"] == 1]
            fork = {"new_session_id": f"{name}-fork", "checkpoint_id": first["checkpoint_id"]}
            async with session.post(f"sessions/{name}/fork", json=fork) as reply:
                assert reply.status == 201, await reply.text()
        async with session.get("__scheduled") as reply:
            assert await reply.text() == "ran"
        found = {}
        for name in ("expiring-fork", "lasting-fork", "expiring"):
            async with session.get(f"sessions/{name}") as reply:
                found[name] = (await reply.json())["status"]
        assert found == {"expiring-fork": "failed", "lasting-fork": "interrupted", "expiring": "completed"}


@pytest.fixture(scope="module")
def assistant_example() -> Iterator[PythonWorkerd]:
    with contextlib.ExitStack() as stack:
        yield started(stack, lambda: PythonWorkerd(ASSISTANT))


@pytest.mark.parametrize("example", ["assistant_example", "workflow_example"])
def test_the_page_of_an_example_shows_the_conversation_also_after_a_reload(
    example: str, request: pytest.FixtureRequest
) -> None:
    server: PythonWorkerd = request.getfixturevalue(example)
    with sync_playwright() as playwright, launched(playwright) as page:
        page.goto(f"{server.url}/entry/")
        page.fill("#token", server.token)
        page.press("#token", "Tab")
        page.fill("#message", "Hello")
        page.click("button")
        for _ in range(2):
            expect(page.locator("#log p")).to_have_text(
                ["Hello", "Let me write that down.", 'note {"text":"hello"}', "I noted it."], timeout=PATIENCE_MS
            )
            page.reload()
