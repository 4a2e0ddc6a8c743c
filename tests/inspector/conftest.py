"""A real browser on a real server. Each test gets a page of its own; an error in the page fails the test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import httpx
import pytest
from playwright.async_api import Browser, Page, async_playwright

from tests.server.conftest import sid
from tests.server.running import Running, running
from tests.servers import node
from tests.servers.fixtures import without_server
from tests.servers.process import ServerUnavailable

__all__ = ["sid"]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("inspected")
    with running(f"sqlite:{folder / 'helix.db'}", folder) as started:
        yield started


@pytest.fixture
async def admin(server: Running) -> AsyncIterator[httpx.AsyncClient]:
    async with server.client("admin-token") as client:
        yield client


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    try:
        program = node.chromium()
    except ServerUnavailable as error:
        without_server(str(error))
    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield started
        await started.close()


@pytest.fixture
async def page(browser: Browser, server: Running) -> AsyncIterator[Page]:
    """A page that has signed in as an admin."""
    context = await browser.new_context(base_url=server.address, viewport={"width": 1440, "height": 900})
    await context.add_init_script("sessionStorage.setItem('helix-token', 'admin-token')")
    opened = await context.new_page()
    opened.set_default_timeout(20_000)
    errors: list[str] = []
    opened.on("pageerror", lambda error: errors.append(str(error)))
    opened.on("console", lambda said: errors.append(said.text) if "Content Security Policy" in said.text else None)
    yield opened
    await context.close()
    assert not errors
