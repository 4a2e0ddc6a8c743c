"""Conversations that start in the inspector, their titles, and where forks come from."""

from __future__ import annotations

import json

import httpx
from playwright.async_api import Page, Route, expect

from tests.inspector.conftest import Visit
from tests.server.running import execute, result


async def test_a_conversation_starts_from_the_list(page: Page, admin: httpx.AsyncClient, sid: str) -> None:
    await page.keyboard.press("n")
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Agent").select_option("assistant")
    await expect(dialog).to_contain_text('Try: "search ants"')
    await dialog.get_by_role("button", name="Start").click()  # nothing to say yet
    await expect(dialog.get_by_label("First message")).to_be_focused()
    await dialog.get_by_label("Title").fill(f"Ants {sid}")
    await dialog.get_by_label("First message").fill("search ants")
    await dialog.get_by_role("button", name="Start").click()
    await expect(page.get_by_role("heading", name=f"Ants {sid}")).to_be_visible()
    await expect(page.get_by_text("Three pages speak of ants.").last).to_be_visible()
    await page.get_by_role("link", name="Sessions", exact=True).click()
    await expect(page.get_by_role("link", name=f"Ants {sid}")).to_be_visible()
    found = (await admin.get("/sessions", params={"agent_type": "assistant"})).json()["items"]
    assert any(each["metadata"].get("title") == f"Ants {sid}" for each in found)


async def test_the_agent_of_the_filter_is_offered_first(visit: Visit) -> None:
    page = await visit("/#/?agent_type=researcher")
    await page.get_by_role("button", name="New", exact=True).click()
    await expect(page.get_by_label("Agent", exact=True)).to_have_value("researcher")


async def test_a_start_that_is_rejected_says_why(page: Page) -> None:
    async def reject(route: Route) -> None:
        await route.fulfill(status=429, json={"code": "too_many_requests", "detail": "8 runs are at work already."})

    await page.route("**/execute", reject)
    await page.get_by_role("button", name="New", exact=True).click()
    await page.get_by_label("First message").fill("hello")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("alert")).to_have_text("8 runs are at work already.")
    await expect(page.get_by_role("button", name="Start")).to_be_enabled()


async def test_a_session_gets_a_title_and_loses_it(page: Page, admin: httpx.AsyncClient, sid: str) -> None:
    await execute(admin, "hello", sid)
    await result(admin, sid)
    await page.goto(f"/#/s/{sid}")
    for title, shown in (("A <b>title</b>", "A <b>title</b>"), ("", sid)):
        await page.get_by_label("More actions").click()
        await page.get_by_role("menuitem", name="Rename").click()
        await page.get_by_label("Title").fill(title)
        await page.get_by_role("dialog").get_by_role("button", name="Rename").click()
        await expect(page.get_by_role("heading", name=shown)).to_be_visible()
    assert "title" not in (await admin.get(f"/sessions/{sid}")).json()["metadata"]


async def test_a_fork_leads_to_where_it_came_from(page: Page, admin: httpx.AsyncClient, sid: str) -> None:
    origin = {"session_id": sid, "checkpoint_id": None, "message_count": 2}

    async def name_the_origin(route: Route) -> None:
        response = await route.fetch()
        found = await response.json()
        found["session"]["forked_from"] = origin
        await route.fulfill(response=response, body=json.dumps(found))

    await execute(admin, "hello", sid)
    await result(admin, sid)
    await admin.post(f"/sessions/{sid}/fork", json={"new_session_id": f"{sid}-fork"})
    await page.route(f"**/sessions/{sid}-fork/snapshot*", name_the_origin)
    await page.goto(f"/#/s/{sid}-fork")
    await expect(page.locator(".facts")).to_contain_text("after 2 messages")
    await page.locator(".facts").get_by_role("link", name=sid).click()
    await expect(page.get_by_role("heading", name=sid, exact=True)).to_be_visible()
