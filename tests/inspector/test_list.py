"""The list of sessions: filters in the address, pages, the keyboard, rows that change in place."""

from __future__ import annotations

import httpx
import pytest
from playwright.async_api import Page, expect

from helix_agents.backends.registry import Stores
from tests.inspector.conftest import Visit
from tests.server.running import execute, result

# Long: a browser, one person, many looks. `test_page`, `test_looks` and `test_hostile` are the short form.
pytestmark = pytest.mark.soak


async def rows(page: Page) -> list[str]:
    return await page.locator("table.sessions tbody tr").evaluate_all("nodes => nodes.map((node) => node.dataset.id)")


async def expect_rows(page: Page, ids: list[str]) -> None:
    await expect(page.locator("table.sessions tbody tr[data-id]")).to_have_count(len(ids))
    assert await rows(page) == ids


async def test_filters_narrow_the_list_and_lie_in_the_address(
    page: Page, visit: Visit, admin: httpx.AsyncClient, sid: str
) -> None:
    await execute(admin, "hello", f"{sid}-done", tags=[sid])
    await execute(admin, "delete notes.txt", f"{sid}-waits", tags=[sid, "urgent"])
    await execute(admin, "hello", f"{sid}-other", tags=[sid], agent_type="assistant")
    for name in ("done", "waits", "other"):
        await result(admin, f"{sid}-{name}")
    await page.goto(f"/#/?tag={sid}")
    await expect_rows(page, [f"{sid}-other", f"{sid}-waits", f"{sid}-done"])
    await page.get_by_role("button", name="Waiting", exact=False).first.click()
    await expect_rows(page, [f"{sid}-waits"])
    await page.go_back()
    await expect_rows(page, [f"{sid}-other", f"{sid}-waits", f"{sid}-done"])
    await page.go_forward()
    await expect_rows(page, [f"{sid}-waits"])
    await page.go_back()
    await page.get_by_role("button", name="Agent, user, tag").click()
    await page.get_by_label("Kind").select_option(label="Agent")
    await page.get_by_label("Value").fill("assistant")
    await page.keyboard.press("Enter")
    await expect_rows(page, [f"{sid}-other"])
    shared = await visit(page.url)
    await expect_rows(shared, [f"{sid}-other"])
    await shared.get_by_role("button", name="Agent assistant, remove").click()
    await expect_rows(shared, [f"{sid}-other", f"{sid}-waits", f"{sid}-done"])
    await page.goto(f"/#/?tag={sid}&user_id=nobody")
    await expect(page.get_by_text("No session matches")).to_be_visible()
    await page.get_by_role("button", name="Clear filters").click()
    await expect(page.locator(f"tr[data-id='{sid}-other']")).to_be_visible()


async def test_an_id_finds_its_session(page: Page, admin: httpx.AsyncClient, sid: str) -> None:
    await execute(admin, "hello", sid)
    await page.keyboard.press("/")
    await page.keyboard.type(sid)
    await expect_rows(page, [sid])
    assert f"q={sid}" in page.url


async def test_pages_follow_a_cursor_there_and_back(page: Page, stores: Stores, sid: str) -> None:
    for number in range(60):
        await stores.state.create_session(f"{sid}-{number:02}", agent_type="manager", tags=[sid])
    await page.goto(f"/#/?tag={sid}")
    await expect(page.locator("tr[data-id]")).to_have_count(50)
    await page.get_by_role("button", name="Older").click()
    await expect_rows(page, [f"{sid}-{number:02}" for number in range(9, -1, -1)])
    await page.go_back()
    await expect(page.locator("tr[data-id]")).to_have_count(50)
    await page.go_forward()
    await page.get_by_role("button", name="Newest").click()
    await expect(page.locator(f"tr[data-id='{sid}-59']")).to_be_visible()


async def test_the_keyboard_is_enough(page: Page, admin: httpx.AsyncClient, sid: str) -> None:
    for name in ("first", "second"):
        await execute(admin, "hello", f"{sid}-{name}", tags=[sid])
        await result(admin, f"{sid}-{name}")
    await page.goto(f"/#/?tag={sid}")
    await expect_rows(page, [f"{sid}-second", f"{sid}-first"])
    await page.keyboard.press("j")
    await expect(page.locator("tr:focus")).to_have_attribute("data-id", f"{sid}-first")
    await page.keyboard.press("c")
    await expect(page.locator("#said")).to_have_text("JSON copied")
    assert f'"session_id": "{sid}-first"' in await page.evaluate("navigator.clipboard.readText()")
    await page.keyboard.press("k")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", name=f"{sid}-second")).to_be_visible()
    for key, tab in (("2", "Timeline"), ("3", "Usage"), ("4", "Chunks"), ("1", "State")):
        await page.keyboard.press(key)
        await expect(page.get_by_role("tab", name=tab)).to_have_attribute("aria-selected", "true")
    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog")).to_contain_text("Next that waits")
    await page.keyboard.press("Escape")
    theme = await page.evaluate("getComputedStyle(document.body).backgroundColor")
    await page.keyboard.press("t")
    assert await page.evaluate("getComputedStyle(document.body).backgroundColor") != theme
    await page.keyboard.press("u")
    await expect(page.get_by_role("heading", name="Sessions", exact=True)).to_be_visible()


async def test_a_row_changes_in_place_and_says_what_is_newer(page: Page, admin: httpx.AsyncClient, sid: str) -> None:
    await execute(admin, "nap 5", sid, tags=[sid])
    await page.goto(f"/#/?tag={sid}")
    await expect(page.locator(f"tr[data-id='{sid}']")).to_contain_text("Active")
    await execute(admin, "hello", f"{sid}-newer", tags=[sid])
    await expect(page.get_by_role("button", name="1 newer")).to_be_visible()
    await expect(page.locator(f"tr[data-id='{sid}']")).to_contain_text("Completed")
    await page.get_by_role("button", name="1 newer").click()
    await expect_rows(page, [f"{sid}-newer", sid])


async def test_sub_sessions_hang_under_their_parent(page: Page, admin: httpx.AsyncClient, sid: str) -> None:
    await execute(admin, "tell search ants", sid, tags=[sid])
    await result(admin, sid)
    await page.goto(f"/#/?tag={sid}")
    await expect(page.locator("tr[data-id]")).to_have_count(2)
    parent, child = await rows(page)
    assert (parent, child.partition("/")[0]) == (sid, sid)
    await expect(page.locator("tr .child")).to_have_count(1)
    await page.get_by_role("button", name="Sub-agents shown").click()
    await expect_rows(page, [sid])


async def test_what_waits_is_answered_from_one_page(page: Page, admin: httpx.AsyncClient, sid: str) -> None:
    await execute(admin, "delete notes.txt", sid)
    await result(admin, sid)
    await page.goto("/#/waiting")
    question = page.locator("article.asked").filter(has_text=sid)
    await question.focus()
    await page.keyboard.press("a")
    await expect(question.get_by_role("button", name="Approve")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(question).to_have_count(0)
    assert (await result(admin, sid))["output"] == "Done: notes.txt is gone."


async def test_health_shows_the_backend_and_counts_statuses(page: Page, admin: httpx.AsyncClient, sid: str) -> None:
    await execute(admin, "hello", sid)
    await page.goto("/#/health")
    await expect(page.locator("dl.vitals")).to_contain_text("sqlite")
    await expect(page.locator("dl.vitals")).to_contain_text("Recovered today")
    await expect(page.get_by_role("heading", name="Sessions by status")).to_be_visible()
    await expect(page.locator(".facts-table tr").filter(has_text="Completed")).to_be_visible()


async def test_a_user_without_rights_sees_no_figures(visit: Visit) -> None:
    page = await visit("/#/health", token="alice-token")
    await expect(page.get_by_text("Only for admins")).to_be_visible()
