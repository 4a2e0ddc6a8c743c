"""Incarnation, owner epoch and identity: who may write to a session, and which session it is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from ...errors import EpochConflict, HelixError, InvalidArgument, SessionNotFound, VersionConflict
from ...stores.state.commit import RunChange
from ...stores.state.contract import StateStore
from ...types import Owner, RunRecord, SessionState, StatusConflict
from ..expect import expect, expect_same, raises
from ..harness import STATE_STORE, Harness
from ..tools.crew import crew
from ..tools.dump import dump
from ..tools.operations import prepare
from ..tools.sample import full_state, meta, put, ref, user, writes

check = STATE_STORE.check

Guarded = Callable[[Owner], Awaitable[Any]]


def _guarded_writes(store: StateStore, state: SessionState) -> dict[str, Guarded]:
    """Return every write that takes an owner, on session `a` as `prepare` left it."""
    fields = msgspec.structs.replace(state, custom_state=None, incarnation="", created_at=0)

    async def restore(owner: Owner) -> None:
        oldest = (await store.list_checkpoints("a")).items[-1]
        await store.restore_checkpoint("a", oldest.checkpoint_id, owner=owner)

    return {
        "save_state": lambda owner: store.save_state("a", fields, owner=owner),
        "save_state_and_promote_staging": lambda owner: store.save_state_and_promote_staging(
            "a", fields, [user("no")], meta(3, "step-1"), owner=owner
        ),
        "stage_changes": lambda owner: store.stage_changes(
            "a", "step-1", writes(put("k", value=1)), tool_call_id="call-7", owner=owner
        ),
        "discard_staging": lambda owner: store.discard_staging("a", owner=owner),
        "append_messages": lambda owner: store.append_messages("a", [user("no")], owner=owner),
        "merge_custom_state": lambda owner: store.merge_custom_state("a", writes(put("k", value=1)), owner=owner),
        "update_status": lambda owner: store.update_status("a", "paused", owner=owner),
        "set_interrupt_flag": lambda owner: store.set_interrupt_flag("a", "no", owner=owner),
        "clear_interrupt_flag": lambda owner: store.clear_interrupt_flag("a", owner=owner),
        "add_sub_session_refs": lambda owner: store.add_sub_session_refs("a", [ref("sub-9")], owner=owner),
        "update_sub_session_ref": lambda owner: store.update_sub_session_ref("a", "sub-1", owner=owner, status="no"),
        "truncate_messages": lambda owner: store.truncate_messages("a", 1, owner=owner),
        "create_run": lambda owner: store.create_run("a", "run-no", owner=owner),
        "update_run_status": lambda owner: store.update_run_status("run-of-a", "completed", output=1, owner=owner),
        "restore_checkpoint": restore,
        "delete_session": lambda owner: store.delete_session("a", owner=owner),
    }


async def _claimed(store: StateStore, epoch: int = 1) -> SessionState:
    """Return session `a` with every kind of data, claimed."""
    await prepare(store, "a")
    state = await store.load_state("a")
    assert state is not None
    await store.save_state("a", msgspec.structs.replace(state, custom_state=None), new_epoch=epoch)
    claimed = await store.load_state("a")
    assert claimed is not None
    return claimed


@check("owner", "every session has its own incarnation, which stays until it is deleted")
async def incarnations_differ(harness: Harness) -> None:
    store = await harness.open()
    await prepare(store, "a")
    made = await store.load_state("a")
    assert made is not None
    expect(made.incarnation, "a session has no incarnation")
    await store.save_state("a", full_state("a"))
    checkpoints = (await store.list_checkpoints("a")).items
    expect_same([it.state.incarnation for it in checkpoints], [made.incarnation] * 2, "the incarnation in checkpoints")
    await store.restore_checkpoint("a", checkpoints[-1].checkpoint_id)
    again = await (await harness.reopen()).load_state("a")
    expect_same(again.incarnation if again else None, made.incarnation, "the incarnation after a restore")
    store = await harness.open()
    oldest = checkpoints[-1].checkpoint_id
    forks = [await store.fork_session("a", "b"), await store.fork_session("a", "c", checkpoint_id=oldest)]
    await store.delete_session("a")
    born = await store.create_session("a", agent_type="agent")
    everybody = {made.incarnation, born.incarnation, *(fork.incarnation for fork in forks)}
    expect_same(len(everybody), 4, "the number of incarnations")
    listed = {it.session_id: it.incarnation for it in (await store.list_sessions()).items}
    expect_same(listed["a"], born.incarnation, "the incarnation in a listing")


@check("owner", "only claims raise the epoch, a restore keeps it, and a fork starts over")
async def epoch_only_grows(harness: Harness) -> None:
    store = await harness.open()
    made = await store.create_session("new", agent_type="agent", owner_epoch=4)
    loaded = await store.load_state("new")
    expect_same((made.owner_epoch, loaded.owner_epoch if loaded else None), (4, 4), "the epoch of a new session")
    state = await _claimed(store, 7)
    expect_same(state.owner_epoch, 7, "the epoch after a claim")
    fields = msgspec.structs.replace(state, custom_state=None, owner_epoch=99)
    version = await store.save_state("a", fields)
    done = await store.save_state_and_promote_staging("a", fields, [], meta(4), new_epoch=8, expected_version=version)
    checkpoint = await store.get_checkpoint("a", done.checkpoint_id)
    expect_same(checkpoint.state.owner_epoch if checkpoint else None, 0, "the epoch that a checkpoint holds")
    before = await dump(store)
    for epoch in (1, 7, 8):
        with raises(EpochConflict, f"a claim with epoch {epoch}") as caught:
            await store.save_state("a", fields, new_epoch=epoch)
        expect_same(getattr(caught.error, "current_epoch", None), 8, "the epoch that the error names")
        with raises(EpochConflict, f"a restore with epoch {epoch}"):
            await store.restore_checkpoint("a", done.checkpoint_id, new_epoch=epoch)
    expect_same(await dump(store), before, "all data after claims that came too late")
    await store.restore_checkpoint("a", done.checkpoint_id)
    await store.restore_checkpoint("a", done.checkpoint_id, new_epoch=11)
    fork = await store.fork_session("a", "b")
    again = await harness.reopen()
    restored, forked = await again.load_state("a"), await again.load_state("b")
    expect_same(restored.owner_epoch if restored else None, 11, "the epoch after restores")
    expect_same((fork.owner_epoch, forked.owner_epoch if forked else None), (0, 0), "the epoch of a fork")


@check("owner", "a restore can end a run in the same commit")
async def restore_ends_a_run(harness: Harness) -> None:
    store = await harness.open()
    await prepare(store, "a")
    oldest = (await store.list_checkpoints("a")).items[-1]
    (seen,) = await store.list_runs("a")
    ended = msgspec.structs.replace(seen, status="interrupted", error="undone", completed_at=9)
    await store.restore_checkpoint("a", oldest.checkpoint_id, change_run=RunChange(seen, ended), new_epoch=1)
    expect_same(await store.list_runs("a"), [ended], "the runs")


@check("owner", "the holder of the epoch may write; a process that was replaced changes nothing")
async def replaced_owner_changes_nothing(harness: Harness) -> None:
    store = await harness.open()
    state = await _claimed(store)
    before = await dump(store)
    for name, write in _guarded_writes(store, state).items():
        for epoch in (0, 2):
            with raises(EpochConflict, f"{name} with epoch {epoch}"):
                await write(Owner(state.incarnation, epoch))
    swapped = await store.compare_and_set_status("a", "active", "failed", owner=Owner(state.incarnation, 2))
    expect_same(swapped, StatusConflict("active", state.version), "a swap by a replaced owner")
    expect_same(await dump(store), before, "all data")
    for name in _guarded_writes(store, state):
        for owner in (lambda born: Owner(born, 1), Owner):
            await store.delete_session("a")
            state = await _claimed(store)
            before = await dump(store)
            await _guarded_writes(store, state)[name](owner(state.incarnation))
            expect(await dump(store) != before, f"{name} by the owner changed nothing")


@check("owner", "a session that was deleted and created again is another one for every guarded write")
async def made_again_is_another(harness: Harness) -> None:
    store, other = await harness.open(), await harness.open()
    old = await _claimed(store)
    await other.delete_session("a")
    new = await _claimed(other)
    expect_same(new.version, old.version, "whether the versions could be mixed up")
    before = await dump(store)
    for epoch in (1, None):
        owner = Owner(old.incarnation, epoch)
        for name, write in _guarded_writes(store, old).items():
            if name == "delete_session":
                expect_same(await write(owner), False, "what a delete returned")
            elif name == "update_run_status":
                with raises(HelixError, "a change of a deleted run"):
                    await write(owner)
            else:
                with raises(SessionNotFound, f"{name} of the deleted session"):
                    await write(owner)
        with raises(SessionNotFound, "a swap"):
            await store.compare_and_set_status("a", "active", "failed", owner=owner)
    stale = msgspec.structs.replace(old, custom_state=None)
    for guards in ({"expected_version": old.version}, {"owner": Owner(new.incarnation, 1)}):
        with raises(SessionNotFound, f"a state of the old session with {guards}"):
            await store.save_state("a", stale, **guards)
        with raises(SessionNotFound, f"a commit of the old session with {guards}"):
            await store.save_state_and_promote_staging("a", stale, [user("no")], meta(4), **guards)
    with raises(InvalidArgument, "a state of the old session without a guard"):
        await store.save_state("a", stale)
    expect_same(await dump(store), before, "all data")


@check("owner", "user, agent, creation time and incarnation of a session cannot change")
async def identity_cannot_change(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="agent", user_id="ann")
    await store.create_session("b", agent_type="agent")
    before = await dump(store)
    for session_id in ("a", "b"):
        state = await store.load_state(session_id)
        assert state is not None
        lies: tuple[dict[str, Any], ...] = (
            {"user_id": "bob"},
            {"user_id": None if session_id == "a" else "ann"},
            {"agent_type": "other"},
            {"created_at": state.created_at + 1},
            {"incarnation": "other"},
        )
        for lie in lies:
            with raises(InvalidArgument, f"a save of {session_id} with {lie}") as caught:
                await store.save_state(session_id, msgspec.structs.replace(state, **lie))
            expect(next(iter(lie)) in str(caught.error), f"the error does not name the field: {caught.error}")
            with raises(InvalidArgument, f"a commit of {session_id} with {lie}"):
                await store.save_state_and_promote_staging(
                    session_id, msgspec.structs.replace(state, **lie), [user("no")], meta()
                )
    expect_same(await dump(store), before, "all data")
    by_hand = SessionState("a", "agent", user_id="ann", output=1)
    expect_same(
        await store.save_state("a", by_hand, expected_version=1), 2, "the version after saving a state made by hand"
    )


@check("owner", "when many tasks claim a session, exactly one succeeds", kind="tasks")
async def one_task_claims(harness: Harness) -> None:
    stores = [await harness.open() for _ in range(4)]
    state = await stores[0].create_session("a", agent_type="agent", run=RunRecord("run-0", "a", 0, lease_until=1))
    (seen,) = await stores[0].list_runs("a")
    ended = msgspec.structs.replace(seen, status="interrupted", completed_at=2)

    async def claim(number: int) -> bool:
        try:
            await stores[number % 4].save_state(
                "a",
                msgspec.structs.replace(state, custom_state=None),
                owner=Owner(state.incarnation, 0),
                new_epoch=1,
                run=RunRecord(f"run-{number}", "a", 0, lease_until=90),
                change_run=RunChange(seen, ended),
            )
        except (EpochConflict, VersionConflict):
            return False
        return True

    won = await asyncio.gather(*(claim(number) for number in range(1, 13)))
    expect_same(sum(won), 1, "how many claims succeeded")
    runs = await stores[0].list_runs("a")
    expect_same([run.run_id for run in runs], ["run-0", f"run-{won.index(True) + 1}"], "the runs")
    expect_same([run.status for run in runs], ["interrupted", "running"], "their statuses")


@check("owner", "when many processes claim a session, exactly one succeeds", kind="processes")
async def one_process_claims(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="agent")
    async with crew(harness) as workers:
        for epoch in range(1, 4):
            everyone = [{"session_id": "a", "worker": f"w{n}", "epoch": epoch} for n in range(len(workers))]
            answers = await workers.run("claim", everyone)
            expect_same(answers.count("claimed"), 1, "how many claims succeeded")
            state = await store.load_state("a")
            expect_same(state.owner_epoch if state else None, epoch, "the epoch")
            expect_same(len(await store.list_runs("a")), epoch, "the number of runs")


@check("input", "invalid owners and epochs are rejected")
async def odd_owners(harness: Harness) -> None:
    store = await harness.open()
    state = await _claimed(store)
    before = await dump(store)
    for odd in (Owner("", 1), Owner("x", -1), Owner("x", True), Owner("x", 1.5), Owner(7), "x", ("x", 1)):  # type: ignore[arg-type]
        for name, write in _guarded_writes(store, state).items():
            with raises(InvalidArgument, f"{name} with {odd!r}"):
                await write(odd)  # type: ignore[arg-type]  # on purpose
    for epoch in (0, -1, 1.5, True, "1"):
        with raises(InvalidArgument, f"a claim with {epoch!r}"):
            await store.save_state("a", full_state("a"), new_epoch=epoch)  # type: ignore[arg-type]  # on purpose
    with raises(InvalidArgument, "a new session with a negative epoch"):
        await store.create_session("b", agent_type="agent", owner_epoch=-1)
    expect_same(await dump(store), before, "all data")
