"""Long sessions: what is in the document stays small, and everything can still be reached."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from helix_agents.backends.registry import Stores
from helix_agents.chunks import Chunk
from helix_agents.messages import Message
from tests.inspector.frames import frames_while_scrolling

# Long: a browser, one person, many looks. `test_page`, `test_looks` and `test_hostile` are the short form.
pytestmark = pytest.mark.soak

MESSAGES = 10_000
CHUNKS = 100_000
MOST_ELEMENTS = 6_000


async def elements(page: Page) -> int:
    found: int = await page.evaluate("document.querySelectorAll('*').length")
    return found


async def test_ten_thousand_messages_scroll_in_a_small_document(page: Page, stores: Stores, sid: str) -> None:
    await stores.state.create_session(sid, agent_type="manager")
    for start in range(0, MESSAGES, 1000):
        messages = [_message(number) for number in range(start, start + 1000)]
        await stores.state.append_messages(sid, messages)
    await page.goto(f"/#/s/{sid}")
    await expect(page.get_by_text(f"Message {MESSAGES - 1}.")).to_be_visible()
    await expect(page.get_by_role("button", name="9,800 earlier messages")).to_be_attached()
    print("scrolling up:", await frames_while_scrolling(page, ".log", -600, 120))
    assert await elements(page) < MOST_ELEMENTS
    await page.locator(".log").press("Home")
    await expect(page.get_by_text("Message 0.")).to_be_in_viewport()
    print("scrolling down:", await frames_while_scrolling(page, ".log", 600, 120))
    assert await elements(page) < MOST_ELEMENTS
    await page.locator(".log").press("End")
    await expect(page.get_by_text(f"Message {MESSAGES - 1}.")).to_be_in_viewport()


async def test_a_hundred_thousand_chunks_are_kept_in_bounds(page: Page, stores: Stores, sid: str) -> None:
    await stores.state.create_session(sid, agent_type="manager")
    async with await stores.streams.create_writer(sid, "run", "manager") as writer:
        for number in range(CHUNKS):
            await writer.write(_chunk(number))
    await page.goto(f"/#/s/{sid}/chunks")
    await expect(page.locator(".ch .row").last).to_contain_text(str(CHUNKS))
    await expect(page.locator(".bar-top")).to_contain_text("are not kept here")
    print("scrolling chunks:", await frames_while_scrolling(page, ".ch", -900, 60))
    assert await elements(page) < MOST_ELEMENTS
    await page.goto(f"/#/s/{sid}/timeline")
    await expect(page.locator(".tl [role=option]").first).to_be_visible()
    assert await elements(page) < MOST_ELEMENTS


def _message(number: int) -> Message:
    content = f"Message {number}. " + "Some words. " * (number % 40)
    return {"role": ("user", "assistant")[number % 2], "content": content}


def _chunk(number: int) -> Chunk:
    step = number // 100 + 1
    common = {"agent_id": "run", "agent_type": "manager", "step": step, "timestamp": 1_790_000_000_000 + number}
    if number % 100 == 99:
        return {"type": "step_committed", "step_count": step, "checkpoint_id": str(number), **common}
    if number % 2:
        return {"type": "custom", "name": "tick", "data": {"number": number}, **common}
    return {"type": "text_delta", "delta": "word ", **common}
