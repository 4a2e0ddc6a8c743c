"""S17: the end of a conversation is stored as a branch, can be restored exactly, and costs its own size."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from ...errors import CheckpointNotFound, InvalidArgument, SessionNotFound, VersionConflict
from ...stores.state.contract import StateStore
from ...types import BranchPoint, Owner, PendingClientToolCall
from ..expect import expect, expect_same, plain, raises
from ..harness import STATE_STORE, Harness, readers
from ..registry import NotApplicable
from ..tools.dump import dump, dump_session
from ..tools.operations import branch, left_branch, prepare, prepare_branched, turn_meta
from ..tools.sample import add, meta, plain_state, push, put, user, writes
from .s13_flat_cost import weighed

check = STATE_STORE.check

OF_THE_MOMENT = ("version", "updated_at", "interrupt_flag", "owner_epoch")


async def _view(store: StateStore, session_id: str = "a") -> Any:
    """Return all that switching to a branch must restore."""
    found = await dump_session(store, session_id)
    assert found is not None
    state = {name: value for name, value in found["state"].items() if name not in OF_THE_MOMENT}
    return {"state": state, **{part: found[part] for part in ("messages", "checkpoints", "staged", "message_count")}}


async def _suspended(store: StateStore, session_id: str = "a", turns: int = 3) -> None:
    """Create a session of several turns that waits for a response in the middle of a step."""
    await store.create_session(session_id, agent_type="agent", custom_state={"items": [0], "o": {}, "n": 0, "p": "x"})
    for turn in range(1, turns + 1):
        ops = writes(push("items", items=[turn]), put("o", f"m{turn}", value=[turn]), add("n"), put("p", value=[turn]))
        await store.stage_changes(session_id, "step-1", ops, tool_call_id="call-1")
        said = [user(f"question {turn}"), user(f"reply {turn}")]
        await store.save_state_and_promote_staging(session_id, plain_state(session_id), said, meta(turn, "step-1"))
    await store.merge_custom_state(session_id, writes(put("since", value=True), put("items", value=["all new"])))
    await store.stage_changes(session_id, "step-2", writes(add("n")), tool_call_id="call-2", result={"done": True})
    waiting = msgspec.structs.replace(
        plain_state(session_id),
        status="suspended_client_tool",
        step_count=turns,
        pending_client_tool_calls={"call-3": PendingClientToolCall("call-3", "ask", {"q": 1})},
    )
    await store.save_state(session_id, waiting)


async def _rested(store: StateStore) -> Any:
    """Return what switching to a branch restores if no run is active."""
    await store.update_status("a", "completed")
    return await _view(store)


@check("S17", "switching to a branch restores messages, custom state, status, staging and checkpoints exactly")
async def branch_comes_back(harness: Harness) -> None:
    store = await harness.open()
    await _suspended(store)
    before = await _view(store)
    for kept in (6, 4, 3, 2, 1, 0):
        if kept < 6:
            done = await branch(store, "a", kept, branch_id=f"branch-{kept}")
            expect_same(done.branch_id, f"branch-{kept}", "the branch that is active")
            found = await store.get_messages("a", limit=None)
            expect_same(found.items[:kept], before["messages"][:kept], "the messages that stay")
            expect_same(len(found.items), kept + 2, "all messages")
            await store.merge_custom_state("a", writes(push("items", items=["other"]), put("p", value={"q": 1})))
            await store.stage_changes("a", "step-3", writes(add("n")), tool_call_id="call-1")
            left = await _rested(store)
            first = (await store.list_branches("a"))[0]
            target = next(it for it in await store.list_branches("a") if it.message_count == 6)
            version = await store.switch_branch("a", target.branch_id)
            expect_same(await _view(store), before, f"the branch that was left after {kept} messages")
            await store.switch_branch("a", f"branch-{kept}", expected_version=version)
            expect_same(await _view(store), left, "the other branch")
            await store.switch_branch("a", target.branch_id)
            expect(first.message_id is not None, "a branch does not name its start")
    async for reader in readers(harness, store):
        expect_same(await _view(reader), before, "the session at the end")


@check("S17", "branching resets custom state to the branch point; runs, refs, flag and labels stay")
async def point_is_exact(harness: Harness) -> None:
    store = await harness.open()
    await prepare(store, "a")
    before = await dump_session(store, "a")
    oldest = (await store.list_checkpoints("a")).items[-1]
    then = await store.get_checkpoint("a", oldest.checkpoint_id)
    labelled = msgspec.structs.replace(plain_state("a"), metadata={"title": "t"}, tags=("x",))
    await store.save_state("a", labelled)
    point = BranchPoint("branch-new", oldest.checkpoint_id, 3)
    done = await store.branch_session("a", point, labelled, [user("new")], turn_meta(1), expected_version=4)
    expect_same((done.new_version, done.message_count), (5, 4), "the returned branch")
    after = await dump_session(store, "a")
    assert before is not None
    assert after is not None
    assert then is not None
    expect_same(after["state"]["custom_state"], then.state.custom_state, "custom state at the branch point")
    expect_same((after["staged"], after["checkpoint_total"]), ({}, 2), "staged rows and checkpoints")
    for part in ("flag", "runs", "refs"):
        expect_same(after[part], before[part], part)
    await store.switch_branch("a", await left_branch(store, "a"))
    back = await store.load_state("a")
    assert back is not None
    expect_same((back.metadata, back.tags, back.status), ({"title": "t"}, ("x",), "interrupted"), "labels and status")


@check("S17", "branches of branches can be switched to from any branch")
async def branches_of_branches(harness: Harness) -> None:
    store = await harness.open()
    await _suspended(store)
    original = await _view(store)
    await branch(store, "a", 2, branch_id="other")
    root = await left_branch(store, "a")
    ends = {}
    for at, kept in (("other", 3), (root, 4)):  # a fork within each of the two
        await store.switch_branch("a", at)
        before = original if at == root else await _rested(store)
        known = {it.branch_id for it in await store.list_branches("a")}
        await branch(store, "a", kept, branch_id=f"{kept} of {at}")
        await store.merge_custom_state("a", writes(push("items", items=[kept]), put("o", f"n{kept}", value=1)))
        ends[f"{kept} of {at}"] = await _rested(store)
        left = [it.branch_id for it in await store.list_branches("a") if it.branch_id not in known and not it.is_active]
        ends[left[0]] = before
    names = list(ends)
    for name in (*names, *reversed(names), names[0], names[2], names[1], names[3]):
        await store.switch_branch("a", name)
        expect_same(await _view(store), ends[name], f"branch {name}")
    expect_same(sum(it.is_active for it in await store.list_branches("a")), 2, "branches on the path to the last one")


@check("S17", "messages appended with a switch follow the messages of that branch and appear in no other")
async def appended_with_a_switch(harness: Harness) -> None:
    store = await harness.open()
    await _suspended(store)
    original = await _view(store)
    await branch(store, "a", 2, branch_id="other")
    other, root = await _rested(store), await left_branch(store, "a")
    await store.switch_branch("a", root, append_messages=[user("since then")])
    expect_same((await _view(store))["messages"], [*original["messages"], user("since then")], "the branch")
    version = (await store.load_state("a") or plain_state("a")).version
    expect_same(await store.switch_branch("a", root, append_messages=[user("again")]), version, "the version")
    await store.switch_branch("a", "other")
    expect_same(await _view(store), other, "the other branch")
    await store.switch_branch("a", root)
    expect_same((await _view(store))["messages"], [*original["messages"], user("since then")], "the branch, later")


@check("S17", "siblings share a message, one of each group is active, and a branch without messages is dropped")
async def siblings_are_listed(harness: Harness) -> None:
    store = await harness.open()
    await _suspended(store)
    expect_same(await store.list_branches("a"), [], "branches of a session that was never branched")
    for number in range(3):
        await branch(store, "a", 2, branch_id=f"branch-{number}")
    found = await store.list_branches("a")
    expect_same([it.message_id for it in found], ["message 2"] * 4, "where they start")
    expect_same([it.is_active for it in found], [False, False, False, True], "which is active")
    expect_same([it.message_count for it in found], [6, 4, 4, 4], "how long the conversations are")
    await store.truncate_messages("a", 2)
    done = await branch(store, "a", 2, branch_id="branch-3")
    expect_same(done.branch_id, "branch-2", "the active branch after leaving one without messages")
    expect_same(len(await store.list_branches("a")), 4, "branches")
    with raises(InvalidArgument, "a branch that does not exist"):
        await store.switch_branch("a", "branch-3")


@check("S17", "when many callers branch a conversation at one version, exactly one succeeds", kind="tasks")
async def one_leaves(harness: Harness) -> None:
    stores = [await harness.open() for _ in range(4)]
    await _suspended(stores[0])
    state = await stores[0].load_state("a")
    assert state is not None

    async def leave(number: int) -> str:
        try:
            await branch(stores[number % 4], "a", 2, branch_id=f"branch-{number}", expected_version=state.version)
        except VersionConflict:
            return "conflict"
        return "won"

    answers = await asyncio.gather(*(leave(number) for number in range(harness.options.tasks)))
    expect_same(sorted(set(answers)), ["conflict", "won"], "answers")
    expect_same(answers.count("won"), 1, "winners")
    expect_same(len(await stores[0].list_branches("a")), 2, "branches")


@check("S17", "a concurrent write ends on one branch or the other and is never lost", kind="tasks")
async def nothing_is_lost(harness: Harness) -> None:
    stores = [await harness.open() for _ in range(4)]
    await _suspended(stores[0])
    count = harness.options.tasks

    async def write(number: int) -> None:
        store = stores[number % 4]
        await store.append_messages("a", [user(f"extra {number}")])
        await store.merge_custom_state("a", writes(put("o", f"w{number}", value=True)))

    await asyncio.gather(*(write(number) for number in range(count)), branch(stores[1], "a", 2))
    texts: list[str] = []
    written: set[str] = set()
    for branch_id in ("branch-new", await left_branch(stores[0], "a")):
        await stores[0].switch_branch("a", branch_id)
        texts += [it["content"] for it in (await stores[0].get_messages("a", limit=None)).items]
        state = await stores[0].load_state("a")
        assert state is not None
        written |= {name for name in (state.custom_state or {})["o"] if name.startswith("w")}
    extra = sorted(it for it in texts if it.startswith("extra"))
    expect_same(extra, sorted(f"extra {number}" for number in range(count)), "messages")
    expect_same(sorted(written), sorted(f"w{number}" for number in range(count)), "writes")


@check("S17", "a wrong point, branch, version or owner changes nothing")
async def wrong_is_refused(harness: Harness) -> None:
    store = await harness.open()
    await prepare_branched(store, "a")
    await prepare(store, "b")
    await branch(store, "b", branch_id="theirs")
    theirs, state = await left_branch(store, "b"), plain_state("a")
    newest, *_, oldest = (await store.list_checkpoints("a")).items
    before = await dump(store)

    def leave(checkpoint_id: str, kept: Any, **options: Any) -> Any:
        point = BranchPoint("branch-x", checkpoint_id, kept)
        return store.branch_session("a", point, state, [user("x")], turn_meta(1), **options)

    with raises(CheckpointNotFound, "an unknown checkpoint"):
        await leave("cpv1-a-s1-t1-aaaaaa", 2)
    for checkpoint_id, kept in ((newest.checkpoint_id, 1), (oldest.checkpoint_id, 99), (oldest.checkpoint_id, -1)):
        with raises(InvalidArgument, f"{kept} messages"):
            await leave(checkpoint_id, kept)
    with raises(VersionConflict, "an old version"):
        await leave(oldest.checkpoint_id, 2, expected_version=1)
    with raises(SessionNotFound, "another incarnation"):
        await leave(oldest.checkpoint_id, 2, owner=Owner("other"))
    for unknown in ("unknown", theirs, "", 7):
        with raises(InvalidArgument, f"branch {unknown!r}"):
            await store.switch_branch("a", unknown)  # type: ignore[arg-type]  # what is refused
    mine = await left_branch(store, "a")
    with raises(VersionConflict, "an old version"):
        await store.switch_branch("a", mine, expected_version=1)
    with raises(SessionNotFound, "another incarnation"):
        await store.switch_branch("a", mine, owner=Owner("other"))
    for call in (store.switch_branch("none", mine), store.list_branches("none")):
        with raises(SessionNotFound, "a session that does not exist"):
            await call
    expect_same(await dump(store), before, "all data")


@check("S17", "a restore drops branches that start later, a fork has none, and other branches stay intact")
async def restore_and_fork_of_branches(harness: Harness) -> None:
    store = await harness.open()
    await _suspended(store)
    early = (await store.list_checkpoints("a")).items[1]
    await branch(store, "a", 5, branch_id="late")
    late = await left_branch(store, "a")
    await branch(store, "a", 2, branch_id="early")
    fork = await store.fork_session("a", "b")
    expect_same(await store.list_branches("b"), [], "branches of the fork")
    expect(fork.forked_from is not None, "the fork does not name its origin")
    with raises(CheckpointNotFound, "a checkpoint of a branch that is not active"):
        await store.restore_checkpoint("a", early.checkpoint_id)
    await store.switch_branch("a", late)
    await store.restore_checkpoint("a", early.checkpoint_id)
    expect_same([it.message_id for it in await store.list_branches("a")], ["message 2", "message 2"], "what is left")
    for gone in (late, "late"):
        with raises(InvalidArgument, "a branch that was dropped"):
            await store.switch_branch("a", gone)
    await store.switch_branch("a", "early")
    expect_same((await store.get_message_count("a"), await store.get_message_count("b")), (4, 4), "messages")


@check("S17", "deleting a session deletes its branches, in the raw data as well")
async def deleted_with_its_session(harness: Harness) -> None:
    store, name = await harness.open(), "unmistakable-session"
    await prepare_branched(store, name)
    expect_same(await store.list_orphans(), [], "rows that look unowned")
    await store.delete_session(name)
    await store.create_session(name, agent_type="agent")
    expect_same(await store.list_branches(name), [], "branches of a recreated session")
    await store.delete_session(name)
    traces = await harness.traces(name)
    if traces is None:
        raise NotApplicable("the harness cannot look into the raw data")
    expect_same(traces, [], "traces of the deleted session")


@check("S17", "two hundred branches are listed, and each can be brought back")
async def two_hundred_branches(harness: Harness) -> None:
    store = await harness.open()
    await prepare(store, "a")
    for number in range(199):
        await branch(store, "a", 2, branch_id=f"branch-{number}")
    found = await store.list_branches("a")
    expect_same((len(found), sum(it.is_active for it in found)), (200, 1), "branches, and active ones")
    for number in (0, 150, 198):
        await store.switch_branch("a", f"branch-{number}")
        last = (await store.get_messages("a", offset=-1, limit=1)).items[0]
        expect_same(last["content"], f"branch-{number}", "the last message")


@check("S17", "branching and switching cost the same in a long conversation and beside a large state")
async def branching_is_flat(harness: Harness) -> None:
    maker = await harness.open()
    costs: dict[int, int] = {}
    for size in (10, 1000):
        session_id = f"session-{size}"
        custom = {"items": [f"item {n}" for n in range(size)], "o": {f"m {n}": n for n in range(size)}}
        await maker.create_session(session_id, agent_type="agent", custom_state=custom)
        await maker.append_messages(session_id, [user("y" * 20)] * size)
        for step in (1, 2):
            await maker.stage_changes(session_id, "step-1", writes(push("items", items=[step])), tool_call_id="call-1")
            said = [user("asked"), user("replied")]
            await maker.save_state_and_promote_staging(session_id, plain_state(session_id), said, meta(step, "step-1"))
        newest = (await maker.list_checkpoints(session_id, limit=1)).items[0]
        point = BranchPoint("branch-new", newest.checkpoint_id, size + 3)

        async def act(store: StateStore, name: str, point: BranchPoint = point) -> None:
            await store.branch_session(name, point, plain_state(name), [user("new")], turn_meta(2))
            await store.switch_branch(name, await left_branch(store, name))

        costs[size] = await weighed(await harness.open(), act, session_id)
    small, large = costs[10], costs[1000]
    expect(large <= small * 1.5 + 200, f"branching moved {small} bytes after 10 messages and {large} after 1,000")
    expect_same(plain(await maker.list_branches("session-10"))[0]["is_active"], True, "the first branch is active")
