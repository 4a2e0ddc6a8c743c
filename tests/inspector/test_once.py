"""Nothing is shown twice, in whatever order snapshots, chunks and commits reach the page."""

from __future__ import annotations

import asyncio
import json
import re

import httpx
import pytest
from playwright.async_api import Page, Route, expect

from tests.server.running import execute, result

WATCH = """() => {
  window.odd = [];
  const seen = new Set();
  const look = () => {
    const texts = [...document.querySelectorAll("article.assistant .text")].map((node) => node.innerText);
    for (const text of texts) if (/^Done: .*[.]$/.test(text)) seen.add(text);
    for (const each of seen) {
      const times = texts.filter((text) => text === each).length;
      if (times !== 1) window.odd.push(`${times} times: ${each}`);
    }
    requestAnimationFrame(look);
  };
  look();
}"""
QUERY = " ".join(f"word{number}" for number in range(30))


async def speakers(page: Page) -> list[str]:
    """Return the author of each message, from top to bottom."""
    found: list[str] = await page.locator("article.msg .who b").all_inner_texts()
    return found


async def from_the_beginning(route: Route) -> None:
    """A snapshot without a stream position: all chunks that it contains are sent again."""
    response = await route.fetch()
    await route.fulfill(response=response, body=json.dumps({**await response.json(), "sequence": 0}))


@pytest.mark.parametrize(
    ("message", "last_chunk", "spoken"),
    [("search ants", "output", 3), ("delete notes.txt", "run_suspended", 2)],
)
async def test_a_stored_step_is_drawn_once_even_if_the_stream_brings_it_again(
    page: Page, admin: httpx.AsyncClient, sid: str, message: str, last_chunk: str, spoken: int
) -> None:
    await execute(admin, message, sid)
    await result(admin, sid)
    await page.route("**/snapshot*", from_the_beginning)
    await page.goto(f"/#/s/{sid}/chunks")
    await expect(page.locator(".ch .row").filter(has_text=last_chunk)).to_be_visible()
    await expect(page.locator("article.msg")).to_have_count(spoken)
    await expect(page.locator(".ask")).to_have_count(int(last_chunk == "run_suspended"))


async def test_slow_snapshots_bring_each_message_once(page: Page, admin: httpx.AsyncClient, sid: str) -> None:
    release = asyncio.Event()

    async def hold(route: Route) -> None:
        response = await route.fetch()
        await release.wait()
        await route.fulfill(response=response)

    await execute(admin, "hello", sid)
    await result(admin, sid)
    await page.route(re.compile(r"/snapshot\?offset=\d"), hold)
    await page.goto(f"/#/s/{sid}/chunks")
    await expect(page.get_by_text("You said: hello", exact=True)).to_be_visible()
    await execute(admin, f"search {QUERY}", sid)
    await expect(page.locator(".ch .row").filter(has_text="output").filter(has_text="word5")).to_be_visible()
    release.set()
    await expect(page.locator(".head .pill")).to_have_text("Completed")
    await expect(page.locator("article.msg")).to_have_count(5)
    assert await speakers(page) == ["You", "manager", "You", "manager", "manager"]


async def test_a_snapshot_that_fails_is_asked_for_again(page: Page, admin: httpx.AsyncClient, sid: str) -> None:
    is_back = asyncio.Event()

    async def refuse(route: Route) -> None:
        if is_back.is_set():
            await route.fallback()
        else:
            await route.fulfill(status=503, body="{}")

    await execute(admin, "hello", sid)
    await result(admin, sid)
    await page.goto(f"/#/s/{sid}/chunks")
    await expect(page.get_by_text("You said: hello", exact=True)).to_be_visible()
    await page.route(re.compile(r"/snapshot\?offset=\d"), refuse)
    await execute(admin, "search ants", sid)
    await expect(page.locator(".ch .row").filter(has_text="output").filter(has_text="ants")).to_be_visible()
    await expect(page.get_by_text("The server returned 503.")).to_be_visible()
    is_back.set()
    await expect(page.locator(".head .pill")).to_have_text("Completed")
    await expect(page.locator(".banner")).to_be_hidden()
    await expect(page.locator("article.msg")).to_have_count(5)


async def test_an_answer_is_in_every_frame_exactly_once(page: Page, admin: httpx.AsyncClient, sid: str) -> None:
    await execute(admin, "hello", sid)
    await result(admin, sid)
    await page.goto(f"/#/s/{sid}")
    await expect(page.get_by_text("You said: hello", exact=True)).to_be_visible()
    await page.evaluate(WATCH)
    for animal in ("ants", "bees", "cats", "dogs"):  # the last one starts a page of the list
        await execute(admin, f"search {animal}", sid)
        await expect(page.get_by_text(f"Done: Three pages speak of {animal}.", exact=True)).to_be_visible()
        await result(admin, sid)
    await expect(page.locator(".head .pill")).to_have_text("Completed")
    assert await page.evaluate("window.odd") == []
