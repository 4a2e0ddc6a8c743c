"""S8: a checkpoint returns the exact state at its commit, and costs what the step wrote."""

from __future__ import annotations

from typing import Any

import msgspec

from ...stores.state.contract import StateStore
from ...types import Checkpoint
from ..expect import expect, expect_same, plain
from ..harness import STATE_STORE, Harness
from ..registry import NotApplicable
from ..tools.dump import CHECKPOINT_ID
from ..tools.sample import add, awkward_state, drop, full_state, meta, plain_state, push, put, user, writes

check = STATE_STORE.check


async def _expected(store: StateStore, session_id: str = "a") -> Any:
    """Return what a checkpoint made just now must hold. The flag is not part of a commit, nor is the clock."""
    loaded = plain(await store.load_state(session_id))
    return {key: value for key, value in loaded.items() if key not in ("updated_at", "interrupt_flag")}


def _held(made: Checkpoint | None) -> Any:
    held = plain(made.state) if made else {}
    return {key: value for key, value in held.items() if key not in ("updated_at", "interrupt_flag")}


async def _commit(store: StateStore, step: int, session_id: str = "a", **fields: Any) -> tuple[str, Any]:
    done = await store.save_state_and_promote_staging(
        session_id, plain_state(session_id, **fields), [user(f"message {step}")], meta(step, "step-1", step)
    )
    return done.checkpoint_id, await _expected(store, session_id)


async def _all_exact(store: StateStore, history: list[tuple[str, Any]]) -> None:
    for number, (checkpoint_id, expected) in enumerate(history):
        made = await store.get_checkpoint("a", checkpoint_id)
        expect_same(_held(made), expected, f"the state of checkpoint {number}")


@check("S8", "checkpoint ids have the documented form")
async def ids_have_the_promised_form(harness: Harness) -> None:
    store = await harness.open()
    for session_id in ("a", "with-s1-t2-abcdef dashes", "ünï/~😀", "x" * 256):
        await store.create_session(session_id, agent_type="agent")
        ids = [(await _commit(store, step, session_id))[0] for step in (5, 5, 6)]
        expect_same(len(set(ids)), 3, "different checkpoint ids")
        for step, found in zip((5, 5, 6), ids, strict=True):
            matched = CHECKPOINT_ID.fullmatch(found)
            expect(matched is not None, f"the checkpoint id {found!r} has another form")
            assert matched is not None
            expect_same((matched["session"], int(matched["step"])), (session_id, step), f"the parts of {found!r}")


@check("S8", "every checkpoint of a long history returns its exact state")
async def long_history_is_exact(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="agent", custom_state={"items": [], "n": 0, "big": ["x" * 50] * 100})
    history = []
    for step in range(1, 61):
        ops = [push("items", items=[step]), add("n"), put(f"key {step % 7}", value={"step": step})]
        if step % 10 == 0:
            ops.append(put("big", step, value=f"changed {step}"))
        await store.stage_changes("a", "step-1", writes(*ops), tool_call_id="call-1")
        history.append(await _commit(store, step, output=step))
    await _all_exact(store, history)
    await _all_exact(await harness.reopen(), history)


@check("S8", "checkpoints are exact when merges, saves and promotions happened between the commits")
async def exact_among_other_writes(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="agent", custom_state={"items": [1], "o": {"a": 1}})
    history = [await _commit(store, 1)]
    for step in range(2, 12):
        await store.merge_custom_state("a", writes(push("items", items=[step]), put("o", f"m{step}", value=step)))
        if step % 3 == 0:
            await store.save_state("a", plain_state("a", custom_state={"items": [step], "o": {}, f"k{step}": [step]}))
        if step % 4 == 0:
            await store.stage_changes("a", "step-2", writes(drop("o", "a"), add("n")), tool_call_id="call-1")
            await store.promote_staging("a", "step-2")
        if step % 2 == 0:
            history.append(await _commit(store, step))
        await store.merge_custom_state("a", writes(add("after")))
    await _all_exact(store, history)


@check("S8", "checkpoints are exact when keys were deleted and created again with another type")
async def exact_through_changes_of_type(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="agent", custom_state={"v": [1, 2, 3], "w": {"m": [1]}})
    values: list[Any] = [{"o": 1}, [], [9], "text", {"o": {}}, [[1], [2]], None, {}, 5, [1, 2, 3, 4]]
    history = [await _commit(store, 1)]
    for step, value in enumerate(values, start=2):
        await store.merge_custom_state("a", writes(drop("v"), drop("w", "m")))
        history.append(await _commit(store, step))
        await store.merge_custom_state("a", writes(put("v", value=value), put("w", "m", value=value)))
        history.append(await _commit(store, step))
        if isinstance(value, list):
            await store.merge_custom_state("a", writes(push("v", items=["more"]), push("w", "m", items=["more"])))
            history.append(await _commit(store, step))
    await _all_exact(store, history)


@check("S8", "a list that shrinks and grows again is exact at every checkpoint")
async def exact_when_lists_shrink(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="agent", custom_state={"v": list(range(20))})
    history = [await _commit(store, 1)]
    for step, length in enumerate((5, 12, 0, 3, 30, 29), start=2):
        await store.merge_custom_state("a", writes(put("v", value=[f"{step}.{n}" for n in range(length)])))
        history.append(await _commit(store, step))
        await store.merge_custom_state("a", writes(push("v", items=[step])))
        history.append(await _commit(store, step))
        await store.merge_custom_state("a", writes(put("v", 0, value={"first": step})))
        history.append(await _commit(store, step))
    await _all_exact(store, history)


@check("S8", "a checkpoint holds every field and every unusual value")
async def checkpoint_holds_every_field(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="agent")
    state = full_state("a")
    first = await store.save_state_and_promote_staging("a", state, [], meta(1))
    expected = await _expected(store)
    await store.save_state("a", plain_state("a", custom_state=awkward_state()))
    second = await _commit(store, 2)
    await store.save_state("a", plain_state("a", custom_state={}))
    await _all_exact(await harness.reopen(), [(first.checkpoint_id, expected), second])


@check("S8", "checkpoints are listed newest first, in pages, without custom state")
async def checkpoints_are_listed(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="agent", custom_state={"x": 1})
    expect_same((await store.list_checkpoints("a")).total, 0, "checkpoints of a new session")
    ids = [(await _commit(store, step))[0] for step in range(1, 8)]
    page = await store.list_checkpoints("a", limit=3, offset=2)
    expect_same([it.checkpoint_id for it in page.items], ids[::-1][2:5], "the second page")
    expect_same((page.total, page.has_more, page.offset, page.limit), (7, True, 2, 3), "the page")
    last = await store.list_checkpoints("a", limit=3, offset=4)
    expect_same((len(last.items), last.has_more), (3, False), "the last page")
    beyond = await store.list_checkpoints("a", offset=7)
    expect_same((beyond.items, beyond.total, beyond.has_more), ([], 7, False), "a page beyond the end")
    expect(all(it.state.custom_state is None for it in page.items), "a listed checkpoint carries custom state")
    got = [(it.step_count, it.stream_sequence, it.message_count, it.version) for it in page.items]
    expect_same(got, [(5, 5, 5, 6), (4, 4, 4, 5), (3, 3, 3, 4)], "the fields of the listed checkpoints")
    newest = await store.get_latest_checkpoint("a")
    expect_same(newest, await store.get_checkpoint("a", ids[-1]), "the latest checkpoint")


@check("S8", "loading an unknown checkpoint returns None")
async def unknown_checkpoint_is_none(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="agent")
    await store.create_session("b", agent_type="agent")
    theirs, _ = await _commit(store, 1, "b")
    for unknown in ("cpv1-a-s1-t1-aaaaaa", "nonsense", theirs):
        expect(await store.get_checkpoint("a", unknown) is None, f"get_checkpoint found {unknown!r}")


@check("S8", "checkpoints of many small steps do not copy a large state or a long history")
async def storage_grows_with_what_is_written(harness: Harness) -> None:
    store = await harness.open()
    if await harness.stored_bytes() is None:
        raise NotApplicable("the harness cannot tell how many bytes the data takes")
    big = {"big": ["y" * 100] * 2000, "items": []}
    await store.create_session("a", agent_type="agent", custom_state=big)
    await store.append_messages("a", [user("z" * 200)] * 1000)
    await _commit(store, 1)
    before = await harness.stored_bytes() or 0
    for step in range(2, 102):
        await store.stage_changes("a", "step-1", writes(push("items", items=[step])), tool_call_id="call-1")
        await _commit_quickly(store, step)
    grown = (await harness.stored_bytes() or 0) - before
    # A hundred copies of the state alone would be 20 MB; an occasional snapshot is allowed.
    expect(grown < 3_000_000, f"100 small commits beside a state of 200 KB took {grown} bytes")


async def _commit_quickly(store: StateStore, step: int) -> None:
    await store.save_state_and_promote_staging("a", plain_state("a"), [user("small")], meta(step, "step-1", step))


@check("S8", "a checkpoint has the request that led to its step, also in a fork and after a restore")
async def requests_are_recorded(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="agent")
    asked: list[Any] = [{"model": "m\u00fc\x00", "window": [0, 1], "scale": 1.0}, None, {}]
    ids = []
    for step, request in enumerate(asked, 1):
        said = msgspec.structs.replace(meta(step, f"step-{step}"), request=request)
        done = await store.save_state_and_promote_staging("a", plain_state("a"), [user("q")], said)
        ids.append(done.checkpoint_id)
    found = [await store.get_checkpoint("a", each) for each in ids]
    expect_same([each and each.request for each in found], asked, "the requests")
    listed = {each.checkpoint_id: each.request for each in (await store.list_checkpoints("a")).items}
    expect_same([listed[each] for each in ids], asked, "the requests in a list")
    await store.fork_session("a", "b", checkpoint_id=ids[1])
    await store.restore_checkpoint("a", ids[0])
    kept = await store.get_latest_checkpoint("a")
    expect_same(kept and kept.request, asked[0], "the request after a restore")
    loaded = plain(await store.load_state("a"))
    expect("request" not in loaded, "the request became part of the session")
