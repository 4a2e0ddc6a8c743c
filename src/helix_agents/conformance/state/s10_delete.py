"""S10: a deleted session leaves nothing behind."""

from __future__ import annotations

from ..expect import expect, expect_same
from ..harness import STATE_STORE, Harness, readers
from ..registry import NotApplicable
from ..tools.dump import dump, portrait
from ..tools.operations import prepare
from ..tools.sample import ref

check = STATE_STORE.check


@check("S10", "a deleted session is not found by any method")
async def deleted_is_gone(harness: Harness) -> None:
    store = await harness.open()
    await prepare(store, "a")
    newest = await store.get_latest_checkpoint("a")
    assert newest is not None
    expect_same(await store.delete_session("a"), True, "the returned value")
    expect_same(await store.delete_session("a"), False, "what a second delete returned")
    expect_same(await store.session_exists("a"), False, "session_exists")
    expect(await store.load_state("a") is None, "load_state found it")
    expect(await store.get_checkpoint("a", newest.checkpoint_id) is None, "get_checkpoint found it")
    expect(await store.get_latest_checkpoint("a") is None, "get_latest_checkpoint found it")
    expect(await store.get_current_run("a") is None, "get_current_run found it")
    expect_same((await store.list_sessions()).total, 0, "sessions listed")


@check("S10", "a session created with the id of a deleted one has none of its data")
async def made_again_is_new(harness: Harness) -> None:
    store, other = await harness.open(), await harness.open()
    await prepare(store, "made-again")
    await other.load_state("made-again")
    await store.delete_session("made-again")
    await store.create_session("made-again", agent_type="agent")
    await other.create_session("brand-new", agent_type="agent")
    async for reader in readers(harness, other):
        again, fresh = await portrait(reader, "made-again"), await portrait(reader, "brand-new")
        expect(again is not None, "the recreated session cannot be read")
        expect_same(again, fresh, "the recreated session, compared with a new one")
    made_run = await (await harness.open()).create_run("made-again", "run-of-it")
    expect_same(made_run.turn, 1, "the turn of a run with the id of a deleted one")


@check("S10", "deleting a session deletes all its descendants")
async def delete_cascades(harness: Harness) -> None:
    store = await harness.open()
    family = {"a": None, "a.1": "a", "a.2": "a", "a.1.1": "a.1", "a.1.1.1": "a.1.1", "b": None, "b.1": "b"}
    for session_id, parent in family.items():
        await store.create_session(session_id, agent_type="agent", parent_session_id=parent)
        await store.create_run(session_id, f"run-of-{session_id}")
    await store.add_sub_session_refs("b", [ref("a.1"), ref("elsewhere", remote={"url": "x"})])
    await store.delete_session("a")
    left = await dump(await harness.reopen())
    expect_same(sorted(left), ["b", "b.1"], "sessions that are left")
    names = [it["sub_session_id"] for it in left["b"]["refs"]]
    expect_same(names, ["elsewhere"], "refs of a session that was not deleted")


@check("S10", "a session with many descendants is deleted with all of them")
async def delete_cascades_to_many(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("root", agent_type="agent")
    for number in range(130):
        await store.create_session(f"kid-{number}", agent_type="agent", parent_session_id="root")
    await store.create_session("grandkid", agent_type="agent", parent_session_id="kid-77")
    await store.delete_session("root")
    expect_same((await store.list_sessions()).total, 0, "sessions that are left")


@check("S10", "sessions that name each other as parents can be deleted")
async def delete_survives_a_circle(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="agent", parent_session_id="b")
    await store.create_session("b", agent_type="agent", parent_session_id="a")
    await store.create_session("self", agent_type="agent", parent_session_id="self")
    await store.delete_session("self")
    await store.delete_session("a")
    expect_same((await store.list_sessions()).total, 0, "sessions that are left")


@check("S10", "deleting a session that does not exist deletes nothing")
async def deleting_nothing_deletes_nothing(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("orphan", agent_type="agent", parent_session_id="never made")
    await store.add_sub_session_refs("orphan", [ref("never made")])
    before = await dump(store)
    expect_same(await store.delete_session("never made"), False, "the returned value")
    expect_same(await dump(store), before, "all data")


@check("S10", "the raw data of the backend no longer mentions a deleted session")
async def delete_leaves_no_trace(harness: Harness) -> None:
    store = await harness.open()
    name = "unmistakable-session"
    if await harness.traces(name) is None:
        raise NotApplicable("the harness cannot look into the raw data")
    await prepare(store, name)
    await store.create_session(f"{name}-kid", agent_type="agent", parent_session_id=name)
    await prepare(store, "other")
    expect(await harness.traces(name), "the harness finds no trace of an existing session")
    await store.delete_session(name)
    expect_same(await harness.traces(name), [], "traces of the deleted session")
    await store.delete_session("other")
    expect_same(await harness.traces("other"), [], "traces of another deleted session")
