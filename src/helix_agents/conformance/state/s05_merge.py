"""S5: staged writes merge in the order of the tool calls; every lost write has a warning."""

from __future__ import annotations

from typing import Any

from ...stores.state.contract import StateStore
from ...types import CheckpointKind, CheckpointMeta, StagedChanges
from ..expect import expect, expect_same
from ..harness import STATE_STORE, Harness
from ..tools.dump import dump_session
from ..tools.sample import add, drop, ensure, meta, plain_state, push, put, writes

check = STATE_STORE.check


async def _custom(store: StateStore, session_id: str = "a") -> Any:
    state = await store.load_state(session_id)
    assert state is not None
    return state.custom_state


@check("S5", "staged writes merge by index, whatever the order of arrival")
async def staged_writes_merge_by_index(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="agent", custom_state={"items": []})
    for index in (2, 10, 0, 1):
        ops = writes(push("items", items=[index]), put("last", value=index))
        await store.stage_changes("a", "step-1", ops, tool_call_id=f"call-{index}", index=index)
    listed = await store.list_staged("a", "step-1")
    expect_same([row.index for row in listed], [0, 1, 2, 10], "the order of list_staged")
    await store.promote_staging("a", "step-1")
    expect_same(await _custom(store), {"items": [0, 1, 2, 10], "last": 10}, "custom state")
    expect_same(await store.list_staged("a", "step-1"), [], "what is still staged")


@check("S5", "appends survive a replacement, increments add up, different paths all survive")
async def phases_let_writes_survive(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="agent", custom_state={"items": [1], "n": 1, "o": {"x": 1}})
    first = writes(push("items", items=["first"]), add("n", by=2), put("o", "y", value=2))
    second = writes(put("items", value=["new"]), add("n", by=3), put("o", "z", value=3), ensure("made", value=[]))
    third = writes(push("items", items=["third"]), ensure("made", value=[]), push("made", items=[1]))
    for index, ops in enumerate((first, second, third)):
        await store.stage_changes("a", "step-1", ops, tool_call_id=f"call-{index}", index=index)
    await store.save_state_and_promote_staging("a", plain_state("a"), [], meta())
    expected = {"items": ["new", "first", "third"], "n": 6, "o": {"x": 1, "y": 2, "z": 3}, "made": [1]}
    expect_same(await _custom(store), expected, "custom state")


@check("S5", "a commit merges into what others wrote after its writes were staged")
async def commit_merges_into_the_present(harness: Harness) -> None:
    store, other = await harness.open(), await harness.open()
    start = {"n": 1, "member": {"x": 1}, "items": ["a"], "gone": [], "changed": ["a"]}
    await store.create_session("a", agent_type="agent", custom_state=start)
    ops = writes(add("n", by=1), add("member", "x", by=1), push("items", items=["mine"]))
    await store.stage_changes("a", "step-1", ops, tool_call_id="call-1")
    await other.merge_custom_state(
        "a", writes(add("n", by=10), put("member", "x", value=7), push("items", items=["b"]))
    )
    await store.save_state_and_promote_staging("a", plain_state("a"), [], meta(1, "step-1"))
    got = await _custom(store)
    merged = {"n": 12, "member": {"x": 8}, "items": ["a", "b", "mine"]}
    expect_same({key: got[key] for key in merged}, merged, "what both wrote")

    for step, (key, meanwhile) in enumerate({"gone": drop("gone"), "changed": put("changed", value="text")}.items(), 2):
        await store.stage_changes("a", f"step-{step}", writes(push(key, items=[1])), tool_call_id="call-1")
        await other.merge_custom_state("a", writes(meanwhile))
        done = await store.save_state_and_promote_staging("a", plain_state("a"), [], meta(step, f"step-{step}"))
    got = await _custom(store)
    expect_same(
        (got["gone"], got["changed"]), ([1], "text"), "a list that was dropped, and one that is no longer a list"
    )
    expect(done.warnings, "an append to what is no longer a list had no warning")


@check("S5", "a lost write is reported by the commit, by promote_staging and by merge_custom_state")
async def lost_writes_are_told(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="agent", custom_state={"text": "x"})
    impossible = writes(put("text", "inner", value=1))
    expect(await store.merge_custom_state("a", impossible), "merge_custom_state lost a write without a warning")
    await store.stage_changes("a", "step-1", impossible, tool_call_id="call-1")
    expect(await store.promote_staging("a", "step-1"), "promote_staging lost a write without a warning")
    await store.stage_changes("a", "step-1", impossible, tool_call_id="call-1")
    done = await store.save_state_and_promote_staging("a", plain_state("a"), [], meta())
    expect(done.warnings, "the commit lost a write without a warning")
    expect_same(await _custom(store), {"text": "x"}, "custom state")


@check("S5", "when two tools set one path, the later call wins, with a warning")
async def last_tool_wins(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="agent", custom_state={"v": 0})
    await store.stage_changes("a", "step-1", writes(put("v", value="late")), tool_call_id="x", index=1)
    await store.stage_changes("a", "step-1", writes(put("v", value="early")), tool_call_id="y", index=0)
    expect(await store.promote_staging("a", "step-1"), "an overwritten value had no warning")
    expect_same(await _custom(store), {"v": "late"}, "custom state")


@check("S5", "staging a call again replaces it and keeps its outcome")
async def staging_again_replaces(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="agent", custom_state={"items": []})
    for attempt in (1, 2):
        await store.stage_changes(
            "a", "step-1", writes(push("items", items=[attempt])), tool_call_id="call-1", result={"attempt": attempt}
        )
    again = await harness.reopen()
    rows = await again.list_staged("a", "step-1")
    expect_same([(row.tool_call_id, row.result) for row in rows], [("call-1", {"attempt": 2})], "staged calls")
    expect_same(rows[0].writes.ops, [push("items", items=[2])], "the ops as staged")
    await again.promote_staging("a", "step-1")
    expect_same(await _custom(again), {"items": [2]}, "custom state")


@check("S5", "warnings of a tracker are stored with its staged writes")
async def tracker_warnings_are_kept(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="agent")
    warned = type(writes())(ops=[put("v", value=1)], warnings=["seen while tracking"])
    await store.stage_changes("a", "step-1", warned, tool_call_id="call-1")
    rows = await store.list_staged("a", "step-1")
    expect_same(rows[0].writes.warnings, ["seen while tracking"], "the warnings as staged")


@check("S5", "several calls staged in one write appear together and commit as if staged one by one")
async def staged_together(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="agent", custom_state={"log": []})
    items = {index: {"kind": "append", "path": ["log"], "items": [index]} for index in (2, 0, 1)}
    await store.stage_changes("a", "step-1", writes(items[0]), tool_call_id="call-0", index=7, result="old")
    calls = [StagedChanges(f"call-{index}", index, writes(op), {"n": index}) for index, op in items.items()]
    await store.stage_calls("a", "step-1", calls)
    await store.stage_calls("a", "step-1", [])
    rows = await store.list_staged("a", "step-1")
    expect_same([(row.tool_call_id, row.result) for row in rows], [(f"call-{n}", {"n": n}) for n in range(3)], "rows")
    expect_same(await store.promote_staging("a", "step-1"), [], "warnings")
    expect_same(await _custom(store), {"log": [0, 1, 2]}, "custom state")


@check("S5", "calls that were never staged merge with the commit, in call order among the staged ones")
async def unstaged_calls_come_with_the_commit(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="agent", custom_state={"log": []})
    said = [writes({"kind": "append", "path": ["log"], "items": [n]}, put("last", value=n)) for n in range(3)]
    await store.stage_changes("a", "step-1", said[1], tool_call_id="call-1", index=1)
    unstaged = [StagedChanges("call-2", 2, said[2]), StagedChanges("call-0", 0, said[0])]
    done = await store.save_state_and_promote_staging("a", plain_state("a"), [], meta(1, "step-1"), unstaged=unstaged)
    expect_same(await _custom(store), {"log": [0, 1, 2], "last": 2}, "custom state")
    expect(done.warnings, "overwritten values had no warning")
    expect_same(await store.list_staged("a", "step-1"), [], "what is still staged")


@check("S5", "staged rows that are not calls are separate from calls and from each other, and end with their step")
async def rows_of_other_kinds_are_kept_apart(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="agent", custom_state={})
    rows = [
        StagedChanges("", 0, writes(), "what it said", kind="answer"),
        StagedChanges("", 0, writes(), "in short", kind="summary"),
        StagedChanges("answer", 0, writes(put("v", value=1)), "done"),
    ]
    await store.stage_calls("a", "step-1", rows)
    await store.stage_calls("a", "step-1", [StagedChanges("", 0, writes(), "said again", kind="answer")])
    again = await harness.reopen()
    found = [(row.kind, row.tool_call_id, row.result) for row in await again.list_staged("a", "step-1")]
    wanted = [("answer", "", "said again"), ("call", "answer", "done"), ("summary", "", "in short")]
    expect_same(sorted(found), wanted, "the staged rows")
    await again.save_state_and_promote_staging("a", plain_state("a"), [], meta(1, "step-1"))
    expect_same(await again.list_staged("a", "step-1"), [], "what is still staged")
    expect_same(await _custom(again), {"v": 1}, "custom state")


@check("S5", "only the end of a step promotes: starting a turn or suspending a step leaves staged calls alone")
async def other_checkpoints_promote_nothing(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="agent", custom_state={})
    await store.stage_changes("a", "step-1", writes(put("v", value=1)), tool_call_id="call-1", result="done")
    kinds: list[CheckpointKind] = ["turn", "aside", "step"]
    for kind in kinds:
        expect_same(await _custom(store), {}, f"custom state before a checkpoint of kind {kind}")
        expect_same(len(await store.list_staged("a", "step-1")), 1, f"rows staged before a checkpoint of kind {kind}")
        await store.save_state_and_promote_staging("a", plain_state("a"), [], CheckpointMeta("step-1", 1, kind=kind))
    expect_same(await _custom(store), {"v": 1}, "custom state after the end of the step")
    listed = (await (await harness.reopen()).list_checkpoints("a")).items
    expect_same([point.kind for point in listed], kinds[::-1], "the kinds of the checkpoints")


@check("S5", "discarding drops one step or all steps, and returns the number of calls")
async def discarding_counts(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="agent")
    for step, calls in (("step-1", 2), ("step-2", 3), ("step-3", 1)):
        for call in range(calls):
            await store.stage_changes("a", step, writes(put("v", value=1)), tool_call_id=f"call-{call}")
    expect_same(await store.discard_staging("a", "step-1"), 2, "calls discarded of one step")
    expect_same(await store.discard_staging("a", "step-1"), 0, "calls discarded of an empty step")
    expect_same(len(await store.list_staged("a", "step-2")), 3, "calls of another step")
    expect_same(await store.discard_staging("a"), 4, "calls discarded of all steps")
    expect_same((await dump_session(store, "a") or {})["staged"], {}, "what is still staged")
    expect_same(await _custom(store), {}, "custom state")


@check("S5", "every kind of op applies at the top level, deep inside and in a list element")
async def every_kind_of_op_applies(harness: Harness) -> None:
    store = await harness.open()
    base = {"l": [{"n": 1}, {"l": [1]}], "o": {"gone": 1, "p": {"n": 1.5}}, "gone": [1], "n": 1}
    await store.create_session("a", agent_type="agent", custom_state=base)
    ops = writes(
        put("l", 0, "n", value=2),
        drop("gone"),
        drop("o", "gone"),
        ensure("o", "list", value=[]),
        ensure("l", value=[]),
        put("~/", value={"": 1}),
        add("n", by=-3),
        add("fresh"),
        add("o", "p", "n", by=0.5),
        push("l", 1, "l", items=[2, 3]),
        push("o", "list", items=["x"]),
    )
    expect_same(await store.merge_custom_state("a", ops), [], "warnings")
    expected = {
        "l": [{"n": 2}, {"l": [1, 2, 3]}],
        "o": {"p": {"n": 2.0}, "list": ["x"]},
        "n": -2,
        "fresh": 1,
        "~/": {"": 1},
    }
    expect_same(await _custom(store), expected, "custom state")
    expect_same(await _custom(await harness.reopen()), expected, "custom state after reopening")


@check("S5", "an op may give a key instead of a path of one key")
async def key_stands_for_a_path(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="agent", custom_state={"items": [1]})
    ops = writes({"kind": "append", "key": "items", "items": [2]}, {"kind": "replace", "key": "v", "value": 1})
    await store.stage_changes("a", "step-1", ops, tool_call_id="call-1")
    await store.promote_staging("a", "step-1")
    await store.merge_custom_state("a", writes({"kind": "increment", "key": "v", "by": 1, "value": 2}))
    expect_same(await _custom(store), {"items": [1, 2], "v": 2}, "custom state")


@check("S5", "a key keeps its value through every change of type")
async def keys_change_type(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="agent", custom_state={"v": [1, 2]})
    values: list[Any] = [{"o": 1}, [3], "text", [], None, {}, [4, 5], 7, [[6]]]
    for value in values:
        await store.merge_custom_state("a", writes(put("v", value=value)))
        expect_same(await _custom(store), {"v": value}, "custom state after a change of type")
        await store.merge_custom_state("a", writes(drop("v")))
        expect_same(await _custom(store), {}, "custom state after a delete")
        await store.merge_custom_state("a", writes(put("v", value=value)))
        if isinstance(value, list):
            await store.merge_custom_state("a", writes(push("v", items=["more"])))
            expect_same(await _custom(store), {"v": [*value, "more"]}, "custom state after an append")


@check("S5", "merge_custom_state also accepts writes as a plain dict")
async def plain_writes_merge(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="agent", custom_state={"items": [1]})
    given: Any = {"ops": [push("items", items=[2])], "warnings": []}
    expect_same(await store.merge_custom_state("a", given), [], "the warnings")
    state = await store.load_state("a")
    expect_same(state.custom_state if state else None, {"items": [1, 2]}, "custom state")
