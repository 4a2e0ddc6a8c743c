"""A real browser on a real server. Each test gets its own page; an error in the page fails the test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page, async_playwright, expect

from helix_agents.backends.registry import Stores, open_stores
from tests.server.conftest import sid
from tests.server.running import Running, running
from tests.servers import node
from tests.servers.fixtures import without_server
from tests.servers.process import ServerUnavailable

__all__ = ["sid"]

PATIENCE_MS = 20_000
expect.set_options(timeout=PATIENCE_MS)

Visit = Callable[..., Awaitable[Page]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run all of these tests in one event loop: they share a browser."""
    for item in items:
        if item.path.is_relative_to(__file__.rpartition("/")[0]):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server whose model sends a piece every 20 ms, slow enough to see text grow."""
    folder = tmp_path_factory.mktemp("inspected")
    with running(f"sqlite:{folder / 'helix.db'}", folder, 0.02) as started:
        yield started


@pytest_asyncio.fixture(loop_scope="session")
async def admin(server: Running) -> AsyncIterator[httpx.AsyncClient]:
    async with server.client("admin-token") as client:
        yield client


@pytest_asyncio.fixture(loop_scope="session")
async def stores(server: Running) -> AsyncIterator[Stores]:
    """The server's own stores, for sessions that no run would create quickly."""
    async with open_stores(server.url) as opened:
        yield opened


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    try:
        program = node.chromium()
    except ServerUnavailable as error:
        without_server(str(error))
    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield started
        await started.close()


@pytest_asyncio.fixture(loop_scope="session")
async def visit(browser: Browser, server: Running) -> AsyncIterator[Visit]:
    """Opens pages: `await visit(path, token=..., width=..., scheme=...)`, each in a context of its own."""
    contexts: list[BrowserContext] = []
    errors: list[str] = []

    async def open_page(
        path: str = "/",
        *,
        token: str | None = "admin-token",
        width: int = 1440,
        height: int = 900,
        scheme: Any = "light",
        zone: str | None = None,
        address: str = server.address,
    ) -> Page:
        context = await browser.new_context(
            base_url=address,
            viewport={"width": width, "height": height},
            color_scheme=scheme,
            timezone_id=zone,
            permissions=["clipboard-read", "clipboard-write"],
        )
        contexts.append(context)
        if token is not None:
            await context.add_init_script(
                f"sessionStorage.getItem('helix-token') ?? sessionStorage.setItem('helix-token', '{token}')"
            )
        page = await context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda said: errors.append(said.text) if "Content Security Policy" in said.text else None)
        await page.goto(path)
        return page

    yield open_page
    for context in contexts:
        for page in context.pages:
            await page.unroute_all(behavior="ignoreErrors")
        await context.close()
    assert not errors


@pytest_asyncio.fixture(loop_scope="session")
async def page(visit: Visit) -> Page:
    """A page that has signed in as an admin, on the list of sessions."""
    return await visit("/")
