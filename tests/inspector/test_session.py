"""One session: streaming, responses to questions, and what a person may do to a run."""

from __future__ import annotations

import httpx
import pytest
from playwright.async_api import Page, expect

from helix_agents.clock import random_id
from tests.inspector.conftest import Visit
from tests.server.running import execute, result

# Long: a browser, one person, many looks. `test_page`, `test_looks` and `test_hostile` are the short form.
pytestmark = pytest.mark.soak


async def test_text_streams_in_once_in_two_tabs(page: Page, visit: Visit, admin: httpx.AsyncClient, sid: str) -> None:
    await execute(admin, "hello", sid)
    await result(admin, sid)
    await page.goto(f"/#/s/{sid}")
    other = await visit(f"/#/s/{sid}")
    await expect(other.get_by_text("You said: hello")).to_be_visible()
    await page.get_by_label("Message", exact=True).fill("talk 40")
    await page.keyboard.press("Enter")
    await expect(page.locator(".cursor")).to_be_visible()
    words = " ".join(f"word{number}" for number in range(40))
    for each in (page, other):
        await expect(each.get_by_text(words, exact=True)).to_have_count(1)
        await expect(each.get_by_text("talk 40", exact=True)).to_have_count(1)


async def test_thinking_and_calls_unfold_and_stay_so_while_the_step_goes_on(
    page: Page, admin: httpx.AsyncClient, sid: str
) -> None:
    await execute(admin, "search ants", sid)
    await page.goto(f"/#/s/{sid}")
    await page.get_by_text("Thought").first.click()
    await page.locator("details.call summary").filter(has_text="search").click()
    await expect(page.get_by_text("Done: Three pages speak of ants.")).to_be_visible()
    await expect(page.get_by_text("Where could it be?")).to_be_visible()
    await expect(page.locator(".ios")).to_contain_text("Three pages speak of ants.")
    await page.locator(".ios").get_by_role("button", name="Copy").first.click()
    await expect(page.locator("#said")).to_have_text("JSON copied")


async def test_an_approval_with_changed_arguments(page: Page, admin: httpx.AsyncClient, sid: str) -> None:
    await execute(admin, "delete notes.txt", sid)
    await page.goto(f"/#/s/{sid}")
    await page.get_by_role("button", name="Edit", exact=True).click()
    await page.get_by_label("path").fill("letters.txt")
    await expect(page.locator(".was")).to_contain_text("notes.txt")
    await page.get_by_role("button", name="Approve with 1 change").click()
    await expect(page.get_by_text("letters.txt is gone.")).to_be_visible()
    await expect(page.locator(".ask")).to_have_count(0)


async def test_an_approval_is_edited_as_json_and_rejected_with_a_reason_by_keys(
    page: Page, admin: httpx.AsyncClient, sid: str
) -> None:
    await execute(admin, "delete notes.txt", sid)
    await page.goto(f"/#/s/{sid}")
    await page.get_by_role("button", name="JSON").click()
    field = page.get_by_label("Arguments as JSON")
    await field.fill("{")
    await expect(page.get_by_role("button", name="Approve")).to_be_disabled()
    await field.fill('{"path": "other.txt"}')
    await expect(page.get_by_role("button", name="Approve with 1 change")).to_be_enabled()
    await page.get_by_label("Reason").fill("It is needed.")
    await page.keyboard.press("Escape")
    await page.keyboard.press("r")
    await expect(page.get_by_role("button", name="Reject")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.locator(".ask")).to_have_count(0)
    assert "It is needed." in (await result(admin, sid))["output"]


async def test_questions_of_two_calls_are_answered_one_by_one(page: Page, admin: httpx.AsyncClient, sid: str) -> None:
    await execute(admin, "delete a.txt b.txt", sid)
    await page.goto(f"/#/s/{sid}")
    await expect(page.locator(".ask")).to_have_count(2)
    await expect(page.get_by_text("2 questions waiting")).to_be_visible()
    await page.locator(".ask").first.get_by_role("button", name="Approve").click()
    await expect(page.locator(".ask:not(.answered)")).to_have_count(1)
    await page.locator(".ask:not(.answered)").get_by_role("button", name="Reject").click()
    await expect(page.locator(".ask")).to_have_count(0)


async def test_screen_readers_hear_of_questions_and_of_the_end_but_not_of_pieces(
    page: Page, admin: httpx.AsyncClient, sid: str
) -> None:
    await execute(admin, "hello", sid)
    await result(admin, sid)
    await page.goto(f"/#/s/{sid}")
    await expect(page.get_by_text("You said: hello")).to_be_visible()
    await expect(page.locator("#news")).to_be_empty()
    await page.get_by_label("Message", exact=True).fill("delete notes.txt")
    await page.keyboard.press("Enter")
    await expect(page.locator("#news")).to_contain_text("delete_file waits for your approval")
    await page.get_by_role("button", name="Approve").click()
    await expect(page.locator("#news")).to_contain_text("manager answered")
    await expect(page.locator("#news")).to_contain_text("Completed")


async def test_a_client_tool_is_answered(page: Page, admin: httpx.AsyncClient, sid: str) -> None:
    await execute(admin, "ask your name", sid)
    await page.goto(f"/#/s/{sid}")
    await page.get_by_label("Answer", exact=True).fill("Ada")
    await page.get_by_role("button", name="Answer", exact=True).click()
    await expect(page.get_by_text("Done: Ada")).to_be_visible()


async def test_a_sub_agent_is_nested_and_its_question_answered_in_place(
    page: Page, admin: httpx.AsyncClient, sid: str
) -> None:
    await execute(admin, "tell delete notes.txt", sid)
    await page.goto(f"/#/s/{sid}")
    await page.locator(".sub-box .ask").get_by_role("button", name="Approve").click()
    await expect(page.get_by_text("Done: Done: notes.txt is gone.")).to_be_visible()
    box = page.locator(".sub-box")
    if not await box.get_attribute("open"):
        await box.locator("summary").first.click()
    await expect(box.get_by_text("Done: notes.txt is gone.")).to_be_visible()
    await box.get_by_role("link", name="Open session").click()
    await expect(page.locator(".facts")).to_contain_text("Parent")


async def test_the_question_of_a_sub_agent_is_found_and_answered_after_a_reload(
    page: Page, admin: httpx.AsyncClient, sid: str
) -> None:
    await execute(admin, "tell delete notes.txt", sid)
    await result(admin, sid)
    await page.goto(f"/#/s/{sid}")
    await expect(page.get_by_text("1 question waiting")).to_be_visible()
    await page.locator(".sub-box .ask").get_by_role("button", name="Approve").click()
    await expect(page.get_by_text("Done: Done: notes.txt is gone.")).to_be_visible()
    await expect(page.locator(".ask")).to_have_count(0)


async def test_a_run_is_interrupted_and_resumed(page: Page, admin: httpx.AsyncClient, sid: str) -> None:
    await execute(admin, "talk 600", sid)
    await page.goto(f"/#/s/{sid}")
    await expect(page.get_by_text("word3 ")).to_be_visible()
    await expect(page.get_by_role("button", name="Send")).to_be_disabled()
    await expect(page.get_by_text("The turn is not over")).to_be_visible()
    await page.get_by_role("button", name="Interrupt").click()
    await expect(page.locator(".head .pill")).to_have_text("Interrupted")
    await page.get_by_role("button", name="Resume").click()
    await expect(page.locator(".head .pill")).to_have_text("Active")
    await page.keyboard.press("i")
    await expect(page.locator(".head .pill")).to_have_text("Interrupted")


async def test_a_run_is_aborted_after_a_question(page: Page, admin: httpx.AsyncClient, sid: str) -> None:
    await execute(admin, "nap 30", sid)
    await page.goto(f"/#/s/{sid}")
    await page.get_by_label("More actions").click()
    await page.get_by_role("menuitem", name="Abort run").click()
    await page.get_by_role("button", name="Abort", exact=True).click()
    await expect(page.locator(".head .pill")).to_have_text("Failed")
    await expect(page.get_by_text("The run failed")).to_be_visible()


async def test_a_fork_goes_its_own_way(page: Page, admin: httpx.AsyncClient, sid: str) -> None:
    await execute(admin, "search ants", sid)
    await result(admin, sid)
    await page.goto(f"/#/s/{sid}")
    await page.locator(".actions").get_by_role("button", name="Fork").click()
    await expect(page.get_by_role("heading", level=1)).to_contain_text("session-")
    await page.get_by_label("Message", exact=True).fill("hello")
    await page.get_by_role("button", name="Send").click()
    await expect(page.get_by_text("You said: hello")).to_be_visible()
    assert (await admin.get(f"/sessions/{sid}/messages")).json()["total"] == 4


async def test_a_session_goes_back_to_a_checkpoint(page: Page, admin: httpx.AsyncClient, sid: str) -> None:
    await execute(admin, "search ants", sid)
    await result(admin, sid)
    await page.goto(f"/#/s/{sid}/state")
    slider = page.get_by_label("Checkpoint", exact=True)
    await expect(slider).to_have_attribute("max", "3")
    await page.keyboard.press("[")
    await page.keyboard.press("[")
    await expect(page.locator(".dock-1 b")).to_have_text("Checkpoint s1")
    assert "at=" in page.url
    await page.get_by_role("button", name="Restore s1").click()
    await page.get_by_role("button", name="Leave it").click()
    await page.get_by_role("button", name="Restore s1").click()
    await page.get_by_role("dialog").get_by_role("button", name="Restore", exact=True).click()
    await expect(page.get_by_text("Done: Three pages speak of ants.")).to_have_count(0)
    await expect(slider).to_have_attribute("max", "2")


async def test_deleting_asks_first(page: Page, visit: Visit, admin: httpx.AsyncClient, sid: str) -> None:
    await execute(admin, "hello", sid)
    await result(admin, sid)
    await page.goto(f"/#/s/{sid}")
    other = await visit(f"/#/s/{sid}")
    await expect(other.get_by_text("You said: hello")).to_be_visible()
    for answer in ("Keep it", "Delete"):
        await page.get_by_label("More actions").click()
        await page.get_by_role("menuitem", name="Delete session").click()
        await page.get_by_role("dialog").get_by_role("button", name=answer, exact=True).click()
        assert (await admin.get(f"/sessions/{sid}")).status_code == 200 or answer == "Delete"
    await expect(page.get_by_role("heading", name="Sessions", exact=True)).to_be_visible()
    await expect(other.get_by_text("This session was deleted.")).to_be_visible()
    assert (await admin.get(f"/sessions/{sid}")).status_code == 404


async def test_a_failed_run_says_why(page: Page, admin: httpx.AsyncClient, sid: str) -> None:
    await execute(admin, "talk x", sid)
    await result(admin, sid)
    await page.goto(f"/#/s/{sid}")
    await expect(page.get_by_text("The run failed")).to_be_visible()
    await expect(page.locator(".failbox p")).not_to_be_empty()


async def test_a_session_that_does_not_exist_says_so(page: Page) -> None:
    await page.goto(f"/#/s/{random_id()}")
    await expect(page.get_by_role("heading", name="Not found")).to_be_visible()
    await expect(page.get_by_role("button", name="Try now")).to_be_visible()


async def test_the_keyboard_walks_the_conversation_and_folds(page: Page, admin: httpx.AsyncClient, sid: str) -> None:
    await execute(admin, "search ants", sid)
    await result(admin, sid)
    await page.goto(f"/#/s/{sid}")
    await expect(page.get_by_text("Done: Three pages speak of ants.")).to_be_visible()
    await page.keyboard.press("j")
    await expect(page.locator("article:focus")).to_contain_text("search ants")
    await page.keyboard.press("j")
    await page.keyboard.press("x")
    await expect(page.locator("article:focus details.thought[open]")).to_have_count(1)
    await page.keyboard.press("l")
    await expect(page.locator("#said")).to_have_text("Link copied")
    assert await page.evaluate("navigator.clipboard.readText()") == page.url
    await page.keyboard.press("/")
    await expect(page.get_by_label("Message", exact=True)).to_be_focused()
