"""`/client.js` by itself, in a real browser against the server of the tests."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections.abc import Awaitable, Callable, MutableMapping, MutableSequence
from typing import Any

import httpx
import pytest
from playwright.async_api import Page, Route

from helix_agents.backends.registry import Stores
from helix_agents.state import StateTracker, apply_patch
from tests.client.conftest import PATIENCE_SECONDS
from tests.inspector.conftest import Visit
from tests.server.running import execute, result
from tests.server.test_questions import come_back_with_branch, come_back_with_checkpoint

OPEN = """async ([id, token]) => {
  const { Helix } = await import("/client.js");
  window.chat = new Helix({ token }).open(id, { agent: "manager" });
  window.views = [];
  window.chat.subscribe((view) => window.views.push(view));
}"""


async def follow(page: Page, sid: str, token: str = "admin-token") -> None:
    """Let the page follow a conversation as `chat`."""
    await page.evaluate(OPEN, [sid, token])


async def until(page: Page, condition: str) -> None:
    """Wait until this is true for the view `v`."""
    await page.wait_for_function(f"() => {{ const v = chat.view; return {condition}; }}")


async def shows_what_is_stored(page: Page, client: httpx.AsyncClient, sid: str) -> None:
    """Compare the view with what is stored, after it has loaded that: chunks alone may look the same."""
    await result(client, sid)
    session = (await client.get(f"/sessions/{sid}")).json()
    stored = (await client.get(f"/sessions/{sid}/messages", params={"limit": 1000})).json()["items"]
    await until(page, f"v.session?.version >= {session['version']} && v.messages.length === {len(stored)}")
    assert await page.evaluate("chat.view.status") == session["status"]
    assert await page.evaluate("chat.view.messages") == stored
    assert await page.evaluate("chat.view.state") == session["custom_state"]


async def test_a_session_that_does_not_exist_yet_is_new_until_something_is_said(
    page: Page, admin: httpx.AsyncClient, sid: str
) -> None:
    await follow(page, sid)
    await until(page, "v.link === 'new' && v.status === 'new' && v.messages.length === 0")
    await page.evaluate("chat.send('search ants')")
    await until(page, "v.status === 'completed'")
    await shows_what_is_stored(page, admin, sid)
    assert await page.evaluate("chat.view.state") == {"searches": ["ants"]}


async def test_a_conversation_without_an_id_gets_one_that_nobody_can_guess(page: Page) -> None:
    ids = await page.evaluate(
        "import('/client.js').then(({Helix}) => [1, 2].map(() => new Helix({token: 'admin-token'}).open().id))"
    )
    assert all(len(each) >= 32 for each in ids)
    assert len(set(ids)) == 2


async def test_state_starts_with_the_agent_s_own(page: Page, admin: httpx.AsyncClient, sid: str) -> None:
    await execute(admin, "search ants", sid, agent_type="assistant")
    await follow(page, sid)
    await until(page, "v.status === 'completed'")
    assert await page.evaluate("chat.view.state") == {"searches": ["ants"], "deleted": []}
    states = await page.evaluate("views.map((view) => JSON.stringify(view.state))")
    known = [{}, {"searches": [], "deleted": []}, {"searches": ["ants"], "deleted": []}]
    assert all(json.loads(each) in known for each in states)


async def test_text_grows_and_never_shrinks(page: Page, admin: httpx.AsyncClient, sid: str) -> None:
    await follow(page, sid)
    await page.evaluate("chat.send('talk 60')")
    await until(page, "v.status === 'completed'")
    texts = await page.evaluate(
        "views.map((view) => view.messages.at(-1)).filter((m) => m?.role === 'assistant').map((m) => m.content)"
    )
    assert len(set(texts)) > 5
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(texts))
    assert all(len(each) <= 2 for each in await page.evaluate("views.map((view) => view.messages)"))


async def test_a_question_of_a_sub_agent_is_answered(page: Page, admin: httpx.AsyncClient, sid: str) -> None:
    await follow(page, sid)
    await page.evaluate("chat.send('tell delete notes.txt')")
    await until(page, "v.questions.length === 1 && v.status.startsWith('suspended')")
    await follow(page, sid)  # as after a reload
    await until(page, "v.questions.length === 1")
    assert await page.evaluate("chat.view.questions[0].input") == {"path": "notes.txt"}
    assert (await page.evaluate("chat.answer(chat.view.questions[0], {approved: true})"))["receipt"] == "accepted"
    await until(page, "v.status === 'completed' && v.questions.length === 0")
    await shows_what_is_stored(page, admin, sid)


async def test_questions_are_answered_one_by_one_and_with_changes(
    page: Page, admin: httpx.AsyncClient, sid: str
) -> None:
    await execute(admin, "delete a.txt b.txt", sid)
    await result(admin, sid)
    await follow(page, sid)
    await until(page, "v.questions.length === 2")
    await page.evaluate("chat.answer(chat.view.questions[0], {approved: true, arguments: {path: 'c.txt'}})")
    await until(page, "v.questions.length === 1 && v.status === 'suspended_client_tool'")
    assert await page.evaluate("chat.view.questions[0].input") == {"path": "b.txt"}
    await page.evaluate("chat.answer(chat.view.questions[0], {approved: false, reason: 'needed'})")
    await until(page, "v.status === 'completed' && v.questions.length === 0")
    await shows_what_is_stored(page, admin, sid)
    assert (await admin.get(f"/sessions/{sid}/state")).json()["custom_state"] == {"deleted": ["c.txt"]}


async def test_an_approval_of_a_question_that_was_replaced_is_rejected(
    page: Page, admin: httpx.AsyncClient, sid: str
) -> None:
    await execute(admin, "delete harmless.txt", sid)
    await result(admin, sid)
    await follow(page, sid)
    await until(page, "v.questions.length === 1")
    await page.evaluate("window.old = chat.view.questions[0]")
    await admin.delete(f"/sessions/{sid}")
    await until(page, "v.link === 'gone'")
    await execute(admin, "delete everything", sid)
    await result(admin, sid)
    problem = await page.evaluate("chat.answer(old, {approved: true}).then(() => 'approved', (error) => error.code)")
    assert problem == "invalid_argument"
    assert (await result(admin, sid))["suspended"][0]["input"] == {"path": "everything"}


@pytest.mark.parametrize("way", [come_back_with_branch, come_back_with_checkpoint])
async def test_a_question_that_comes_back_is_shown_once_and_answered(
    page: Page, admin: httpx.AsyncClient, sid: str, way: Callable[[httpx.AsyncClient, str], Awaitable[None]]
) -> None:
    await execute(admin, "delete a.txt", sid)
    (asked,) = (await result(admin, sid))["suspended"]
    await way(admin, sid)
    await follow(page, sid)
    await until(page, f"v.questions[0]?.approval_id === '{asked['approval_id']}' && v.messages.length === 2")
    await page.evaluate("chat.answer(chat.view.questions[0], {approved: false})")
    await until(page, "v.status === 'completed' && v.questions.length === 0")
    await shows_what_is_stored(page, admin, sid)


async def test_a_restored_session_is_shown_as_it_is_now(page: Page, admin: httpx.AsyncClient, sid: str) -> None:
    for word in ("ants", "bees"):
        await execute(admin, f"search {word}", sid)
        await result(admin, sid)
    await follow(page, sid)
    await until(page, "v.messages.length === 8")
    point = (await admin.get(f"/sessions/{sid}/checkpoints")).json()["items"][2]
    await admin.post(f"/sessions/{sid}/restore", json={"checkpoint_id": point["checkpoint_id"]})
    await page.evaluate("chat.refresh()")
    await until(page, f"v.messages.length === {point['message_count']}")
    await shows_what_is_stored(page, admin, sid)
    await page.evaluate("chat.send('hello')")
    await until(page, "v.status === 'completed'")
    await shows_what_is_stored(page, admin, sid)


async def test_a_failed_turn_says_why_and_the_next_one_is_followed(
    page: Page, admin: httpx.AsyncClient, sid: str
) -> None:
    await follow(page, sid)
    await page.evaluate("chat.send('talk x')")
    await until(page, "v.status === 'failed' && v.session.error")
    assert (await page.evaluate("chat.retry()"))["session_id"] == sid
    assert (await result(admin, sid))["status"] == "failed"
    await page.evaluate("chat.send('hello')")
    await until(page, "v.status === 'completed' && v.messages.at(-1).content === 'You said: hello'")
    await shows_what_is_stored(page, admin, sid)


async def test_a_busy_session_rejects_a_message_with_a_reason(page: Page, admin: httpx.AsyncClient, sid: str) -> None:
    await follow(page, sid)
    await page.evaluate("chat.send('nap 2')")
    assert await page.evaluate("chat.send('hello').then(() => '', (error) => error.code)") == "already_running"


async def test_a_stream_that_lost_our_place_is_read_again(page: Page, admin: httpx.AsyncClient, sid: str) -> None:
    async def refuse(route: Route) -> None:
        await route.fulfill(status=410, json={"code": "stream_truncated", "first_sequence": 1})

    await execute(admin, "hello", sid)
    await result(admin, sid)
    await page.route("**/stream/**", refuse, times=1)
    await follow(page, sid)
    await until(page, "v.link === 'live'")
    await page.evaluate("chat.send('search ants')")
    await until(page, "v.status === 'completed' && v.messages.length === 6")
    await shows_what_is_stored(page, admin, sid)


async def test_chunks_that_a_snapshot_covers_are_not_shown_again(
    page: Page, admin: httpx.AsyncClient, sid: str
) -> None:
    held: list[Route] = []

    async def hold(route: Route) -> None:
        held.append(route)

    await page.route("**/stream/**", hold, times=1)
    await execute(admin, "talk 30", sid)
    await follow(page, sid)
    await until(page, "v.messages.length === 1")  # the question; the stream after it is slow
    await result(admin, sid)
    await page.evaluate("chat.refresh()")
    await until(page, "v.messages.length === 2")
    await held[0].continue_()
    await until(page, "v.link === 'live' && v.status === 'completed'")
    await page.evaluate("chat.send('hello')")
    await until(page, "v.messages.length === 4 && v.status === 'completed'")
    assert await page.evaluate("Math.max(...views.map((view) => view.messages.length))") == 4
    texts = await page.evaluate("views.map((view) => view.messages.map((each) => each.content).join())")
    assert not any(text.count("word0 ") > 1 for text in texts)


async def test_an_event_source_stops_after_the_end(page: Page, admin: httpx.AsyncClient, sid: str) -> None:
    await execute(admin, "hello", sid)
    await result(admin, sid)
    async with asyncio.timeout(PATIENCE_SECONDS):
        opened = await page.evaluate(
            """(id) => new Promise((resolve) => {
              const source = new EventSource(`/stream/${id}?access_token=admin-token`);
              let opened = 0;
              source.addEventListener("open", (event) => { opened += Number(event.data !== undefined); });
              source.addEventListener("error", () => { if (source.readyState === 2) resolve(opened); }); // closed
            })""",
            sid,
        )
    assert opened == 1


async def test_a_token_that_is_not_accepted_is_a_problem(visit: Visit, admin: httpx.AsyncClient, sid: str) -> None:
    await execute(admin, "hello", sid)
    page = await visit("/")
    await follow(page, sid, "wrong")
    await until(page, "v.link.status === 401")
    await follow(page, sid, "alice-token")  # another user's session does not exist
    await until(page, "v.link === 'new'")


@pytest.mark.parametrize("is_stored", [True, False])
async def test_a_user_message_in_the_stream_is_shown_once(
    page: Page, stores: Stores, sid: str, *, is_stored: bool
) -> None:
    message = {"role": "user", "id": "m1", "content": "Hello"}
    await stores.state.create_session(sid, agent_type="manager", messages=[message] if is_stored else [])
    await follow(page, sid)
    await until(page, "v.link === 'live'")
    async with await stores.streams.create_writer(sid, "run", "manager") as writer:
        for chunk in ({"type": "user_message", "message": message}, {"type": "text_delta", "delta": "Hi"}):
            await writer.write({**chunk, "step": 1, "agent_id": "run", "agent_type": "manager", "timestamp": 1})
    await until(page, "v.messages.length === 2")
    told = await page.evaluate("chat.view.messages.map((each) => each.content)")
    assert told == ["Hello", "Hi"]
    assert await page.evaluate("views.every((view) => view.messages.filter((m) => m.id === 'm1').length <= 1)")


def random_value(chooser: random.Random, depth: int = 0) -> Any:
    kind = chooser.randrange(5 if depth < 3 else 3)
    if kind == 3:
        return [random_value(chooser, depth + 1) for _ in range(chooser.randrange(4))]
    if kind == 4:
        keys = ["a", "b/c", "d~e", "", "__proto__", "0", "é"]
        return {key: random_value(chooser, depth + 1) for key in chooser.sample(keys, chooser.randrange(5))}
    return chooser.choice([None, True, 1, 2.5, "text", "\u2028"])


def change(chooser: random.Random, draft: Any) -> None:
    """Change one value of a draft."""
    while True:
        is_list = isinstance(draft, MutableSequence)
        keys = list(range(len(draft))) if is_list else list(draft)
        branches = [key for key in keys if isinstance(draft[key], MutableSequence | MutableMapping)]
        if branches and chooser.random() < 0.6:
            draft = draft[chooser.choice(branches)]
            continue
        if is_list:
            act = chooser.choice(["append", "insert", "pop"])
            if act == "append" or not draft:
                draft.append(random_value(chooser, 2))
            elif act == "insert":
                draft.insert(chooser.randrange(len(draft)), random_value(chooser, 2))
            else:
                draft.pop(chooser.randrange(len(draft)))
        elif keys and chooser.random() < 0.4:
            del draft[chooser.choice(keys)]
        else:
            draft[chooser.choice(["a", "b/c", "__proto__", "new"])] = random_value(chooser, 2)
        return


async def test_patches_are_applied_as_the_library_applies_them(page: Page) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chooser = random.Random(seed)
    cases = []
    for _ in range(200):
        start = {"a": random_value(chooser), "b": random_value(chooser), "list": [random_value(chooser)]}
        tracker = StateTracker(start)
        for _ in range(chooser.randrange(1, 6)):
            tracker.update(lambda draft: change(chooser, draft))
        patches = tracker.get_rfc6902_patches()
        cases.append((start, patches, apply_patch(start, patches)))
    found = await page.evaluate(
        """async (cases) => {
          const { applyPatch } = await import("/client.js");
          return cases.map(([start, patches]) => JSON.stringify(applyPatch(JSON.parse(start), JSON.parse(patches))));
        }""",
        [[json.dumps(start), json.dumps(patches)] for start, patches, _ in cases],
    )
    for (_, _, expected), text in zip(cases, found, strict=True):
        assert json.loads(text) == json.loads(json.dumps(expected))
