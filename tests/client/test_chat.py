"""The client in a real browser: whatever fails in between, the page ends with exactly the stored conversation."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import FilePayload, Route, expect

from tests.client.conftest import Chat, OpenChat, chat_server
from tests.servers.proxy import Proxy

BITMAP = bytes.fromhex(
    "424d3a000000000000003600000028000000010000000100000001001800000000000400000000000000000000000000000000000000ffffff00"
)
"""A white pixel."""

STORY = " ".join(f"word{number}" for number in range(300))


async def test_a_conversation_of_several_turns(open_chat: OpenChat) -> None:
    chat = await open_chat()
    for text, answer in (("hello", "You said: hello"), ("note milk", "Done: noted milk"), ("bye", "You said: bye")):
        await chat.say(text)
        await expect(chat.page.get_by_text(answer, exact=True)).to_be_visible()
        await chat.rests()
        await chat.shows_what_is_stored()
    assert [message["role"] for message in await chat.told()].count("user") == 3


async def test_a_reload_in_the_middle_of_an_answer(open_chat: OpenChat) -> None:
    chat = await open_chat()
    await chat.say("story")
    await expect(chat.page.get_by_text("word20 ")).to_be_visible()
    await chat.page.reload()
    await chat.watch(STORY)
    await expect(chat.page.get_by_text("word40 ")).to_be_visible()
    await chat.rests()
    await chat.was_never_odd()
    await chat.shows_what_is_stored()
    assert (await chat.told())[-1]["text"] == STORY


async def test_cut_connections(open_chat: OpenChat, line: Proxy) -> None:
    chat = await open_chat()
    await chat.watch(STORY)
    await chat.say("story")
    await expect(chat.page.get_by_text("word10 ")).to_be_visible()
    line.cut()
    await expect(chat.page.get_by_text("word40 ")).to_be_visible()
    line.cut(refuse=True)
    await expect(chat.page.get_by_text("Connection lost")).to_be_visible()
    line.heal()
    await chat.rests()
    await chat.was_never_odd()
    await chat.shows_what_is_stored()
    assert (await chat.told())[-1]["text"] == STORY


@pytest.mark.parametrize("arrives", [True, False], ids=["its response is lost", "its request is lost"])
async def test_a_message_is_said_once_although(open_chat: OpenChat, arrives: bool) -> None:
    chat = await open_chat()

    async def lose(route: Route) -> None:
        if arrives:
            await route.fetch()
        await route.abort()

    await chat.page.route("**/execute", lose, times=1)
    await chat.say("hello")
    await chat.rests()
    await chat.shows_what_is_stored()
    assert [message["text"] for message in await chat.told()] == ["hello", "You said: hello"]


async def test_kill_9_of_the_server(open_chat: OpenChat, tmp_path: Path) -> None:
    with chat_server(tmp_path) as first:
        async with Proxy(first.port) as proxy:
            chat = await open_chat(port=proxy.port)
            await chat.watch(STORY)
            await chat.say("story")
            await expect(chat.page.get_by_text("word20 ")).to_be_visible()
            first.kill()
            await expect(chat.page.get_by_text("Connection lost")).to_be_visible()
            with chat_server(tmp_path) as second:
                proxy.target_port = second.port
                await chat.rests()
                await chat.was_never_odd()
                await chat.shows_what_is_stored()
                assert (await chat.told())[-1]["text"] == STORY


async def test_kill_9_of_the_server_while_an_answer_is_regenerated(open_chat: OpenChat, tmp_path: Path) -> None:
    with chat_server(tmp_path) as first:
        async with Proxy(first.port) as proxy:
            chat = await open_chat(port=proxy.port)
            await chat.say("story")
            await chat.rests()
            await chat.watch(STORY)
            await chat.page.get_by_role("button", name="Again").click()
            await chat.rests("active")
            await expect(chat.page.get_by_text("word299")).to_have_count(0)
            await expect(chat.page.get_by_text("word20 ")).to_be_visible()
            first.kill()
            await expect(chat.page.get_by_text("Connection lost")).to_be_visible()
            with chat_server(tmp_path) as second:
                proxy.target_port = second.port
                await chat.rests()
                await chat.was_never_odd()
                await chat.shows_what_is_stored()
                await expect(chat.page.locator(".ways")).to_have_text(["2/2"])
                await chat.page.get_by_role("button", name="‹").click()
                await expect(chat.page.locator(".ways")).to_have_text(["1/2"])
                await chat.shows_what_is_stored()
                assert (await chat.told())[-1]["text"] == STORY


async def test_a_branch_is_left_and_comes_back_while_it_waits_for_an_approval(open_chat: OpenChat) -> None:
    chat = await open_chat()
    await chat.say("note a secret")
    await chat.rests("suspended_client_tool")
    other = await open_chat(chat.session_id)
    await edit(chat, "note a secret", "note another secret")
    for tab in (chat, other):
        await expect(tab.page.locator(".question")).to_contain_text('"another secret"')
        await expect(tab.page.locator(".ways")).to_have_text(["2/2"])
        await tab.shows_what_is_stored()
    await other.page.get_by_role("button", name="‹").click()
    await chat.page.reload()
    for tab in (chat, other):
        await expect(tab.page.locator(".question")).to_have_count(1)
        await expect(tab.page.locator(".question")).to_contain_text('"a secret"')
        await tab.shows_what_is_stored()
    await other.page.get_by_role("button", name="Approve").click()
    for tab in (chat, other):
        await expect(tab.page.get_by_text("Done: noted a secret")).to_be_visible()
        await tab.rests()
        await tab.shows_what_is_stored()
    await chat.page.get_by_role("button", name="›").click()
    for tab in (chat, other):
        await expect(tab.page.locator(".question")).to_contain_text('"another secret"')
        await tab.rests("suspended_client_tool")
        await tab.shows_what_is_stored()
    await chat.page.get_by_role("button", name="Reject").click()
    for tab in (chat, other):
        await tab.rests()
        await expect(tab.page.locator(".question")).to_have_count(0)
        await tab.shows_what_is_stored()


async def test_an_approval_that_waits_across_a_reload(open_chat: OpenChat) -> None:
    chat = await open_chat()
    await chat.say("note a secret")
    await chat.rests("suspended_client_tool")
    await expect(chat.page.locator(".question")).to_contain_text('"a secret"')
    await chat.page.reload()
    await chat.rests("suspended_client_tool")
    await expect(chat.page.locator(".question")).to_have_count(1)
    await chat.shows_what_is_stored()
    await chat.page.get_by_role("button", name="Approve").click()
    await expect(chat.page.locator(".question")).to_have_count(0)
    await chat.rests()
    await chat.shows_what_is_stored()
    assert (await chat.told())[-1]["text"] == "Done: noted a secret"


async def test_two_tabs(open_chat: OpenChat) -> None:
    first = await open_chat()
    await first.say("hello")
    await first.rests()
    second = await open_chat(first.session_id)
    await second.say("story")
    for chat in (first, second):
        await expect(chat.page.get_by_text("word30 ")).to_be_visible()
    for chat in (first, second):
        await chat.rests()
        await chat.shows_what_is_stored()
    await first.say("note a secret")
    await second.page.get_by_role("button", name="Approve").click()
    for chat in (first, second):
        await expect(chat.page.get_by_text("Done: noted a secret")).to_be_visible()
        await chat.rests()
        await expect(chat.page.locator(".question")).to_have_count(0)
        await chat.shows_what_is_stored()


async def test_a_second_tab_shows_the_question_before_the_answer(open_chat: OpenChat) -> None:
    first = await open_chat()
    await first.say("hello")
    await first.rests()
    second = await open_chat(first.session_id)
    await second.rests()
    await first.say("story")
    await expect(second.page.locator("article[data-role=user]").last).to_contain_text("story")
    await expect(second.page.get_by_text("word5 ")).to_be_visible()
    assert [message["text"] for message in await second.told()][:3] == ["hello", "You said: hello", "story"]
    for chat in (first, second):
        await chat.rests()
        await chat.shows_what_is_stored()


async def test_edit_regenerate_and_go_back(open_chat: OpenChat) -> None:
    chat = await open_chat()
    for text in ("note milk", "hello"):
        await chat.say(text)
        await expect(chat.page.get_by_text(text, exact=True)).to_be_visible()
        await chat.rests()
    other = await open_chat(chat.session_id)
    await edit(chat, "note milk", "note bread")
    for tab in (chat, other):
        await expect(tab.page.get_by_text("Done: noted bread")).to_be_visible()
        await tab.rests()
        await tab.shows_what_is_stored()
        await expect(tab.page.locator(".ways")).to_have_text(["2/2"])
    await chat.page.get_by_role("button", name="Again").last.click()
    await expect(chat.page.locator(".ways")).to_have_text(["2/2", "2/2"])
    await chat.shows_what_is_stored()
    await other.page.get_by_role("button", name="‹").first.click()
    for tab in (chat, other):
        await expect(tab.page.locator(".ways")).to_have_text(["1/2"])
        await tab.rests()
        await tab.shows_what_is_stored()
    assert [message["text"] for message in await chat.told()][-2:] == ["hello", "You said: hello"]
    await edit(other, "hello", "bye")
    for tab in (chat, other):
        await expect(tab.page.get_by_text("You said: bye")).to_be_visible()
        await tab.rests()
        await tab.shows_what_is_stored()


async def edit(chat: Chat, text: str, content: str) -> None:
    """Edit the user's message."""
    chat.page.once("dialog", lambda dialog: dialog.accept(content))
    asked = chat.page.locator("article[data-role=user]").filter(has_text=text)
    await asked.get_by_role("button", name="Edit").click()


async def test_a_reload_in_the_middle_of_a_regenerated_answer(open_chat: OpenChat) -> None:
    chat = await open_chat()
    await chat.say("story")
    await chat.rests()
    await chat.page.get_by_role("button", name="Again").click()
    await chat.rests("active")
    await chat.page.reload()
    await chat.rests()
    await chat.shows_what_is_stored()
    await expect(chat.page.locator(".ways")).to_have_text(["2/2"])


async def test_a_file_is_sent_and_kept(open_chat: OpenChat) -> None:
    chat = await open_chat()
    await chat.page.locator("#file").set_input_files({"name": "a.txt", "mimeType": "text/plain", "buffer": b"hello"})
    await chat.say("look")
    await expect(chat.page.get_by_text("You sent: a.txt", exact=True)).to_be_visible()
    await chat.rests()
    await chat.shows_what_is_stored()
    asked = (await chat.client.get(f"/sessions/{chat.session_id}/messages")).json()["items"][0]
    part = {"type": "file", "media_type": "text/plain", "name": "a.txt", "data": "aGVsbG8="}
    assert asked["content"] == [{"type": "text", "text": "look"}, part]


@pytest.mark.parametrize("size", [0, 100_000], ids=["in the message", "beside the conversation"])
async def test_an_image_is_drawn_and_stays_when_its_message_is_edited(open_chat: OpenChat, size: int) -> None:
    chat = await open_chat()
    image: FilePayload = {"name": "a.bmp", "mimeType": "image/bmp", "buffer": BITMAP + bytes(size)}
    await chat.page.locator("#file").set_input_files(image)
    await chat.say("look")
    await expect(chat.page.get_by_text("You sent: a.bmp", exact=True)).to_be_visible()
    await edit(chat, "look", "look again")
    await expect(chat.page.get_by_text("look again [a.bmp]", exact=True)).to_be_visible()
    await expect(chat.page.get_by_text("You sent: a.bmp", exact=True)).to_be_visible()
    await chat.rests()
    await chat.shows_what_is_stored()
    (drawn,) = await chat.page.locator("article[data-role=user] img").all()
    await expect(drawn).to_have_js_property("naturalWidth", 1)
    (asked, _) = (await chat.client.get(f"/sessions/{chat.session_id}/messages")).json()["items"]
    assert ("blob" in asked["content"][1]) == bool(size)


async def test_a_run_is_stopped_and_the_conversation_goes_on(open_chat: OpenChat) -> None:
    chat = await open_chat()
    await chat.say("story")
    await expect(chat.page.get_by_text("word10 ")).to_be_visible()
    await chat.page.get_by_role("button", name="Stop").click()
    await chat.rests("interrupted")
    await chat.shows_what_is_stored()
    await chat.say("hello")
    await chat.rests()
    await chat.shows_what_is_stored()
    assert (await chat.told())[-1]["text"] == "You said: hello"


async def test_another_user_sees_nothing_of_it(open_chat: OpenChat) -> None:
    ann = await open_chat()
    await ann.say("hello")
    await ann.rests()
    bob = await open_chat(ann.session_id, token="bob-token")
    await bob.rests("new")
    assert await bob.told() == []
