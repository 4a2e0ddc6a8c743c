"""Appearance: no serious finding of axe-core, light and dark, at three widths; and the screenshots of the docs."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.async_api import Page, expect

from tests.inspector.conftest import Visit
from tests.inspector.pictures import in_few_colors
from tests.server.running import execute, result
from tests.servers import node

IMAGES = Path(__file__).parents[2] / "docs" / "images"
DRAW = "HELIX_DRAW_SCREENSHOTS"
AXE = """async (rules) => (await axe.run(document, {resultTypes: ["violations"], ...rules})).violations.map(
  ({id, impact, nodes}) => ({id, impact, where: nodes.map((each) => each.html.slice(0, 160))}))"""
VIEWS = ["", "waiting", "health", "s/{sid}/state", "s/{sid}/timeline", "s/{sid}/usage", "s/{sid}/chunks"]


@pytest.fixture
def axe() -> str:
    return (node.packages("browser") / "node_modules" / "axe-core" / "axe.min.js").read_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_nothing_serious(
    visit: Visit, admin: httpx.AsyncClient, sid: str, axe: str, scheme: str
) -> None:
    await execute(admin, "search ants", sid, tags=["science"])
    await result(admin, sid)
    await execute(admin, "delete a.txt b.txt", sid)
    await result(admin, sid)
    # The dark page has the same elements in other colors.
    rules = {} if scheme == "light" else {"runOnly": ["color-contrast"]}
    page = await visit("/", scheme=scheme)
    await page.evaluate(axe)
    for view in VIEWS:
        await page.goto(f"/#/{view.format(sid=sid)}")
        await expect(page.locator("main > * ").first).to_be_visible()
        await expect(page.locator(".sk")).to_have_count(0)
        if sid in view.format(sid=sid):
            await expect(page.locator(".ask").first).to_be_visible()
        found = [each for each in await page.evaluate(AXE, rules) if each["impact"] in ("serious", "critical")]
        assert not found, (view, found)


@pytest.mark.parametrize("width", [1440, 1024, 390])
async def test_nothing_is_wider_than_the_window(visit: Visit, admin: httpx.AsyncClient, sid: str, width: int) -> None:
    await execute(admin, "delete " + "x" * 300, sid, tags=["t" * 60, *(f"tag-{number}" for number in range(12))])
    await result(admin, sid)
    page = await visit("/", width=width, height=844)
    for view in [*VIEWS, "s/{sid}/talk"]:
        await page.goto(f"/#/{view.format(sid=sid)}")
        await expect(page.locator("main > *").first).to_be_visible()
        await expect(page.locator(".sk")).to_have_count(0)
        overflow = await page.evaluate("document.scrollingElement.scrollWidth - innerWidth")
        assert overflow <= 0, (view, overflow)


async def test_a_phone_shows_one_panel_at_a_time_and_answers_questions(
    visit: Visit, admin: httpx.AsyncClient, sid: str
) -> None:
    await execute(admin, "delete notes.txt", sid)
    await result(admin, sid)
    page = await visit(f"/#/s/{sid}", width=390, height=844)
    await expect(page.get_by_role("button", name="Approve")).to_be_in_viewport()
    await page.get_by_role("tab", name="State").click()
    await expect(page.get_by_role("button", name="Approve")).to_be_hidden()
    await page.get_by_role("tab", name="Conversation").click()
    await page.get_by_role("button", name="Approve").click()
    await expect(page.get_by_text("Done: notes.txt is gone.")).to_be_visible()


async def test_times_are_written_in_the_reader_s_zone(visit: Visit, admin: httpx.AsyncClient, sid: str) -> None:
    await execute(admin, "hello", sid)
    created = datetime.fromtimestamp((await admin.get(f"/sessions/{sid}")).json()["created_at"] / 1000, UTC)
    page = await visit(f"/#/s/{sid}", zone="Asia/Tokyo")
    await expect(page.locator(".facts time")).to_contain_text(f"{created + timedelta(hours=9):%H:%M:}")


@contextmanager
def demo(folder: Path) -> Iterator[str]:
    """`helix serve` with its demo sessions; its address."""
    command = [
        sys.executable,
        "-m",
        "helix_agents.cli",
        "serve",
        "--url",
        f"sqlite:{folder / 'demo.db'}",
        "--port",
        "0",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        found = re.search(r"http://[\d.:]+", process.stdout.readline())
        assert found is not None
        yield found.group()
    finally:
        process.kill()
        process.communicate()


async def come_about(address: str) -> None:
    """Wait until the demo sessions are as the screenshots show them."""
    wanted = {"ants-finished": "completed", "ants-waiting": "suspended_client_tool", "ants-recovered": "completed"}
    async with httpx.AsyncClient(base_url=address) as client, asyncio.timeout(120):
        for name, status in wanted.items():
            while (await client.get(f"/sessions/{name}")).json().get("status") != status:  # noqa: ASYNC110  # a process
                await asyncio.sleep(0.5)


async def draw(page: Page, name: str) -> None:
    """Keep a picture."""
    picture = await page.screenshot(animations="disabled")
    (IMAGES / f"inspector-{name}.png").write_bytes(in_few_colors(picture))


@pytest.mark.skipif(DRAW not in os.environ, reason=f"the pictures of the docs are drawn on request: {DRAW}=1")
async def test_the_pictures_of_the_docs_are_drawn(visit: Visit, tmp_path: Path) -> None:
    IMAGES.mkdir(exist_ok=True)
    with demo(tmp_path) as address:
        await come_about(address)
        options: dict[str, Any] = {"address": address, "token": None}
        page = await visit("/", height=560, **options)
        await expect(page.locator(".vitals")).to_contain_text("sqlite")
        await expect(page.locator("tr[data-id]")).to_have_count(7)
        await draw(page, "sessions")

        page = await visit("/#/s/ants-waiting/state", **options)
        await expect(page.locator("article").last).to_contain_text("116 tok")
        await expect(page.get_by_label("Checkpoint", exact=True)).to_be_visible()
        for step in ("s2+", "s2", "s1"):
            await page.keyboard.press("[")
            await expect(page.locator(".dock-1 b")).to_have_text(f"Checkpoint {step}")
        await page.locator(".tree .line").first.scroll_into_view_if_needed()
        await draw(page, "state")

        page = await visit("/#/s/ants-recovered/timeline", scheme="dark", **options)
        await page.locator(".tl").get_by_role("option", name="critic").click()
        await expect(page.locator(".dock.detail")).to_contain_text("finished")
        await expect(page.locator(".cut")).to_be_visible()
        await page.locator(".log").evaluate("node => { node.scrollTop -= 240; }")
        await draw(page, "timeline")

        page = await visit("/#/s/ants-finished/usage", scheme="dark", **options)
        await expect(page.get_by_role("img", name="Cost")).to_be_visible()
        await draw(page, "usage")

        page = await visit("/#/s/ants-waiting/talk", width=390, height=844, **options)
        await expect(page.locator("article").last).to_contain_text("116 tok")
        await expect(page.locator(".call").first).to_contain_text("ms")
        await expect(page.get_by_role("button", name="Approve")).to_be_in_viewport()
        await draw(page, "phone")
