"""Ops that do not fit are dropped with a warning and touch nothing else."""

from __future__ import annotations

from typing import Any

from ...errors import NotSerializable
from ...stores.state.contract import StateStore
from ..expect import expect, expect_same, raises
from ..harness import STATE_STORE, Harness
from ..tools.dump import dump
from ..tools.sample import push, put, writes

check = STATE_STORE.check


async def _custom(store: StateStore) -> Any:
    state = await store.load_state("a")
    return None if state is None else state.custom_state


@check("input", "an op that is dropped leaves everything else unchanged")
async def dropped_ops_change_nothing(harness: Harness) -> None:
    store = await harness.open()
    before = {"kept": 1, "items": [1, 2, 3], "o": {"x": 1}}
    await store.create_session("a", agent_type="agent", custom_state=before)
    hopeless: list[dict[str, Any]] = [
        {"kind": "replace", "path": [], "value": 5},
        {"kind": "replace", "path": []},
        {"kind": "delete", "path": []},
        {"kind": "nonsense", "path": ["kept"]},
        {"kind": "replace", "value": 1},
    ]
    for op in hopeless:
        ops = writes(put("items", 2, value=3), op)
        expect(await store.merge_custom_state("a", ops), f"{op} was dropped without a warning")
        expect_same(await _custom(store), before, f"custom state after merging {op}")
        await store.stage_changes("a", "step-1", ops, tool_call_id="call-1")
        expect(await store.promote_staging("a", "step-1"), f"{op} was dropped without a warning")
        expect_same(await _custom(store), before, f"custom state after promoting {op}")


@check("input", "an index refers to the stored list, never to items that are being appended")
async def positions_mean_the_base(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="agent", custom_state={"items": [1, 2, 3, 4, 5]})
    ops = writes(push("items", items=["a", "b", "c"]), put("items", 0, value=0), put("items", 2000, value="lost"))
    expect(await store.merge_custom_state("a", ops), "a lost write without a warning")
    await store.merge_custom_state("a", writes(push("items", items=["d"] * 9), put("items", 8, value="missed")))
    expect_same(await _custom(store), {"items": [0, 2, 3, 4, 5, "a", "b", "c", *["d"] * 9]}, "custom state")
    replaced = writes(put("items", value=list(range(20))), push("items", items=["e"]), put("items", 18, value="hit"))
    expect_same(await store.merge_custom_state("a", replaced), [], "warnings of a list that was replaced")
    expect_same(await _custom(store), {"items": [*range(18), "hit", 19, "e"]}, "custom state after a replacement")


@check("input", "numbers with thousands of digits in an op are rejected with a library error")
async def endless_numbers_in_ops(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="agent", custom_state={"k": [1]})
    before = await dump(store)
    endless = 10**5000
    odd: tuple[dict[str, Any], ...] = (
        {"kind": "replace", "path": ["k", endless], "value": 1},
        {"kind": "replace", "path": [endless], "value": 1},
        {"kind": "replace", "key": endless, "value": 1},
        {"kind": endless, "path": ["k"], "value": 1},
        {"kind": "replace", "path": ["k"], "value": endless},
        {"kind": "increment", "path": ["n"], "by": endless, "value": 0},
    )
    for op in odd:
        with raises(NotSerializable, "an op with a number of thousands of digits"):
            await store.merge_custom_state("a", writes(op))
    expect_same(await dump(store), before, "all data")
