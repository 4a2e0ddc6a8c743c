"""How it looks: no serious finding of axe-core, light and dark, at three widths; and the pictures of the docs."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from playwright.async_api import Page, expect

from tests.inspector.conftest import Visit
from tests.server.running import execute, result
from tests.servers import node

IMAGES = Path(__file__).parents[2] / "docs" / "images"
DRAW = "HELIX_DRAW_SCREENSHOTS"
AXE = """async () => (await axe.run(document, {resultTypes: ["violations"]})).violations.map(
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
    page = await visit("/", scheme=scheme)
    for view in VIEWS:
        await page.goto(f"/#/{view.format(sid=sid)}")
        await expect(page.locator("main > * ").first).to_be_visible()
        await expect(page.locator(".sk")).to_have_count(0)
        if sid in view.format(sid=sid):
            await expect(page.locator(".ask").first).to_be_visible()
        found = await _findings(page, axe)
        assert not found, (view, found)


async def _findings(page: Page, axe: str) -> list[object]:
    await page.evaluate(axe)
    return [each for each in await page.evaluate(AXE) if each["impact"] in ("serious", "critical")]


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


@pytest.mark.skipif(DRAW not in os.environ, reason=f"the pictures of the docs are drawn on request: {DRAW}=1")
async def test_the_pictures_of_the_docs_are_drawn(visit: Visit) -> None:
    """Wants the address of a `helix serve` with its demo sessions, all come about."""
    IMAGES.mkdir(exist_ok=True)
    shots = [
        ("sessions", "/", "light", 1440, 560),
        ("state", "/#/s/ants-waiting/state", "light", 1440, 900),
        ("timeline", "/#/s/ants-recovered/timeline", "dark", 1440, 900),
        ("usage", "/#/s/ants-finished/usage", "dark", 1440, 900),
        ("phone", "/#/s/ants-waiting/talk", "light", 390, 844),
    ]
    for name, path, scheme, width, height in shots:
        page = await visit(path, address=os.environ[DRAW], scheme=scheme, width=width, height=height, token=None)
        await expect(page.locator(".sessions tr, .msg").first).to_be_visible()
        await page.screenshot(path=IMAGES / f"inspector-{name}.png", animations="disabled")
