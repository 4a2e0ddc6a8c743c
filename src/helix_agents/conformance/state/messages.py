"""The conversation: pages, counts, truncation."""

from __future__ import annotations

import asyncio
from typing import Any

from ...stores.state.contract import StateStore
from ...types import Conversation, RunRecord
from ..expect import expect_same, plain
from ..harness import STATE_STORE, Harness
from ..tools.sample import meta, plain_state, user

check = STATE_STORE.check


@check("contract", "messages come in pages, from either end")
async def messages_come_in_pages(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="agent")
    await store.append_messages("a", [user(f"{number}") for number in range(60)])
    cases: list[tuple[dict[str, Any], range, int, bool]] = [
        ({}, range(50), 0, True),
        ({"offset": 10}, range(10, 60), 10, False),
        ({"limit": 60}, range(60), 0, False),
        ({"limit": 59}, range(59), 0, True),
        ({"limit": None}, range(60), 0, False),
        ({"offset": 58, "limit": None}, range(58, 60), 58, False),
        ({"offset": -5, "limit": 3}, range(55, 58), 55, True),
        ({"offset": -5}, range(55, 60), 55, False),
        ({"offset": -100, "limit": 10}, range(10), 0, True),
        ({"offset": 60}, range(0), 60, False),
        ({"offset": 999, "limit": 1}, range(0), 999, False),
        ({"limit": 5000}, range(60), 0, False),
    ]
    for arguments, expected, offset, more in cases:
        page = await store.get_messages("a", **arguments)
        expect_same([item["content"] for item in page.items], [f"{n}" for n in expected], f"messages of {arguments}")
        got = (page.total, page.offset, page.has_more, page.limit)
        expect_same(got, (60, offset, more, arguments.get("limit", 50)), f"the page of {arguments}")


@check("contract", "thinking can be left out of messages")
async def thinking_can_be_left_out(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="agent")
    answer = {"role": "assistant", "content": "a", "thinking": "hm", "native": {"blocks": [{"thinking": "hm"}]}}
    full = [user("q"), {"role": "thinking", "content": "hm"}, answer]
    await store.append_messages("a", full)
    spoken = await store.get_messages("a", include_thinking=False)
    expect_same(spoken.items, [user("q"), {"role": "assistant", "content": "a"}], "messages without thinking")
    expect_same((await store.get_messages("a")).items, full, "messages with thinking")


@check("contract", "one call loads the session, its last messages, its latest run and its latest checkpoint")
async def loaded_together(harness: Harness) -> None:
    store = await harness.open()
    expect_same(await store.load_conversation("a"), None, "the conversation of a missing session")
    await store.create_session("a", agent_type="agent", custom_state={"list": [1, 2], "object": {"b": 1}, "x": "y"})
    expect_same(plain(await store.load_conversation("a", last=0)), await _apart(store, 0), "a new session")
    await store.append_messages("a", [user(f"{number}") for number in range(60)])
    for number in range(3):
        await store.create_run("a", f"run-{number}", lease_until=number)
        done = await store.save_state_and_promote_staging("a", plain_state("a"), [user("said")], meta(number))
        await store.set_interrupt_flag("a", f"reason {number}")
        found = await (await harness.open()).load_conversation("a")
        expect_same(plain(found), await _apart(store, 50), f"the conversation after commit {number}")
        expect_same(found and found.checkpoint and found.checkpoint.checkpoint_id, done.checkpoint_id, "the checkpoint")
    for last in (0, 1, 63, 64, None):
        expect_same(plain(await store.load_conversation("a", last=last)), await _apart(store, last), f"last={last}")
    later = await store.load_conversation("a", offset=61, custom_state=False)
    assert later is not None
    expect_same([len(later.messages), later.message_count], [2, 63], "messages from an offset on")
    expect_same(later.session.custom_state, None, "custom state that was not asked for")


async def _apart(store: StateStore, last: int | None) -> Any:
    """Return what `load_conversation` returns, from separate calls."""
    session, run = await store.load_state("a"), await store.get_current_run("a")
    page = await store.get_messages("a", limit=None)
    listed = (await store.list_checkpoints("a", limit=1)).items
    messages = page.items[len(page.items) - min(len(page.items), last) :] if last is not None else page.items
    assert session is not None
    return plain(Conversation(session, messages, len(page.items), run, listed[0] if listed else None))


@check("contract", "a conversation is read as one snapshot, however many writers there are", kind="tasks")
async def loaded_at_one_moment(harness: Harness) -> None:
    store, other = await harness.open(), await harness.open()
    await store.create_session("a", agent_type="agent", custom_state={"n": [0]})

    async def write() -> None:
        for number in range(1, 20):
            state = plain_state("a", custom_state={"n": [number]})
            run = RunRecord(f"run-{number}", "a", 0)
            await store.save_state_and_promote_staging("a", state, [user(f"{number}")], meta(number), run=run)
            await asyncio.sleep(0)  # a store that never awaits would finish before the first read

    async def read() -> None:
        for _ in range(30):
            found = await other.load_conversation("a", last=1)
            assert found is not None
            number = found.session.version - 1
            text = [message["content"] for message in found.messages]
            at = [found.message_count, found.session.custom_state, text, found.run and found.run.run_id]
            at.append(found.checkpoint and found.checkpoint.step_count)
            whole = [number, {"n": [number]}, [f"{number}"], f"run-{number}", number]
            expect_same(at, whole if number else [0, {"n": [0]}, [], None, None], "what was read")

    await asyncio.gather(write(), read(), read())


@check("contract", "truncating keeps the first messages and returns how many were removed")
async def truncating_keeps_the_first(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="agent")
    await store.append_messages("a", [user(f"{number}") for number in range(10)])
    expect_same(await store.truncate_messages("a", 12), 0, "messages removed, keeping more than there are")
    expect_same(await store.truncate_messages("a", 7), 3, "messages removed")
    expect_same(await store.get_message_count("a"), 7, "the count")
    expect_same(await store.append_messages("a", [user("new")]), 8, "the count after an append")
    texts = [item["content"] for item in (await store.get_messages("a")).items]
    expect_same(texts, [*(f"{number}" for number in range(7)), "new"], "the messages")
    done = await store.save_state_and_promote_staging("a", plain_state("a"), [user("more")], meta())
    expect_same(done.message_count, 9, "the count of a commit after truncating")
    expect_same(await store.truncate_messages("a", 0), 9, "messages removed, keeping none")
    expect_same((await store.get_messages("a")).items, [], "the messages")
