"""Text of models, tools and users is shown as text, whatever it is, in every field that can carry it."""

from __future__ import annotations

from typing import Any

import httpx
import msgspec
from playwright.async_api import Page, expect

from helix_agents.backends.registry import Stores
from helix_agents.messages import Message
from helix_agents.types import CheckpointMeta

SCRIPT = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"
HOSTILE = f"{SCRIPT}\u202edesrever\u2066"
LONG_LINE = "0123456789" * 100_000
VIEWS = ["talk", "state", "timeline", "usage", "chunks"]


async def plant(stores: Stores, sid: str) -> None:
    """Create a session with hostile text in every field that holds text."""
    state = await stores.state.create_session(
        sid,
        agent_type=HOSTILE,
        user_id="<b>user</b>",
        tags=["<b>tag</b>", "\u202egat"],
        metadata={"title": HOSTILE},
        custom_state={HOSTILE: {HOSTILE: [HOSTILE, LONG_LINE]}},
    )
    call: dict[str, Any] = {"id": "<i>c1</i>", "name": HOSTILE, "arguments": {HOSTILE: HOSTILE, "line": LONG_LINE}}
    messages: list[Message] = [
        {"role": "user", "content": HOSTILE},
        {"role": "assistant", "content": LONG_LINE, "thinking": HOSTILE, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": HOSTILE, "success": False},
        {"role": HOSTILE, "content": [{"type": HOSTILE}]},
    ]
    await stores.state.save_state_and_promote_staging(
        sid,
        msgspec.structs.replace(state, step_count=1),
        messages,
        CheckpointMeta(HOSTILE, 1),
        expected_version=state.version,
    )
    # After the commit, so they belong to the open step.
    common = {"agent_id": HOSTILE, "agent_type": HOSTILE, "step": 2, "timestamp": 1_790_000_000_000}
    async with await stores.streams.create_writer(sid, "run", "manager") as writer:
        for chunk in (
            {"type": "run_started", "run_id": HOSTILE},
            {"type": "text_delta", "delta": HOSTILE},
            {"type": "tool_start", "tool_call_id": HOSTILE, "tool_name": HOSTILE, "arguments": {"line": LONG_LINE}},
            {"type": "tool_end", "tool_call_id": HOSTILE, "tool_name": HOSTILE, "success": False, "error": HOSTILE},
            {"type": HOSTILE, "data": HOSTILE},
            {"type": "error", "error": HOSTILE, "recoverable": False},
        ):
            await writer.write({**common, **chunk})


async def is_unharmed(page: Page) -> bool:
    found: bool = await page.evaluate("window.hacked === undefined && !document.querySelector('main script, main img')")
    return found


async def test_hostile_text_stays_text_in_every_view(page: Page, stores: Stores, sid: str) -> None:
    await plant(stores, sid)
    await page.goto("/#/?user_id=%3Cb%3Euser%3C%2Fb%3E")
    row = page.locator(f"tr[data-id='{sid}']")
    await expect(row).to_contain_text("<script>window.hacked = 1</script>")
    await expect(row.locator(".unseen").first).to_have_text("U+202E")
    assert await is_unharmed(page)
    for view in VIEWS:
        await page.goto(f"/#/s/{sid}/{view}")
        await expect(page.get_by_role("heading", level=1)).to_contain_text("<script>")
        if view != "talk":
            await expect(page.locator("#pane")).to_be_visible()
        for summary in await page.locator("summary").all():
            await summary.click()
        assert await is_unharmed(page)
        assert await page.evaluate("document.scrollingElement.scrollWidth <= innerWidth")


async def test_a_line_of_a_megabyte_is_folded_and_read_in_pages(page: Page, stores: Stores, sid: str) -> None:
    await plant(stores, sid)
    await page.goto(f"/#/s/{sid}")
    message = page.locator("article#m1")
    await expect(message).to_contain_text("976.6 KB")
    await expect(page.locator("article#open-2")).to_be_visible()
    assert len(await page.evaluate("document.body.innerText")) < 20_000
    await message.get_by_role("button", name="Show all").first.click()
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text("Page 1 of 16")
    await dialog.get_by_role("button", name="After").click()
    await expect(dialog).to_contain_text("Page 2 of 16")


async def test_marks_of_direction_are_shown_and_not_obeyed(page: Page, admin: httpx.AsyncClient, sid: str) -> None:
    await admin.post("/execute", json={"agent_type": "manager", "session_id": sid, "message": "a\u202eb\u2066c"})
    await page.goto(f"/#/s/{sid}")
    await expect(page.locator("article.user .text")).to_have_text("aU+202EbU+2066c")
