"""Node, npm packages and the browser are real and can be had here."""

from __future__ import annotations

import subprocess

import pytest
from playwright.async_api import async_playwright

from tests.servers import node
from tests.servers.fixtures import without_server
from tests.servers.process import ServerUnavailable


@pytest.fixture(scope="module")
def browser_packages() -> str:
    try:
        return str(node.packages("browser"))
    except ServerUnavailable as error:
        without_server(str(error))


def test_node_runs_installed_packages(browser_packages: str) -> None:
    ask = "import axe from 'axe-core'; console.log(axe.version)"
    done = subprocess.run(
        [str(node.node()), "--input-type=module", "-e", ask], cwd=browser_packages, capture_output=True, text=True
    )
    assert done.stdout.strip() == "4.14.0", done.stderr


async def test_the_browser_draws_a_page(browser_packages: str) -> None:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=node.chromium(), args=["--no-sandbox"])
        page = await browser.new_page()
        await page.set_content("<h1>Hello</h1>")
        assert await page.inner_text("h1") == "Hello"
        await browser.close()
