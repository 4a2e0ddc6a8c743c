"""Checks of the UsageStore contract, U1 to U6: one rule each, against any backend, compared with a plain list."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from typing import Any

import msgspec

from ...errors import InvalidArgument
from ...stores.usage.contract import (
    CustomEntry,
    SubagentEntry,
    TokensEntry,
    ToolEntry,
    UsageEntry,
    UsageKind,
    UsageStore,
)
from ..expect import expect, expect_same, raises
from ..harness import Harness
from ..registry import Registry

USAGE_STORE: Registry[Harness] = Registry()
"""Every check of the UsageStore contract."""

check = USAGE_STORE.check

Built = dict[str, Any]

KINDS: tuple[UsageKind, ...] = ("tokens", "tool", "subagent", "custom")


def _samples(session_id: str) -> list[UsageEntry]:
    """Return one entry of each kind with every field set."""
    shared: Built = {"session_id": session_id, "run_id": "run", "step_count": 3, "source": "agent"}
    return [
        TokensEntry(
            **shared,
            id="1",
            timestamp=10,
            model="m",
            prompt=7,
            completion=5,
            reasoning=2,
            cached=3,
            cache_written=4,
            total=12,
        ),
        ToolEntry(**shared, id="2", timestamp=20, tool_name="search", duration_ms=40, success=False),
        SubagentEntry(**shared, id="3", timestamp=30, sub_session_id="child", agent_type="writer", duration_ms=9),
        CustomEntry(**shared, id="4", timestamp=40, parent_session_id="above", name="pages", value=2.5),
    ]


# -- U1 once


@check("U1", "every field of every kind of entry is read back as recorded, in order")
async def entries_come_back(harness: Harness) -> None:
    store = await harness.open_usage()
    entries = _samples("a")
    expect_same(await store.record_entries(reversed(entries)), 4, "new entries")
    again = await (await harness.open_usage()).get_entries("a")
    expect_same([msgspec.to_builtins(each) for each in again], [msgspec.to_builtins(each) for each in entries], "all")
    expect([type(each) for each in again] == [type(each) for each in entries], "an entry was read back as another kind")


@check("U1", "an entry id recorded again counts once, and the first entry stays")
async def same_id_counts_once(harness: Harness) -> None:
    store = await harness.open_usage()
    expect(
        await store.record_entry(CustomEntry(id="1", session_id="a", name="n", value=1)) is True,
        "the first entry is not new",
    )
    other = TokensEntry(id="1", session_id="a", model="m", prompt=9, parent_session_id="p")
    expect(await store.record_entry(other) is False, "the second entry is new")
    rollup = await store.get_rollup("a")
    expect_same((rollup.custom, rollup.tokens.prompt), ({"n": 1}, 0), "the rollup")
    expect_same((await store.get_rollup("p")).custom, {}, "the rejected entry's parent")


@check("U1", "the same id in another session is another entry")
async def ids_belong_to_a_session(harness: Harness) -> None:
    store = await harness.open_usage()
    for session_id in ("a", "b"):
        entry = CustomEntry(id="1", session_id=session_id, name=session_id)
        expect(await store.record_entry(entry), f"the entry of {session_id} is not new")
    expect_same((await store.get_rollup("b")).custom, {"b": 1}, "the other session")


@check("U1", "an entry that appears twice in one call counts once")
async def twice_within_one_call(harness: Harness) -> None:
    store = await harness.open_usage()
    entry = CustomEntry(id="1", session_id="a", name="n")
    expect_same(await store.record_entries([entry, entry]), 1, "new entries")
    expect_same((await store.get_rollup("a")).custom, {"n": 1}, "the rollup")


@check("U1", "when many tasks record the same ids concurrently, each counts once", kind="tasks")
async def racing_tasks_count_once(harness: Harness) -> None:
    stores = [await harness.open_usage() for _ in range(harness.options.tasks)]

    async def record(store: UsageStore) -> int:
        return sum([await store.record_entry(CustomEntry(id=str(n), session_id="a", name="n")) for n in range(10)])

    new = await asyncio.gather(*(record(store) for store in stores))
    expect_same(sum(new), 10, "new entries over all tasks")
    expect_same((await stores[0].get_rollup("a")).custom, {"n": 10}, "the rollup")


@check("U1", "an entry may be given in its JSON form, and defaults are filled in")
async def json_form_and_defaults(harness: Harness) -> None:
    store = await harness.open_usage()
    await store.record_entry(
        {"kind": "tokens", "id": "1", "session_id": "a", "model": "m", "prompt": 2, "completion": 3}
    )
    found = (await store.get_entries("a"))[0]
    expect(isinstance(found, TokensEntry) and found.total == 5, f"total is not prompt + completion: {found}")
    expect(found.timestamp > 0, "the time of recording is missing")


# -- U2 together


@check("U2", "a bad entry among good ones is rejected, and nothing is recorded")
async def bad_entry_spoils_the_call(harness: Harness) -> None:
    store = await harness.open_usage()
    good: Built = {"kind": "custom", "id": "1", "session_id": "a", "name": "n"}
    for bad in _bad_entries():
        with raises(InvalidArgument, f"the bad entry {bad!r}"):
            await store.record_entries([good, bad])
    expect_same(await store.get_entries("a"), [], "entries")


def _bad_entries() -> list[Any]:
    custom: Built = {"kind": "custom", "id": "2", "session_id": "a", "name": "n"}
    tokens: Built = {"kind": "tokens", "id": "2", "session_id": "a", "model": "m"}
    return [
        {**custom, "id": ""},
        {**custom, "session_id": "x" * 257},
        {**custom, "name": "a\nb"},
        {**custom, "kind": "money"},
        {**custom, "unknown": 1},
        {**custom, "value": float("nan")},
        {**custom, "value": float("inf")},
        {**custom, "value": 10**16},
        {**custom, "value": "1"},
        {**custom, "parent_session_id": "a"},
        {**tokens, "prompt": -1},
        {**tokens, "prompt": 1.5},
        {**tokens, "completion": True},
        {**tokens, "timestamp": -1},
        TokensEntry(id="2", session_id="a", model="m", cached=-1),
        {"kind": "subagent", "id": "2", "session_id": "a", "agent_type": "x", "sub_session_id": "a"},
        {"kind": "tool", "id": "2", "session_id": "a"},
        {},
        None,
        "entry",
    ]


# -- U3 tree


@check("U3", "a rollup covers descendants at any depth, whether the parent's or the child's entries link them")
async def rollup_covers_the_tree(harness: Harness) -> None:
    store = await harness.open_usage()
    await store.record_entries(
        [
            CustomEntry(id="1", session_id="root", name="n", value=1),
            SubagentEntry(id="2", session_id="root", sub_session_id="told-above", agent_type="x"),
            CustomEntry(id="3", session_id="told-above", name="n", value=10),
            CustomEntry(id="4", session_id="told-below", parent_session_id="told-above", name="n", value=100),
            CustomEntry(id="5", session_id="elsewhere", name="n", value=1000),
        ]
    )
    got = {each: (await store.get_rollup(each)).custom for each in ("root", "told-above", "told-below")}
    expect_same(got, {"root": {"n": 111}, "told-above": {"n": 110}, "told-below": {"n": 100}}, "rollups")
    alone = await store.get_rollup("root", include_sub_sessions=False)
    expect_same((alone.custom, alone.subagents["x"].calls), ({"n": 1}, 1), "the root alone")


@check("U3", "a session without its own entries still links to its descendants")
async def silent_session_in_between(harness: Harness) -> None:
    store = await harness.open_usage()
    await store.record_entry(SubagentEntry(id="1", session_id="root", sub_session_id="silent", agent_type="x"))
    await store.record_entry(CustomEntry(id="2", session_id="leaf", parent_session_id="silent", name="n"))
    expect_same((await store.get_rollup("root")).custom, {"n": 1}, "the rollup")


@check("U3", "a session that is reached twice, or in a cycle, counts once")
async def circles_count_once(harness: Harness) -> None:
    store = await harness.open_usage()
    for parent, child in (("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("d", "a")):
        entry = SubagentEntry(id=f"{parent}{child}", session_id=parent, sub_session_id=child, agent_type="x")
        await store.record_entry(entry)
    await store.record_entry(CustomEntry(id="n", session_id="d", name="n"))
    for session_id in "abcd":
        rollup = await store.get_rollup(session_id)
        expect_same((rollup.custom, rollup.subagents["x"].calls), ({"n": 1}, 5), f"the rollup of {session_id}")


@check("U3", "a deep chain of sessions adds up")
async def deep_chain(harness: Harness) -> None:
    store = await harness.open_usage()
    chain = [
        CustomEntry(id="1", session_id=f"s{n}", parent_session_id=f"s{n - 1}" if n else None, name="n")
        for n in range(200)
    ]
    await store.record_entries(chain)
    expect_same((await store.get_rollup("s0")).custom, {"n": 200}, "the rollup")


# -- U4 sums


@check("U4", "sums are separate for each model, tool, agent type and name")
async def sums_by_name(harness: Harness) -> None:
    store = await harness.open_usage()
    await store.record_entries(
        [
            TokensEntry(id="1", session_id="a", model="m", prompt=1, completion=2, reasoning=3, cached=4, total=50),
            TokensEntry(
                id="2", session_id="a", model="m", prompt=10, completion=20, reasoning=30, cached=40, cache_written=5
            ),
            TokensEntry(id="3", session_id="a", model="same", prompt=100),
            ToolEntry(id="4", session_id="a", tool_name="same", duration_ms=5),
            ToolEntry(id="5", session_id="a", tool_name="same", duration_ms=6, success=False),
            SubagentEntry(id="6", session_id="a", agent_type="same", sub_session_id="b", duration_ms=7, success=False),
            CustomEntry(id="7", session_id="a", name="same", value=-3),
            CustomEntry(id="8", session_id="a", name="same", value=5),
        ]
    )
    calls = {"calls": 2, "failures": 1, "duration_ms": 11}
    m = {"prompt": 11, "completion": 22, "reasoning": 33, "cached": 44, "cache_written": 5, "total": 80}
    same = {"prompt": 100, "completion": 0, "reasoning": 0, "cached": 0, "cache_written": 0, "total": 100}
    expected = {
        "tokens": {**m, "prompt": 111, "total": 180},
        "by_model": {"m": m, "same": same},
        "tools": {"same": calls},
        "subagents": {"same": {"calls": 1, "failures": 1, "duration_ms": 7}},
        "custom": {"same": 2},
    }
    expect_same(await store.get_rollup("a"), expected, "the rollup")


@check("U4", "integer amounts add up exactly and stay integers; with a fraction among them the sum is a float")
async def exact_amounts(harness: Harness) -> None:
    store = await harness.open_usage()
    for n, value in enumerate([10**15, 10**15, 1]):
        await store.record_entry(CustomEntry(id=str(n), session_id="a", name="whole", value=value))
    for n, amount in enumerate([1, 0.5, 2]):
        await store.record_entry(CustomEntry(id=f"f{n}", session_id="a", name="mixed", value=amount))
    await store.record_entry(CustomEntry(id="one", session_id="a", name="real", value=1.0))
    rollup = await store.get_rollup("a")
    expect_same(rollup.custom, {"whole": 2 * 10**15 + 1, "mixed": 3.5, "real": 1.0}, "amounts")


@check("U4", "a session without entries has an empty rollup and no entries")
async def unknown_session_is_empty(harness: Harness) -> None:
    store = await harness.open_usage()
    zero = {"prompt": 0, "completion": 0, "reasoning": 0, "cached": 0, "cache_written": 0, "total": 0}
    expected: Built = {"tokens": zero, "by_model": {}, "tools": {}, "subagents": {}, "custom": {}}
    expect_same(await store.get_rollup("nobody"), expected, "the rollup")
    expect_same(await store.get_entries("nobody"), [], "entries")


# -- U5 query


@check("U5", "each filter returns what matches, and filters combine")
async def filters_combine(harness: Harness) -> None:
    store = await harness.open_usage()
    await store.record_entries([*_samples("a"), *_samples("b")])
    await store.record_entry(ToolEntry(id="5", session_id="a", timestamp=50, tool_name="m", run_id="other", source="x"))
    cases: list[tuple[Built, list[str]]] = [
        ({}, ["a5", "b4", "a4", "b3", "a3", "b2", "a2", "b1", "a1"]),
        ({"session_id": "a"}, ["a5", "a4", "a3", "a2", "a1"]),
        ({"run_id": "other"}, ["a5"]),
        ({"kinds": "custom"}, ["b4", "a4"]),
        ({"kinds": ["tool", "tokens"]}, ["a5", "b2", "a2", "b1", "a1"]),
        ({"kinds": []}, []),
        ({"model": "m"}, ["b1", "a1"]),
        ({"tool_name": "m"}, ["a5"]),
        ({"tool_name": "search"}, ["b2", "a2"]),
        ({"source": "x"}, ["a5"]),
        ({"timestamp_from": 30, "timestamp_to": 50}, ["b4", "a4", "b3", "a3"]),
        ({"session_id": "b", "kinds": ["tool"], "source": "agent", "run_id": "run", "timestamp_to": 30}, ["b2"]),
        ({"model": "m", "tool_name": "search"}, []),
    ]
    for filters, expected in cases:
        page = await store.query_usage(**filters)
        expect_same([each.session_id + each.id for each in page.items], expected, f"with {filters}")
        expect_same((page.total, page.has_more), (len(expected), False), f"total with {filters}")


@check("U5", "pages follow each other without gap or overlap")
async def pages_follow(harness: Harness) -> None:
    store = await harness.open_usage()
    await store.record_entries(
        [CustomEntry(id=str(n), session_id="a", name="n", timestamp=1 + n % 3) for n in range(10)]
    )
    seen: list[str] = []
    for offset in (0, 4, 8):
        page = await store.query_usage(limit=4, offset=offset)
        expect_same((page.total, page.has_more, page.limit), (10, offset < 8, 4), f"the page at {offset}")
        seen += [each.id for each in page.items]
    expect_same(sorted(seen), [str(n) for n in range(10)], "ids over all pages")
    beyond = await store.query_usage(limit=4, offset=50, count=False)
    expect_same((beyond.items, beyond.total, beyond.has_more), ([], None, False), "a page beyond the end, uncounted")


@check("U5", "bad arguments are rejected")
async def bad_arguments(harness: Harness) -> None:
    store = await harness.open_usage()
    bad: list[Built] = [
        {"limit": 0},
        {"limit": 201},
        {"limit": True},
        {"offset": -1},
        {"offset": 2**70},
        {"kinds": ["money"]},
        {"session_id": ""},
        {"model": "a{b"},
        {"timestamp_from": "now"},
        {"timestamp_to": 2**70},
    ]
    for arguments in bad:
        with raises(InvalidArgument, f"query_usage with {arguments}"):
            await store.query_usage(**arguments)
    with raises(InvalidArgument, "get_rollup without an id"):
        await store.get_rollup("")
    with raises(InvalidArgument, "get_entries with an unknown kind"):
        await store.get_entries("a", kinds=["money"])  # type: ignore[list-item]  # the point of the check


# -- U6 delete


@check("U6", "deleting a session also deletes its descendants and nothing else")
async def delete_takes_the_tree(harness: Harness) -> None:
    store = await harness.open_usage()
    await store.record_entries(
        [
            SubagentEntry(id="1", session_id="root", sub_session_id="child", agent_type="x"),
            CustomEntry(id="2", session_id="child", name="n"),
            CustomEntry(id="3", session_id="leaf", parent_session_id="child", name="n"),
            CustomEntry(id="4", session_id="other", name="n"),
        ]
    )
    expect_same(await store.delete_entries("child"), 2, "removed")
    expect_same(await store.delete_entries("child"), 0, "removed by the second call")
    left = {each.id for each in (await store.query_usage()).items}
    expect_same(sorted(left), ["1", "4"], "what is left")
    await store.record_entry(CustomEntry(id="5", session_id="leaf", name="n"))
    expect_same((await store.get_rollup("child")).custom, {}, "the deleted tree")


@check("U6", "deleting one session alone leaves its descendants counted in its ancestors")
async def delete_one_session(harness: Harness) -> None:
    store = await harness.open_usage()
    await store.record_entry(CustomEntry(id="1", session_id="child", parent_session_id="root", name="n", value=1))
    await store.record_entry(CustomEntry(id="2", session_id="leaf", parent_session_id="child", name="n", value=10))
    expect_same(await store.delete_entries("child", include_sub_sessions=False), 1, "removed")
    expect_same((await store.get_rollup("root")).custom, {"n": 10}, "the rollup above")


# -- everything together, against a list


@check("U4", "for random entries of random trees, entries, rollups and queries agree with a plain list", kind="random")
async def random_walk(harness: Harness) -> None:
    seed = harness.options.seed
    try:
        await _walk(await harness.open_usage(), random.Random(seed), harness.options.steps)
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}") from error


async def _walk(store: UsageStore, rng: random.Random, steps: int) -> None:
    model: dict[tuple[str, str], UsageEntry] = {}
    for _ in range(steps):
        if rng.random() < 0.9:
            entry = _random_entry(rng)
            new = await store.record_entry(entry)
            expect_same(new, (entry.session_id, entry.id) not in model, f"whether {entry} is new")
            model.setdefault((entry.session_id, entry.id), entry)
            continue
        session_id = f"s{rng.randrange(8)}"
        below = _descendants(model.values(), session_id)
        _expect_sums(await store.get_rollup(session_id), [each for each in model.values() if each.session_id in below])
        kind = rng.choice(KINDS)
        page = await store.query_usage(session_id=session_id, kinds=kind, limit=200)
        fits = [each for each in model.values() if each.session_id == session_id and each.kind == kind]
        fits.sort(key=lambda each: (each.timestamp, each.id), reverse=True)
        expect_same([each.id for each in page.items], [each.id for each in fits[:200]], f"{kind} of {session_id}")


def _random_entry(rng: random.Random) -> UsageEntry:
    number = rng.randrange(8)
    parent = f"s{rng.randrange(number)}" if number and rng.random() < 0.1 else None
    shared: Built = {
        "id": str(rng.randrange(300)),
        "session_id": f"s{number}",
        "parent_session_id": parent,
        "timestamp": rng.randrange(1, 50),
    }
    name = rng.choice("xyz")
    match rng.choice(KINDS):
        case "tokens":
            return TokensEntry(**shared, model=name, prompt=rng.randrange(99), completion=rng.randrange(99))
        case "tool":
            return ToolEntry(**shared, tool_name=name, duration_ms=rng.randrange(99), success=rng.random() < 0.5)
        case "subagent":
            child = f"s{number + rng.randrange(1, 9)}"
            return SubagentEntry(**shared, agent_type=name, sub_session_id=child)
        case _:
            return CustomEntry(**shared, name=name, value=rng.choice([1, -2, 0.25]))


def _descendants(entries: Iterable[UsageEntry], session_id: str) -> set[str]:
    pairs = {(each.parent_session_id, each.session_id) for each in entries}
    pairs |= {(each.session_id, each.sub_session_id) for each in entries if isinstance(each, SubagentEntry)}
    tree = {session_id}
    while more := {child for parent, child in pairs if parent in tree} - tree:
        tree |= more
    return tree


def _expect_sums(rollup: Any, entries: list[UsageEntry]) -> None:
    tokens = [each for each in entries if isinstance(each, TokensEntry)]
    tools = [each for each in entries if isinstance(each, ToolEntry)]
    custom = [each for each in entries if isinstance(each, CustomEntry)]
    expect_same(rollup.tokens.total, sum(each.prompt + each.completion for each in tokens), "all tokens")
    for name in "xyz":
        prompt = sum(each.prompt for each in tokens if each.model == name)
        expect_same(rollup.by_model[name].prompt if name in rollup.by_model else 0, prompt, f"prompt tokens of {name}")
        failures = sum(not each.success for each in tools if each.tool_name == name)
        expect_same(rollup.tools[name].failures if name in rollup.tools else 0, failures, f"failures of {name}")
        amount = sum(each.value for each in custom if each.name == name)
        expect_same(rollup.custom.get(name, 0), amount, f"the amount of {name}")
    children = sum(isinstance(each, SubagentEntry) for each in entries)
    expect_same(sum(each.calls for each in rollup.subagents.values()), children, "calls of sub-agents")
