"""S11: sessions are found by filters, in order, page by page."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, get_args

import msgspec

from ...errors import InvalidArgument
from ...stores.state.contract import StateStore
from ...types import Page, SessionState, SessionStatus
from ..expect import expect, expect_same, raises
from ..harness import STATE_STORE, Harness

check = STATE_STORE.check


async def _ids(store: StateStore, **filters: Any) -> list[str]:
    """Return everything that a filter finds, by cursor in small pages; offset pages must agree."""
    by_cursor = await _walk(store, filters, by_cursor=True)
    by_offset = await _walk(store, filters, by_cursor=False)
    expect_same(by_offset, by_cursor, f"offset pages compared with cursor pages for {filters}")
    whole = await store.list_sessions(**filters, limit=200)
    expect_same([it.session_id for it in whole.items], by_cursor, f"one page compared with many for {filters}")
    expect_same(whole.total, len(by_cursor), f"the total for {filters}")
    return by_cursor


async def _walk(store: StateStore, filters: dict[str, Any], *, by_cursor: bool, limit: int = 7) -> list[str]:
    found: list[str] = []
    cursor: str | None = None
    for _ in range(100):
        place: dict[str, Any] = {"cursor": cursor} if by_cursor else {"offset": len(found)}
        page = await store.list_sessions(**filters, limit=limit, count=not by_cursor, **place)
        found += [it.session_id for it in page.items]
        expect(len(page.items) <= limit, "a page holds more than its limit")
        if not page.has_more:
            return found
        expect_same(len(page.items), limit, "items of a page that is not the last")
        cursor = page.next_cursor
        expect(cursor or not by_cursor, "a page that is not the last has no cursor")
    raise AssertionError("the pages never end")


async def _crowd(store: StateStore) -> list[SessionState]:
    """Create sessions of all kinds, concurrently so that many share a timestamp."""

    async def make(number: int) -> SessionState:
        made = await store.create_session(
            f"s{number:02}",
            agent_type=f"agent-{number % 2}",
            custom_state={"n": number},
            user_id=f"user-{number % 3}" if number % 4 else None,
            parent_session_id=f"s{number - 1:02}" if number % 5 == 0 and number else None,
            tags=[name for name, every in (("even", 2), ("three", 3), ("x,y", 5)) if number % every == 0],
            metadata={"mod": str(number % 4), "odd %'\"": str(number % 2)},
            expires_at=1000 + number if number % 3 else None,
        )
        if number % 7 == 0:
            await store.update_status(made.session_id, "completed")
        if number % 7 == 1:
            await store.update_status(made.session_id, "failed")
        state = await store.load_state(made.session_id)
        assert state is not None
        return state

    made = await asyncio.gather(*(make(number) for number in range(40)))
    return sorted(made, key=lambda it: (it.created_at, it.session_id), reverse=True)


@check("S11", "sessions come newest first, ties by id, in cursor and offset pages alike")
async def newest_first(harness: Harness) -> None:
    store = await harness.open()
    crowd = await _crowd(store)
    expect_same(await _ids(store), [it.session_id for it in crowd], "the order")


@check("S11", "listed sessions have every field except custom state")
async def listed_sessions_are_complete(harness: Harness) -> None:
    store = await harness.open()
    crowd = await _crowd(store)
    page = await store.list_sessions(limit=200)
    for listed, loaded in zip(page.items, crowd, strict=True):
        expect(listed.custom_state is None, "a listed session carries custom state")
        fields = {name for name in loaded.__struct_fields__ if name != "custom_state"}
        got, expected = ({name: getattr(it, name) for name in fields} for it in (listed, loaded))
        expect_same(got, expected, "a listed session")


@check("S11", "every filter finds exactly what matches, alone and combined")
async def filters_combine(harness: Harness) -> None:
    store = await harness.open()
    crowd = await _crowd(store)
    middle = crowd[20].created_at
    cases: list[tuple[dict[str, Any], Callable[[SessionState], bool]]] = [
        ({"user_id": "user-1"}, lambda it: it.user_id == "user-1"),
        ({"user_id": "nobody"}, lambda it: False),
        ({"agent_type": "agent-1"}, lambda it: it.agent_type == "agent-1"),
        ({"status": "completed"}, lambda it: it.status == "completed"),
        ({"status": ["completed", "failed"]}, lambda it: it.status in ("completed", "failed")),
        ({"status": ("paused",)}, lambda it: False),
        ({"parent_session_id": None}, lambda it: it.parent_session_id is None),
        ({"parent_session_id": "s09"}, lambda it: it.parent_session_id == "s09"),
        ({"tags": ["even"]}, lambda it: "even" in it.tags),
        ({"tags": ["even", "x,y"]}, lambda it: {"even", "x,y"} <= set(it.tags)),
        ({"tags": ["eve"]}, lambda it: False),
        ({"tags": ["EVEN"]}, lambda it: False),
        ({"metadata": {"mod": "3"}}, lambda it: it.metadata["mod"] == "3"),
        ({"metadata": {"mod": "1", "odd %'\"": "1"}}, lambda it: it.metadata["mod"] == "1"),
        ({"metadata": {"mod": "1", "odd %'\"": "0"}}, lambda it: False),
        ({"metadata": {"absent": "1"}}, lambda it: False),
        ({"created_from": middle}, lambda it: it.created_at >= middle),
        ({"created_to": middle}, lambda it: it.created_at < middle),
        ({"created_from": middle, "created_to": middle + 1}, lambda it: it.created_at == middle),
        ({"expires_before": 1020}, lambda it: it.expires_at is not None and it.expires_at < 1020),
        (
            {"user_id": "user-2", "agent_type": "agent-0", "tags": ["even"], "metadata": {"mod": "2"}},
            lambda it: it.user_id == "user-2" and it.agent_type == "agent-0" and it.metadata["mod"] == "2",
        ),
        (
            {"status": ["active"], "parent_session_id": None, "expires_before": 1030, "user_id": "user-1"},
            lambda it: (
                it.status == "active"
                and it.parent_session_id is None
                and it.user_id == "user-1"
                and it.expires_at is not None
                and it.expires_at < 1030
            ),
        ),
    ]
    for filters, fits in cases:
        expected = [it.session_id for it in crowd if fits(it)]
        expect_same(await _ids(store, **filters), expected, f"sessions found by {filters}")


@check("S11", "a page has its start, whether more follows, and on request the total")
async def page_tells_its_place(harness: Harness) -> None:
    store = await harness.open()
    await _crowd(store)
    cases: list[tuple[dict[str, Any], tuple[int, bool]]] = [
        ({"limit": 40}, (40, False)),
        ({"limit": 39}, (39, True)),
        ({"limit": 10, "offset": 30}, (10, False)),
        ({"limit": 10, "offset": 29}, (10, True)),
        ({"limit": 1, "offset": 39}, (1, False)),
        ({"limit": 10, "offset": 40}, (0, False)),
        ({"limit": 10, "offset": 4000}, (0, False)),
    ]
    for arguments, expected in cases:
        counted: Page[SessionState] = await store.list_sessions(**arguments)
        uncounted: Page[SessionState] = await store.list_sessions(**arguments, count=False)
        for page, total in ((counted, 40), (uncounted, None)):
            expect_same((len(page.items), page.has_more), expected, f"items and has_more of {arguments}")
            expect_same(page.total, total, f"the total of {arguments}")
            place = (page.limit, page.offset)
            expect_same(place, (arguments["limit"], arguments.get("offset", 0)), f"the position of {arguments}")
    first = await store.list_sessions(limit=10)
    second = await store.list_sessions(limit=10, cursor=first.next_cursor)
    expect_same(second.total, 40, "the total on a second page")


@check("S11", "a cursor stays valid while sessions are created and deleted")
async def cursor_is_stable(harness: Harness) -> None:
    store = await harness.open()
    crowd = [it.session_id for it in await _crowd(store)]
    page = await store.list_sessions(limit=10)
    seen = [it.session_id for it in page.items]
    number = 0
    while page.has_more:
        await store.create_session(f"new-{number}", agent_type="agent")
        if number == 0:
            await store.delete_session(seen[-1])  # Exactly the session that the cursor points at.
        number += 1
        page = await store.list_sessions(limit=10, cursor=page.next_cursor)
        seen += [it.session_id for it in page.items]
    # One created in the same millisecond may appear among them.
    old = [name for name in seen if not name.startswith("new-")]
    expect_same(old, crowd, "the sessions that existed from the start")


@check("S11", "filters see later changes")
async def filters_follow_changes(harness: Harness) -> None:
    store = await harness.open()
    made = await store.create_session("a", agent_type="agent", user_id="u", tags=["old"], metadata={"k": "old"})
    expect_same(
        await _ids(store, tags=["old"], metadata={"k": "old"}, user_id="u"), ["a"], "sessions before the change"
    )
    changed: dict[str, Any] = {
        "tags": ("new", "more"),
        "metadata": {"k": "new"},
        "expires_at": 5,
        "status": "paused",
    }
    await store.save_state("a", msgspec.structs.replace(made, **changed))
    for filters in ({"tags": ["old"]}, {"metadata": {"k": "old"}}, {"status": "active"}):
        expect_same(await _ids(store, **filters), [], f"sessions found by the old {filters}")
    filters_now = {"tags": ["more", "new"], "metadata": {"k": "new"}, "user_id": "u", "status": "paused"}
    expect_same(await _ids(store, **filters_now, expires_before=6), ["a"], "sessions found by the new values")


@check("S11", "sessions are counted by status")
async def counted_by_status(harness: Harness) -> None:
    store = await harness.open()
    crowd = await _crowd(store)
    await store.delete_session("s39")
    left = [it for it in crowd if it.session_id != "s39"]
    statuses: tuple[SessionStatus, ...] = get_args(SessionStatus)
    listed = {status: len(await _ids(store, status=status)) for status in statuses}  # this also repairs an index
    expect_same(listed, {status: sum(it.status == status for it in left) for status in statuses}, "sessions listed")
    expect_same(await store.count_by_status(), listed, "sessions counted")


@check("S11", "sessions are found by id prefix, where the store supports it")
async def found_by_prefix(harness: Harness) -> None:
    store = await harness.open()
    ids = ["a", "ab", "ab%", "ab1", "ab_2", "abc", "ab\u00e9", "ab\U0010ffff", "ab\U0010ffffx", "ac", "AB", "b"]
    for number, each in enumerate(ids):
        await store.create_session(each, agent_type="agent", custom_state={"n": 1}, user_id=f"user-{number % 2}")
    for text in ["a", "ab", "ab%", "ab_", "ab\U0010ffff", "\ud7ff", "\U0010ffff", "zz"]:
        fitting = sorted(each for each in ids if each.startswith(text))
        if not store.finds_prefixes:
            fitting = [each for each in ids if each == text]
        found = await store.find_sessions(text, limit=100)
        expect_same([it.session_id for it in found], fitting, f"sessions that start with {text!r}")
        expect(all(it.custom_state is None for it in found), "a found session carries custom state")
    mine = [it.session_id for it in await store.find_sessions("ab", user_id="user-1", limit=1)]
    expect_same(mine, ["ab"], "the first session of a user")


@check("input", "an invalid id prefix is rejected")
async def odd_prefixes(harness: Harness) -> None:
    store = await harness.open()
    for bad in ("", "a" * 257, "a\nb"):
        with raises(InvalidArgument, f"find_sessions({bad!r})"):
            await store.find_sessions(bad)
    with raises(InvalidArgument, "find_sessions with limit 0"):
        await store.find_sessions("a", limit=0)


@check("S11", "an empty store has an empty page")
async def empty_store_has_an_empty_page(harness: Harness) -> None:
    store = await harness.open()
    page = await store.list_sessions()
    got = (page.items, page.total, page.has_more, page.next_cursor)
    expect_same(got, ([], 0, False, None), "the page")


@check("S11", "a session with a thousand tags is found by the last, can drop one, and is deleted completely")
async def a_thousand_tags(harness: Harness) -> None:
    store = await harness.open()
    tags = [f"tag-{number}" for number in range(1_000)]
    made = await store.create_session("a", agent_type="agent", tags=tags)
    expect_same(await _ids(store, tags=[tags[0], tags[-1]]), ["a"], "sessions with the first and the last tag")
    await store.save_state("a", msgspec.structs.replace(made, tags=tuple(tags[1:])))
    expect_same(await _ids(store, tags=[tags[0]]), [], "sessions with a tag that was removed")
    await store.delete_session("a")
    expect_same(await _ids(store, tags=[tags[-1]]), [], "sessions with a tag of a deleted session")
