"""The conversation: pages, counting, cutting."""

from __future__ import annotations

from typing import Any

from ..expect import expect_same
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


@check("contract", "truncating keeps the first messages and says how many went")
async def truncating_keeps_the_first(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="agent")
    await store.append_messages("a", [user(f"{number}") for number in range(10)])
    expect_same(await store.truncate_messages("a", 12), 0, "messages that went, keeping more than there are")
    expect_same(await store.truncate_messages("a", 7), 3, "messages that went")
    expect_same(await store.get_message_count("a"), 7, "the count")
    expect_same(await store.append_messages("a", [user("new")]), 8, "the count after an append")
    texts = [item["content"] for item in (await store.get_messages("a")).items]
    expect_same(texts, [*(f"{number}" for number in range(7)), "new"], "the messages")
    done = await store.save_state_and_promote_staging("a", plain_state("a"), [user("more")], meta())
    expect_same(done.message_count, 9, "the count of a commit after truncating")
    expect_same(await store.truncate_messages("a", 0), 9, "messages that went, keeping none")
    expect_same((await store.get_messages("a")).items, [], "the messages")
