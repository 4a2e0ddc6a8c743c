"""Edit, regenerate, and switch between the branches of a conversation; the link from a fork to its origin."""

from __future__ import annotations

import httpx
from playwright.async_api import Page, expect

from tests.inspector.conftest import Visit
from tests.server.running import execute, result


async def test_edit_regenerate_and_go_through_the_branches(
    page: Page, visit: Visit, admin: httpx.AsyncClient, sid: str
) -> None:
    for text in ("one", "two"):
        await execute(admin, text, sid)
        await result(admin, sid)
    await page.goto(f"/#/s/{sid}")
    other = await visit(f"/#/s/{sid}")
    await page.get_by_label("Edit message").last.click()
    await page.get_by_role("dialog").get_by_label("Message").fill("three")
    await page.keyboard.press("Enter")
    for tab in (page, other):
        await expect(tab.get_by_text("You said: three", exact=True)).to_be_visible()
        await expect(tab.get_by_text("You said: two", exact=True)).to_have_count(0)
        await expect(tab.get_by_text("2/2", exact=True)).to_have_count(1)
    await page.get_by_label("Regenerate reply").last.click()
    for tab in (page, other):
        await expect(tab.get_by_text("2/2", exact=True)).to_have_count(2)
    await page.get_by_label("Earlier branch").first.click()
    for tab in (page, other):
        await expect(tab.get_by_text("You said: two", exact=True)).to_be_visible()
        await expect(tab.get_by_text("1/2", exact=True)).to_have_count(1)
    stored = (await admin.get(f"/sessions/{sid}/messages")).json()["items"]
    assert [message["content"] for message in stored] == ["one", "You said: one", "two", "You said: two"]


async def test_a_fork_links_to_its_origin_and_has_a_title(page: Page, admin: httpx.AsyncClient, sid: str) -> None:
    await execute(admin, "one", sid)
    await result(admin, sid)
    await admin.patch(f"/sessions/{sid}", json={"title": "The first"})
    await page.goto(f"/#/s/{sid}")
    await expect(page.get_by_role("heading", name="The first")).to_be_visible()
    await expect(page).to_have_title("The first · helix")
    await page.get_by_role("button", name="Fork").first.click()
    await expect(page.locator(".facts")).to_contain_text("Forked from")
    await page.locator(".facts").get_by_role("link", name=sid).click()
    await expect(page).to_have_url(f"{page.url.split('#')[0]}#/s/{sid}")
