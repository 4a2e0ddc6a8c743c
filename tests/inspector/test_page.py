"""What a person does with the inspector, in a real browser."""

from __future__ import annotations

import re

import httpx
from playwright.async_api import Page, Route, expect

from tests.inspector.conftest import Visit
from tests.server.running import Running, execute, result


async def test_the_page_is_served_with_a_policy_that_allows_nothing_else(server: Running) -> None:
    async with server.client(None) as client:
        response = await client.get("/")
        module = await client.get("/inspector/main.js")
        again = await client.get("/inspector/main.js", headers={"If-None-Match": module.headers["etag"]})
    assert response.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in response.headers["content-security-policy"]
    assert module.headers["content-type"].startswith("text/javascript")
    assert again.status_code == 304


async def test_the_page_names_every_module_that_it_loads(page: Page, server: Running) -> None:
    await expect(page.get_by_role("heading", name="Sessions", exact=True)).to_be_visible()
    loaded = await page.evaluate("performance.getEntriesByType('resource').map((it) => new URL(it.name).pathname)")
    async with server.client(None) as client:
        text = (await client.get("/")).text
    modules = {each for each in loaded if each.endswith(".js")}
    assert modules
    assert modules == {f"/{each}" for each in re.findall(r'rel="modulepreload" href="([^"]+)"', text)}


async def test_all_files_together_travel_in_less_than_150_kilobytes(page: Page) -> None:
    await expect(page.get_by_role("heading", name="Sessions", exact=True)).to_be_visible()
    sizes = await page.evaluate(
        "performance.getEntries().filter(({name: at}) => /inspector\\/|\\/$/.test(at)).map((it) => it.encodedBodySize)"
    )
    print(f"{len(sizes)} files, {sum(sizes)} bytes")
    assert 0 < sum(sizes) < 150_000


async def test_a_session_is_listed_and_opened(page: Page, admin: httpx.AsyncClient, sid: str) -> None:
    await execute(admin, "search ants", sid)
    await result(admin, sid)
    await page.goto("/")
    await page.get_by_role("link", name=sid).click()
    await expect(page.get_by_role("heading", name=sid)).to_be_visible()
    await expect(page.get_by_text("Done: Three pages speak of ants.")).to_be_visible()
    await page.go_back()
    await expect(page.get_by_role("heading", name="Sessions", exact=True)).to_be_visible()


async def test_a_late_answer_does_not_replace_the_list_that_was_asked_for_last(
    page: Page, admin: httpx.AsyncClient, sid: str
) -> None:
    held: list[Route] = []

    async def hold(route: Route) -> None:
        held.append(route)

    for name in ("first", "second"):
        await execute(admin, "hello", f"{sid}-{name}", tags=[f"{sid}-{name}"])
        await result(admin, f"{sid}-{name}")
    await page.route(f"**/sessions?tag={sid}-first&*", hold)
    await page.goto(f"/#/?tag={sid}-first")
    await page.goto(f"/#/?tag={sid}-second")
    listed = page.locator("table.sessions tbody tr[data-id]")
    await expect(listed).to_have_count(1)
    await expect(listed).to_have_attribute("data-id", f"{sid}-second")
    (late,) = held
    async with page.expect_response(lambda response: f"tag={sid}-first" in response.url) as answer:
        await late.continue_()
    await (await answer.value).finished()
    async with page.expect_response(lambda response: "/sessions?" in response.url):  # the list refreshes by itself
        pass
    await expect(listed).to_have_attribute("data-id", f"{sid}-second")


async def test_an_approval_is_given_in_place(page: Page, admin: httpx.AsyncClient, sid: str) -> None:
    await execute(admin, "delete notes.txt", sid)
    await result(admin, sid)
    await page.goto(f"/#/s/{sid}")
    await page.get_by_role("button", name="Approve").click()
    await expect(page.get_by_text("Done: notes.txt is gone.")).to_be_visible()


async def test_text_streams_in_once_and_a_message_is_sent(page: Page, admin: httpx.AsyncClient, sid: str) -> None:
    await execute(admin, "hello", sid)
    await result(admin, sid)
    await page.goto(f"/#/s/{sid}")
    await page.get_by_label("Message", exact=True).fill("talk 40")
    await page.get_by_role("button", name="Send").click()
    words = " ".join(f"word{number}" for number in range(40))
    await expect(page.get_by_text(words, exact=True)).to_have_count(1)
    await expect(page.get_by_text("talk 40", exact=True)).to_have_count(1)


async def test_each_panel_has_an_address(page: Page, admin: httpx.AsyncClient, sid: str) -> None:
    await execute(admin, "search ants", sid)
    await result(admin, sid)
    for tab, words in [
        ("state", "searches"),
        ("timeline", "Step 1"),
        ("usage", "Tool calls"),
        ("chunks", "step_committed"),
    ]:
        await page.goto(f"/#/s/{sid}/{tab}")
        await expect(page.locator("#pane").get_by_text(words).first).to_be_visible()


async def test_hostile_text_stays_text(page: Page, admin: httpx.AsyncClient, sid: str) -> None:
    hostile = "<img src=x onerror=alert(1)> \u202ereversed"
    await execute(admin, hostile, sid, tags=["<b>tag</b>"], metadata={"title": "<i>title</i>"})
    await result(admin, sid)
    await page.goto(f"/#/s/{sid}")
    await expect(page.get_by_role("heading", name="<i>title</i>")).to_be_visible()
    await expect(page.get_by_text("U+202E").first).to_be_visible()
    assert await page.locator("img, i, b b").count() == 0


async def test_without_a_token_the_page_asks_for_one(visit: Visit) -> None:
    page = await visit("/", token=None)
    await expect(page.get_by_role("dialog")).to_contain_text("The server asks for a token.")
    await page.get_by_label("Token").fill("alice-token")
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("heading", name="Sessions", exact=True)).to_be_visible()
