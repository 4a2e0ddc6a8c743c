"""What the inspector shows about sessions is true: parents and children, counts, the turn that is drawn."""

from __future__ import annotations

import re

import httpx
from playwright.async_api import Page, expect

from helix_agents.backends.registry import Stores
from tests.inspector.conftest import Visit
from tests.server.running import execute, result


async def test_only_children_of_a_session_on_the_page_hang_under_it(page: Page, stores: Stores, sid: str) -> None:
    await stores.state.create_session(f"{sid}-parent", agent_type="manager")
    for name in ("first", "second", "third"):
        await stores.state.create_session(
            f"{sid}-{name}",
            agent_type="manager",
            parent_session_id=f"{sid}-parent",
            root_session_id=f"{sid}-parent",
            tags=[sid],
        )
    await page.goto(f"/#/?tag={sid}")
    await expect(page.locator("tr[data-id]")).to_have_count(3)
    await expect(page.locator("tr .child")).to_have_count(0)
    await page.goto(f"/#/?q={sid}")
    await expect(page.locator("tr[data-id]")).to_have_count(4)
    await expect(page.locator("tr .child")).to_have_count(3)


async def test_the_button_for_sub_agents_says_what_is_shown(page: Page) -> None:
    await page.get_by_role("button", name="Sub-agents shown").click()
    await expect(page.get_by_role("button", name="Sub-agents shown")).to_have_count(0)
    await page.get_by_role("button", name="Sub-agents hidden").click()
    await expect(page.get_by_role("button", name="Sub-agents shown")).to_be_visible()


async def test_counts_are_those_of_the_filtered_list(
    page: Page, visit: Visit, admin: httpx.AsyncClient, stores: Stores, sid: str
) -> None:
    for number in range(3):
        await stores.state.create_session(f"{sid}-{number}", agent_type="manager", tags=[sid], user_id="alice")
    await stores.state.create_session(f"{sid}-other", agent_type="manager")
    total = page.locator(".title > .dim")
    by_status = (await admin.get("/stats")).json()["by_status"]
    await expect(total).to_have_text(f"{sum(by_status.values()):,}")
    await expect(page.locator(".chip .num").first).to_be_visible()
    await page.goto("/#/?status=active")
    await expect(total).to_have_text(f"{by_status['active']:,}")
    await page.goto(f"/#/?tag={sid}")
    await expect(total).to_have_text("3")
    await expect(page.locator(".chip .num")).to_have_count(0)
    alice = await visit(f"/#/?tag={sid}", token="alice-token")
    await expect(alice.locator(".title > .dim")).to_have_text("3")


async def test_the_timeline_follows_the_latest_turn_until_another_is_chosen(
    page: Page, admin: httpx.AsyncClient, sid: str
) -> None:
    async def say(text: str) -> None:
        await execute(admin, text, sid)
        await result(admin, sid)

    await say("hello")
    await page.goto(f"/#/s/{sid}/timeline")
    turn = page.get_by_label("Turn")
    shown = turn.locator("option:checked")
    await expect(shown).to_have_text("Turn 1")
    await say("search ants")
    await expect(shown).to_have_text("Turn 2")
    await expect(page.locator(".tl").get_by_role("option", name=re.compile("search"))).to_be_visible()
    await turn.select_option(label="Turn 1")
    await say("hello again")
    await expect(turn.locator("option")).to_have_count(3)
    await expect(shown).to_have_text("Turn 1")
    await turn.select_option(label="Turn 3")
    await say("bye")
    await expect(shown).to_have_text("Turn 4")
