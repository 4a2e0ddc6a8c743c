"""Timeline, state, usage and chunks beside a conversation."""

from __future__ import annotations

import json

import httpx
import pytest
from playwright.async_api import Page, expect

from tests.server.running import execute, result

# Long: a browser, one person, many looks. `test_page`, `test_looks` and `test_hostile` are the short form.
pytestmark = pytest.mark.soak


async def test_the_timeline_draws_parallel_bars_and_leads_to_the_message(
    page: Page, admin: httpx.AsyncClient, sid: str
) -> None:
    await execute(admin, "delete a.txt b.txt", sid)
    await result(admin, sid)
    await page.goto(f"/#/s/{sid}/timeline")
    chart = page.locator(".tl")
    await expect(chart.get_by_role("option")).to_have_count(4)  # a step, its model call, two tools
    await expect(chart.locator(".bar.wait")).to_have_count(2)
    await chart.get_by_role("option", name="delete_file").first.click()
    await expect(page.locator(".dock.detail")).to_contain_text("waits for a person")
    await expect(page.locator("article:focus")).to_contain_text("step 1")
    await chart.focus()
    await page.keyboard.press("ArrowDown")
    await expect(chart.get_by_role("option", name="Step 1")).to_be_focused()
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("Enter")
    await expect(page.locator(".dock.detail")).to_contain_text("model")


async def test_the_timeline_grows_while_a_run_is_at_work(page: Page, admin: httpx.AsyncClient, sid: str) -> None:
    await execute(admin, "nap 3", sid)
    await page.goto(f"/#/s/{sid}/timeline")
    await expect(page.locator(".tl .bar.live")).to_be_visible()
    await expect(page.locator(".tl").get_by_role("option", name="Step 2")).to_be_visible()
    await expect(page.locator(".tl .bar.live")).to_have_count(0)


async def test_a_patch_flashes_what_it_changed(page: Page, admin: httpx.AsyncClient, sid: str) -> None:
    await execute(admin, "hello", sid)
    await result(admin, sid)
    await page.goto(f"/#/s/{sid}/state")
    await expect(page.get_by_text("The state is empty")).to_be_visible()
    await page.get_by_label("Message", exact=True).fill("search ants")
    await page.keyboard.press("Enter")
    await expect(page.locator(".tree .line.flash").first).to_be_visible()
    await expect(page.locator(".tree .line").filter(has_text="searches")).to_be_visible()


async def test_the_slider_shows_the_state_then_and_the_difference_to_any_other(
    page: Page, admin: httpx.AsyncClient, sid: str
) -> None:
    for word in ("ants", "bees"):
        await execute(admin, f"search {word}", sid)
        await result(admin, sid)
    await page.goto(f"/#/s/{sid}/state")
    tree = page.locator(".tree")
    await expect(tree).to_contain_text('"bees"')
    slider = page.get_by_label("Checkpoint", exact=True)
    await expect(slider).to_be_visible()
    await slider.focus()
    await page.keyboard.press("Home")
    await expect(page.get_by_text("The state is empty")).to_be_visible()
    await page.keyboard.press("ArrowRight")
    await expect(tree.locator(".line.added").first).to_contain_text("searches")
    await expect(page.locator(".bar-top .green")).to_have_text("+1 added")
    at = page.url
    await page.goto("/#/health")
    await page.goto(at)
    await expect(page.locator(".dock-1 b")).to_have_text("Checkpoint s1")
    last = await page.get_by_label("Compared with").locator("option").last.get_attribute("value")
    await page.get_by_label("Compared with").select_option(last)
    await expect(tree.locator(".line.removed")).to_contain_text('"bees"')
    await page.get_by_role("button", name="Only changes").click()
    await expect(tree.locator(".line")).to_have_count(2)
    await page.get_by_role("button", name="Fork at s1").click()
    await expect(page.get_by_role("heading", level=1)).to_contain_text("session-")
    await expect(tree).to_contain_text('"ants"')
    await expect(tree).not_to_contain_text('"bees"')


async def test_a_checkpoint_shows_what_the_model_was_asked(page: Page, admin: httpx.AsyncClient, sid: str) -> None:
    await execute(admin, "search ants", sid)
    await result(admin, sid)
    await page.goto(f"/#/s/{sid}/state")
    slider = page.get_by_label("Checkpoint", exact=True)
    await expect(slider).to_have_attribute("max", "3")  # a turn and two steps
    await slider.focus()
    await page.keyboard.press("Home")
    await expect(page.get_by_role("button", name="Request")).to_have_count(0)  # the turn has only started
    await page.keyboard.press("ArrowRight")
    await expect(page.locator(".dock-2")).to_contain_text("ScriptedLLM")
    await page.get_by_role("button", name="Request").click()
    asked = json.loads(await page.locator("dialog pre").inner_text())
    assert (asked["v"], asked["window"]) == (1, [0, 1])


async def test_the_tree_folds_by_keys_and_is_copied(page: Page, admin: httpx.AsyncClient, sid: str) -> None:
    await execute(admin, "search ants", sid)
    await result(admin, sid)
    await page.goto(f"/#/s/{sid}/state")
    line = page.get_by_role("treeitem").first
    await line.focus()
    await page.keyboard.press("ArrowLeft")
    await expect(line).to_have_attribute("aria-expanded", "false")
    await page.keyboard.press("ArrowRight")
    await expect(line).to_have_attribute("aria-expanded", "true")
    await page.keyboard.press("ArrowDown")
    await expect(page.get_by_role("treeitem").nth(1)).to_be_focused()
    await page.keyboard.press("c")
    await expect(page.locator("#said")).to_have_text("JSON copied")
    assert json.loads(await page.evaluate("navigator.clipboard.readText()")) == {"searches": ["ants"]}


async def test_usage_is_drawn_by_step_and_over_the_tree(page: Page, admin: httpx.AsyncClient, sid: str) -> None:
    await execute(admin, "tell search ants", sid)
    await result(admin, sid)
    await page.goto(f"/#/s/{sid}/usage")
    chart = page.get_by_role("img", name="Tokens by step")
    await expect(chart.locator("rect.bar").first).to_be_visible()
    for title, words in (("Tools", "search"), ("Sub-agents", "assistant"), ("Models", "scripted")):
        section = page.locator(".use section").filter(has=page.get_by_role("heading", name=title, exact=True))
        await expect(section).to_contain_text(words)


async def test_chunks_are_listed_filtered_and_shown_as_json(page: Page, admin: httpx.AsyncClient, sid: str) -> None:
    await execute(admin, "search ants", sid)
    await result(admin, sid)
    await page.goto(f"/#/s/{sid}/chunks")
    await expect(page.locator(".ch .row").filter(has_text="run_started")).to_be_visible()
    await page.get_by_role("button", name="Tools", exact=True).click()
    await expect(page.locator(".ch .row").filter(has_text="run_started")).to_have_count(0)
    await page.locator(".ch .row").filter(has_text="tool_end").click()
    await expect(page.get_by_label("Selected chunk")).to_contain_text('"success": true')
    await page.locator(".ch").focus()
    await page.keyboard.press("ArrowUp")
    await expect(page.get_by_label("Selected chunk")).not_to_contain_text('"success": true')
