"""Questions to a person: what is shown is what runs, whatever the arguments contain and whatever changes in between."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import httpx
import pytest
from playwright.async_api import Locator, Page, expect

from tests.inspector.conftest import Visit
from tests.server.running import execute, result

LARGE = 9_007_199_254_740_993
"""2**53 + 1, which JavaScript would round."""


async def ask_for(client: httpx.AsyncClient, sid: str, tool: str, arguments: dict[str, Any]) -> None:
    """Start a run that waits until a person approves this call."""
    await execute(client, f"call {tool} {json.dumps(arguments)}", sid)
    assert (await result(client, sid))["suspended"]


async def replace_session(client: httpx.AsyncClient, sid: str, tool: str, arguments: dict[str, Any]) -> None:
    """Delete the session and let a new one of the same id ask something else under the same call id."""
    before = (await result(client, sid))["suspended"][0]
    assert (await client.delete(f"/sessions/{sid}")).status_code == 204
    await ask_for(client, sid, tool, arguments)
    after = (await result(client, sid))["suspended"][0]
    assert before["tool_call_id"] == after["tool_call_id"]
    assert before["approval_id"] != after["approval_id"]


async def stop_refreshing(page: Page) -> None:
    """Stop updates from the server, so that the page keeps what it shows."""
    await page.route("**/waiting?*", lambda route: route.abort())


def question(page: Page, sid: str) -> Locator:
    return page.locator("article.asked").filter(has_text=sid)


async def choose(page: Page, mode: str) -> None:
    """Show the arguments in another view. A click during a redraw is lost: click again."""
    button = page.get_by_role("button", name=mode, exact=True)
    for _ in range(10):
        await button.click()
        if await button.get_attribute("aria-pressed") == "true":
            return
    raise AssertionError(f"the arguments are not shown as {mode}")


async def test_a_question_that_was_replaced_is_not_approved_unread(
    page: Page, admin: httpx.AsyncClient, sid: str
) -> None:
    await ask_for(admin, sid, "delete_file", {"path": "harmless.txt"})
    await page.goto("/#/waiting")
    await expect(question(page, sid)).to_contain_text("harmless.txt")
    await stop_refreshing(page)
    await replace_session(admin, sid, "delete_file", {"path": "everything"})
    await question(page, sid).get_by_role("button", name="Approve").click()
    await expect(question(page, sid).get_by_role("alert")).to_contain_text("no longer pending")
    assert (await result(admin, sid))["suspended"][0]["input"] == {"path": "everything"}


async def test_a_question_that_changes_is_drawn_again_in_the_inbox(
    page: Page, admin: httpx.AsyncClient, sid: str
) -> None:
    await ask_for(admin, sid, "delete_file", {"path": "harmless.txt"})
    await page.goto("/#/waiting")
    await expect(question(page, sid)).to_contain_text("harmless.txt")
    await replace_session(admin, sid, "delete_file", {"path": "everything"})
    await expect(question(page, sid)).to_contain_text("everything")
    await expect(question(page, sid)).not_to_contain_text("harmless.txt")
    await question(page, sid).get_by_role("button", name="Approve").click()
    await expect(question(page, sid)).to_have_count(0)
    assert (await result(admin, sid))["output"] == "Done: everything is gone."


async def test_a_question_that_changes_is_drawn_again_in_its_session(
    page: Page, admin: httpx.AsyncClient, sid: str
) -> None:
    await ask_for(admin, sid, "delete_file", {"path": "first.txt"})
    await page.goto(f"/#/s/{sid}")
    await expect(page.locator(".ask")).to_contain_text("first.txt")
    # Go back to before the question, and let the run ask again under the same call id.
    before = (await admin.get(f"/sessions/{sid}/checkpoints")).json()["items"][-1]["checkpoint_id"]
    approval = await page.locator(".ask").get_attribute("data-question")
    assert (await admin.post(f"/sessions/{sid}/restore", json={"checkpoint_id": before})).status_code == 200
    await ask_for(admin, sid, "delete_file", {"path": "second.txt"})
    await expect(page.locator(".ask")).to_contain_text("second.txt")
    await expect(page.locator(".ask")).to_have_count(1)
    assert await page.locator(".ask").get_attribute("data-question") != approval
    await page.get_by_role("button", name="Approve").click()
    await expect(page.get_by_text("Done: second.txt is gone.")).to_be_visible()


@pytest.mark.parametrize(
    ("path", "drawn"),
    [
        ("/tmp/\u202egpj.exe", "/tmp/U+202Egpj.exe"),
        ("a\u200bb\u00adc\u2028d", "aU+200BbU+00ADcU+2028d"),
        ("a\U000e0041\U000e007fb", "aU+E0041U+E007Fb"),
        ("one\rtwo\x1b[2K", "oneU+000DtwoU+001B[2K"),
    ],
    ids=["right to left", "invisible", "tags", "terminal"],
)
async def test_marks_in_arguments_are_shown_and_not_obeyed(
    page: Page, admin: httpx.AsyncClient, sid: str, path: str, drawn: str
) -> None:
    await ask_for(admin, sid, "delete_file", {"path": path})
    await page.goto(f"/#/s/{sid}")
    await expect(page.locator(".ask .argument pre")).to_have_text(drawn)
    await choose(page, "JSON")
    field = page.get_by_label("Arguments as JSON")
    written = await field.input_value()
    assert json.loads(written) == {"path": path}
    assert written.replace("\n", "").isprintable()
    await choose(page, "Edit")
    await expect(page.locator(".ask .preview")).to_have_text(drawn)
    await page.get_by_role("button", name="Approve", exact=True).click()
    await expect(page.locator(".ask")).to_have_count(0)
    stored = (await admin.get(f"/sessions/{sid}/state")).json()["custom_state"]
    assert stored["deleted"] == [path]


async def test_lines_far_below_are_counted_and_shown(page: Page, admin: httpx.AsyncClient, sid: str) -> None:
    await ask_for(admin, sid, "delete_file", {"path": "ls /tmp" + "\n" * 60 + "; rm -rf /" + " " * 400 + "; true"})
    await page.goto(f"/#/s/{sid}")
    argument = page.locator(".ask .argument")
    await expect(argument).to_contain_text("61 lines")
    await expect(argument.locator("pre")).to_contain_text("59 blank lines")
    await expect(argument.locator("pre")).to_contain_text("400 spaces")
    for part in ("ls /tmp", "; rm -rf /", "; true"):
        await expect(argument.get_by_text(part)).to_be_in_viewport()
    await choose(page, "Edit")
    await expect(page.locator(".ask .preview")).to_contain_text("; rm -rf /")


async def test_a_large_integer_is_shown_and_sent_back_exactly(page: Page, admin: httpx.AsyncClient, sid: str) -> None:
    await ask_for(admin, sid, "pay", {"account": LARGE, "note": "rent"})
    await page.goto(f"/#/s/{sid}")
    await expect(page.locator(".ask .argument").first).to_contain_text(str(LARGE))
    await choose(page, "Edit")
    await expect(page.get_by_label("account")).to_have_value(str(LARGE))
    await page.get_by_label("note").fill("rent of May")
    await page.get_by_role("button", name="Approve with 1 change").click()
    await expect(page.get_by_text(f"paid {LARGE} rent of May")).to_be_visible()


async def test_a_large_integer_is_edited_exactly(page: Page, admin: httpx.AsyncClient, sid: str) -> None:
    await ask_for(admin, sid, "pay", {"account": LARGE - 2})
    await page.goto(f"/#/s/{sid}")
    await choose(page, "JSON")
    await page.get_by_label("Arguments as JSON").fill(f'{{"account": -{LARGE}, "note": "int:{LARGE}"}}')
    await page.get_by_role("button", name="Approve with 1 change").click()
    await expect(page.get_by_text(f"paid -{LARGE} int:{LARGE}")).to_be_visible()


async def test_large_integers_are_exact_in_every_panel(page: Page, admin: httpx.AsyncClient, sid: str) -> None:
    await ask_for(admin, sid, "pay", {"account": LARGE})
    await page.goto(f"/#/s/{sid}/chunks")
    await page.locator(".ch .row").filter(has_text="tool_approval_request").click()
    await expect(page.get_by_label("Selected chunk")).to_contain_text(str(LARGE))
    await page.get_by_role("button", name="Approve").click()
    await page.locator("details.call summary").filter(has_text="pay").click()
    await expect(page.locator(".ios")).to_contain_text(str(LARGE))


async def test_who_answered_is_shown(page: Page, visit: Visit, admin: httpx.AsyncClient, sid: str) -> None:
    await execute(admin, "delete a.txt b.txt", sid)
    await page.goto(f"/#/s/{sid}")
    await expect(page.locator(".ask")).to_have_count(2)
    open_questions = page.locator(".ask:not(.answered)")
    for _ in range(10):  # a click during a redraw is lost: click again
        await open_questions.first.get_by_role("button", name="Approve").click()
        with suppress(AssertionError):
            await expect(open_questions).to_have_count(1, timeout=3000)
            break
    await expect(open_questions).to_have_count(1)
    for each in (page, await visit(f"/#/s/{sid}")):
        await expect(each.locator(".call")).to_contain_text("answered by root")


@pytest.mark.parametrize(
    ("press", "typed", "told"),
    [
        ("It happened", "transferred by hand", "transferred by hand"),
        (
            "Nobody knows",
            "The bank is closed.",
            "Error: It is not known whether this call took effect: The bank is closed.",
        ),
    ],
)
async def test_a_person_says_whether_a_call_took_effect(
    page: Page, admin: httpx.AsyncClient, sid: str, press: str, typed: str, told: str
) -> None:
    await execute(admin, 'call transfer {"account": "slow"}', sid)
    assert (await result(admin, sid))["suspended"][0]["kind"] == "outcome"
    await page.goto("/#/waiting")
    asked = question(page, sid)
    await expect(asked).to_contain_text("take effect?")
    await expect(asked).to_contain_text("transfer:slow")
    await expect(asked.get_by_role("button", name="Approve")).to_have_count(0)
    await asked.get_by_label("Result").fill(typed)
    await asked.get_by_role("button", name=press).click()
    await expect(question(page, sid)).to_have_count(0)
    assert (await result(admin, sid))["status"] == "completed"
    messages = (await admin.get(f"/sessions/{sid}/messages")).json()["items"]
    assert [message["content"] for message in messages if message["role"] == "tool"] == [told]
