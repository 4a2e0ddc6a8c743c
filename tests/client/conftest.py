"""`examples/chat` as users run it: a server in its own process, a real browser, and a connection that may break."""

from __future__ import annotations

import inspect
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.inspector.conftest import PATIENCE_MS, admin, browser, page, server, sid, stores, visit
from tests.servers.process import free_port
from tests.servers.proxy import Proxy

__all__ = ["admin", "browser", "page", "server", "sid", "stores", "visit"]

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 60
TOLD = """() => [...document.querySelectorAll("#log article[data-role]")].map((node) => ({
  role: node.dataset.role,
  text: node.querySelector(".text").textContent,
  calls: [...node.querySelectorAll(".call")].map((call) => call.textContent),
}))"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run all of these tests in one event loop: they share a browser."""
    for item in items:
        is_async = isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.function)
        if is_async and item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


class ChatServer:
    """The example's server, on a database in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        command = [sys.executable, str(ROOT / "examples" / "chat" / "server.py"), str(self.port)]
        self.process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        log = []
        for line in self.process.stderr:
            log.append(line)
            if "running on" in line:
                break
        else:
            raise AssertionError("".join(log))
        Thread(target=self.process.stderr.read, daemon=True).start()  # otherwise it would block on its unread log

    def kill(self) -> None:
        """kill -9."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(PATIENCE_SECONDS)


@contextmanager
def chat_server(folder: Path) -> Iterator[ChatServer]:
    """Start the server of the example and kill it at the end."""
    server = ChatServer(folder)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.kill()


@pytest.fixture(scope="session")
def chat_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChatServer]:
    with chat_server(tmp_path_factory.mktemp("chat")) as started:
        yield started


@pytest_asyncio.fixture(loop_scope="session")
async def line(chat_process: ChatServer) -> AsyncIterator[Proxy]:
    """The proxy between the browser and the server."""
    async with Proxy(chat_process.port) as proxy:
        yield proxy


OpenChat = Callable[..., Awaitable["Chat"]]


WATCH = """(text) => {
  window.odd = [];
  const look = () => {
    const told = [...document.querySelectorAll("#log article[data-role]")];
    const by = (role) => told.filter((node) => node.dataset.role === role);
    const last = by("assistant").at(-1)?.querySelector(".text").textContent ?? "";
    const asked = by("user").length;
    if (last.includes("word") && !text.startsWith(last)) window.odd.push(last.slice(-80));
    if (asked > 1) window.odd.push(`${asked} questions`);
  };
  new MutationObserver(look).observe(document.getElementById("log"), { childList: true });
}"""


class Chat:
    """The page, and what is stored of the conversation that it shows."""

    def __init__(self, page: Page, client: httpx.AsyncClient) -> None:
        self.page = page
        self.client = client

    @property
    def session_id(self) -> str:
        return self.page.url.partition("#")[2]

    async def say(self, text: str) -> None:
        await self.page.get_by_label("Message").fill(text)
        await self.page.get_by_role("button", name="Send").click()

    async def watch(self, text: str) -> None:
        """Record from now on whenever the only reply is not a prefix of this text, or the question appears twice."""
        await self.page.evaluate(WATCH, text)

    async def was_never_odd(self) -> None:
        """Check what `watch` recorded."""
        assert await self.page.evaluate("window.odd") == []

    async def told(self) -> list[dict[str, Any]]:
        """Return what the page shows."""
        found: list[dict[str, Any]] = await self.page.evaluate(TOLD)
        return found

    async def stored(self) -> list[dict[str, Any]]:
        """Return the same for the stored conversation, read from the server."""
        response = await self.client.get(f"/sessions/{self.session_id}/messages", params={"limit": 1000})
        assert response.status_code == 200, response.text
        return [
            {
                "role": message["role"],
                "text": _text(message["content"]),
                "calls": [f"{call['name']} {_compact(call['arguments'])}" for call in message.get("tool_calls", [])],
            }
            for message in response.json()["items"]
        ]

    async def rests(self, status: str = "completed") -> None:
        """Wait until the page shows this status."""
        await expect(self.page.locator("#log")).to_have_attribute("data-status", status)

    async def shows_what_is_stored(self) -> None:
        """Compare the conversation and the state on the page with the stored ones."""
        stored = await self.stored()
        await expect(self.page.locator("#log article[data-role]")).to_have_count(len(stored))
        assert await self.told() == stored
        state = (await self.client.get(f"/sessions/{self.session_id}/state")).json()["custom_state"]
        assert await self.page.evaluate("JSON.parse(document.getElementById('state').textContent)") == state


def _text(content: str | list[dict[str, Any]]) -> str:
    """Return the content as the page shows it."""
    if isinstance(content, str):
        return content
    return " ".join(part.get("text", f"[{part.get('name')}]") for part in content)


def _compact(value: Any) -> str:
    return httpx.Request("POST", "http://x", json=value).content.decode()


@pytest_asyncio.fixture(loop_scope="session")
async def open_chat(browser: Browser, line: Proxy) -> AsyncIterator[OpenChat]:
    """Opens the page in its own context; an error in the page fails the test."""
    contexts = []
    clients = []
    errors: list[str] = []

    async def open_page(session_id: str = "", *, token: str = "ann-token", port: int | None = None) -> Chat:
        context = await browser.new_context(base_url=f"http://127.0.0.1:{port or line.port}")
        contexts.append(context)
        await context.add_init_script(f"sessionStorage.setItem('token', '{token}')")
        page = await context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.on("pageerror", lambda error: errors.append(str(error)))
        await page.goto(f"/chat#{session_id}")
        await expect(page.locator("#log")).to_have_attribute("data-status", re.compile("."))
        headers = {"Authorization": f"Bearer {token}"}
        clients.append(
            httpx.AsyncClient(base_url=f"http://127.0.0.1:{port or line.port}", headers=headers, verify=False)
        )
        return Chat(page, clients[-1])

    yield open_page
    for client in clients:
        await client.aclose()
    for context in contexts:
        await context.close()
    assert not errors
