"""U7: successive sessions with the same id. The usage of one is never counted for another."""

from __future__ import annotations

from ...stores.usage.contract import CustomEntry, SubagentEntry, UsageEntry
from ..expect import expect_same
from ..harness import Harness
from .checks import check


def _entries() -> list[UsageEntry]:
    old, new = "first-life", "second-life"
    return [
        CustomEntry(id="1", session_id="s", incarnation=old, name="n", value=1),
        SubagentEntry(id="2", session_id="s", incarnation=old, sub_session_id="s/old", agent_type="x"),
        CustomEntry(id="3", session_id="s/old", parent_session_id="s", incarnation="o", name="n", value=10),
        CustomEntry(id="4", session_id="s", incarnation=new, name="n", value=100),
        SubagentEntry(id="5", session_id="s", incarnation=new, sub_session_id="s/new", agent_type="y"),
        CustomEntry(id="6", session_id="s/new", incarnation="p", name="n", value=1000),
        CustomEntry(id="7", session_id="s", name="n", value=10_000),
    ]


@check("U7", "with an incarnation, entries of an earlier session with the same id are not read")
async def leftovers_are_not_read(harness: Harness) -> None:
    store = await harness.open_usage()
    entries = _entries()
    await store.record_entries(entries)
    found = await store.get_entries("s", incarnation="second-life")
    expect_same(sorted(each.id for each in found), ["4", "5", "7"], "the entries of the later session")
    rollup = await store.get_rollup("s", incarnation="second-life")
    expect_same([rollup.custom, sorted(rollup.subagents)], [{"n": 11_100}, ["y"]], "its rollup")
    alone = await store.get_rollup("s", include_sub_sessions=False, incarnation="second-life")
    expect_same(alone.custom, {"n": 10_100}, "its rollup without sub-agents")
    expect_same((await store.get_rollup("s/old", incarnation="o")).custom, {"n": 10}, "a session without older entries")
    expect_same((await store.get_rollup("s")).custom, {"n": 11_111}, "all usage of the id")


@check("U7", "deleting the entries of one session leaves those of a newer session with its id")
async def later_entries_stay(harness: Harness) -> None:
    store = await harness.open_usage()
    await store.record_entries(_entries())
    expect_same(await store.delete_entries("s", incarnation="first-life"), 3, "removed, those without one included")
    expect_same(await store.delete_entries("s", incarnation="first-life"), 0, "removed by the second call")
    left = sorted(each.id for each in await store.get_entries("s"))
    expect_same(left, ["4", "5"], "what is left")
    everything = sorted(each.id for each in (await store.query_usage()).items)
    expect_same(everything, ["3", "4", "5", "6"], "what is left in the store")
    expect_same([each.incarnation for each in await store.get_entries("s")], ["second-life"] * 2, "whose they are")
