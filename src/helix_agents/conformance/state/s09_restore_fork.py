"""S9: restoring a checkpoint, and forking from one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from ...errors import CheckpointNotFound, SessionExists, SessionNotFound
from ...stores.state.contract import StateStore
from ...types import ForkOrigin
from ..expect import expect, expect_same, plain, raises
from ..harness import STATE_STORE, Harness
from ..tools.dump import dump, dump_session, portrait
from ..tools.faults import verbs_of
from ..tools.sample import add, full_state, meta, plain_state, push, put, ref, user, writes

check = STATE_STORE.check

NOT_RESTORED = ("version", "updated_at", "interrupt_flag")
NOT_FORKED = (
    *NOT_RESTORED,
    "session_id",
    "stream_id",
    "created_at",
    "parent_session_id",
    "root_session_id",
    "incarnation",
    "forked_from",
    "status",
)


async def _history(store: StateStore, session_id: str = "a", steps: int = 5) -> list[tuple[str, Any]]:
    """Create a session with commits; return for each its checkpoint id and a dump of the session after it."""
    await store.create_session(session_id, agent_type="agent", custom_state={"items": [], "o": {}})
    history = []
    for step in range(1, steps + 1):
        ops = writes(push("items", items=[step]), put("o", f"m{step}", value=[step]), add("n"))
        await store.stage_changes(session_id, "step-1", ops, tool_call_id="call-1")
        state = plain_state(session_id, status="active" if step % 2 else "paused", output=f"out {step}")
        done = await store.save_state_and_promote_staging(
            session_id, state, [user(f"{step}"), user(f"{step} again")], meta(step, "step-1", step)
        )
        history.append((done.checkpoint_id, await dump_session(store, session_id)))
    return history


def _without(value: Any, names: tuple[str, ...]) -> Any:
    return {key: item for key, item in plain(value).items() if key not in names}


async def _is_back_at(store: StateStore, expected: Any, version: int) -> None:
    got = await dump_session(store, "a")
    assert got is not None
    expect_same(_without(got["state"], NOT_RESTORED), _without(expected["state"], NOT_RESTORED), "the session")
    expect_same(got["messages"], expected["messages"], "the messages")
    expect_same(got["checkpoints"], expected["checkpoints"], "the checkpoints that are left")
    expect_same(got["staged"], {}, "what is still staged")
    expect_same(got["state"]["version"], version, "the version")


@check("S9", "a restore brings back state, messages and status, and drops what came later")
async def restore_brings_back(harness: Harness) -> None:
    store = await harness.open()
    history = await _history(store)
    await store.merge_custom_state("a", writes(put("later", value=1)))
    await store.append_messages("a", [user("later")])
    await store.stage_changes("a", "step-1", writes(put("staged", value=1)), tool_call_id="call-1")
    await store.stage_changes("a", "step-2", writes(put("staged", value=1)), tool_call_id="call-1")
    target, expected = history[2]
    version = await store.restore_checkpoint("a", target, expected_version=6)
    expect_same(version, 7, "the returned version")
    await _is_back_at(store, expected, 7)
    store = await harness.reopen()
    await _is_back_at(store, expected, 7)
    for gone, _ in history[3:]:
        expect(await store.get_checkpoint("a", gone) is None, "a later checkpoint still exists")


@check("S9", "restore, commit, restore again: every checkpoint stays exact")
async def restore_again_and_again(harness: Harness) -> None:
    store = await harness.open()
    history = await _history(store)
    version = 6
    for target in (3, 1, 2):
        checkpoint_id, expected = history[target]
        version = await store.restore_checkpoint("a", checkpoint_id)
        await _is_back_at(store, expected, version)
        history = history[: target + 1]
        for step in (10, 11):
            await store.merge_custom_state("a", writes(push("items", items=[f"{target}.{step}"]), put("o", value={})))
            done = await store.save_state_and_promote_staging(
                "a", plain_state("a", output=step), [user(f"{target}.{step}")], meta(step, "step-1")
            )
            history.append((done.checkpoint_id, await dump_session(store, "a")))
            version = done.new_version
    for checkpoint_id, expected in history[::-1]:
        version = await store.restore_checkpoint("a", checkpoint_id)
        await _is_back_at(store, expected, version)


@check("S9", "a restore of the latest checkpoint undoes what happened since")
async def restore_latest(harness: Harness) -> None:
    store = await harness.open()
    history = await _history(store, steps=2)
    await store.update_status("a", "active")
    await store.save_state("a", msgspec.structs.replace(full_state("a"), custom_state={"other": [1]}))
    await store.truncate_messages("a", 4)
    await store.append_messages("a", [user("x")])
    version = await store.restore_checkpoint("a", history[-1][0])
    await _is_back_at(store, history[-1][1], version)


@check("S9", "removed messages stay removed: no restore or fork confuses them with later ones")
async def cut_messages_stay_cut(harness: Harness) -> None:
    store = await harness.open()
    history = await _history(store)
    messages = [made[1]["messages"] for made in history]
    kept = len(messages[1]) + 1
    await store.truncate_messages("a", kept)
    await store.append_messages("a", [user(f"later {number}") for number in range(20)])
    found = [await store.get_checkpoint("a", made[0]) for made in history]
    counted = [each.message_count for each in found if each is not None]
    expect_same(counted, [min(len(each), kept) for each in messages], "messages that the checkpoints count")
    for place in (4, 2, 1):
        await store.fork_session("a", f"fork-{place}", checkpoint_id=history[place][0])
        fork = await store.get_messages(f"fork-{place}", limit=None)
        expect_same(fork.items, messages[place][:kept], "the messages of a fork")
    for place in (4, 2, 1):
        await store.restore_checkpoint("a", history[place][0])
        expect_same(
            (await store.get_messages("a", limit=None)).items, messages[place][:kept], "messages after a restore"
        )


@check("S9", "a restore leaves flag, runs and refs alone")
async def restore_leaves_the_rest(harness: Harness) -> None:
    store = await harness.open()
    history = await _history(store, steps=2)
    await store.create_run("a", "run-1")
    await store.add_sub_session_refs("a", [ref("sub-1")])
    await store.set_interrupt_flag("a", "stop")
    before = await dump_session(store, "a")
    await store.restore_checkpoint("a", history[0][0])
    after = await dump_session(store, "a")
    assert before is not None
    assert after is not None
    for part in ("flag", "runs", "refs"):
        expect_same(after[part], before[part], part)


@check("S9", "an unknown checkpoint cannot be restored or forked; nothing changes")
async def unknown_checkpoint_is_refused(harness: Harness) -> None:
    store = await harness.open()
    await _history(store, steps=2)
    theirs = (await _history(store, "b", steps=1))[0][0]
    before = await dump(store)
    for unknown in ("cpv1-a-s1-t1-aaaaaa", "nonsense", theirs):
        with raises(CheckpointNotFound, f"restore of {unknown!r}"):
            await store.restore_checkpoint("a", unknown)
        with raises(CheckpointNotFound, f"fork from {unknown!r}"):
            await store.fork_session("a", "c", checkpoint_id=unknown)
    expect_same(await dump(store), before, "all data")


@check("S9", "a fork of the current state has the state and messages of its source")
async def fork_from_now(harness: Harness) -> None:
    store = await harness.open()
    await _history(store)
    await store.merge_custom_state("a", writes(put("later", value=[1])))
    await store.append_messages("a", [user("later")])
    await store.set_interrupt_flag("a", "stop")
    made = await store.fork_session("a", "b")
    source = await store.load_state("a")
    expect_same(_without(made, NOT_FORKED), _without(source, NOT_FORKED), "the fork")
    expect_same((made.session_id, made.stream_id, made.version), ("b", "b", 1), "the fork's own fields")
    expect_same(await store.load_state("b"), made, "the fork as loaded")
    expect(await store.check_interrupt_flag("b") is None, "the fork inherited an interrupt flag")
    theirs, ours = await store.get_messages("a", limit=None), await store.get_messages("b", limit=None)
    expect_same(ours.items, theirs.items, "the messages of the fork")


@check("S9", "a fork knows its origin, takes its own labels, and is active only before its first message")
async def fork_knows_its_origin(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="agent", tags=["t"], metadata={"title": "one"})
    empty = await store.fork_session("a", "empty")
    expect_same((empty.status, empty.forked_from), ("active", ForkOrigin("a", None, 0)), "the fork of an empty session")
    await store.append_messages("a", [user("1")])
    first = await store.save_state_and_promote_staging("a", plain_state("a"), [user("2")], meta(1, "step-1"))
    await store.append_messages("a", [user("3")])
    made = await store.fork_session("a", "b", metadata={"title": "two"}, tags=[])
    expect_same((made.metadata, made.tags), ({"title": "two"}, ()), "labels that were given")
    expect_same((made.status, made.forked_from), ("interrupted", ForkOrigin("a", None, 3)), "the fork from now")
    later = await store.fork_session("a", "c", checkpoint_id=first.checkpoint_id)
    expect_same(later.forked_from, ForkOrigin("a", first.checkpoint_id, 2), "the origin of a fork from a checkpoint")
    await store.update_status("a", "completed")
    expect_same(
        (await store.fork_session("a", "d")).status, "completed", "the status of the fork of a finished session"
    )
    await store.save_state("b", plain_state("b"))
    done = await store.save_state_and_promote_staging("b", plain_state("b"), [], meta(1, "step-1"))
    await store.restore_checkpoint("b", done.checkpoint_id)
    listed = {it.session_id: it.forked_from for it in (await store.list_sessions()).items}
    loaded = await (await harness.reopen()).load_state("b")
    expect_same(loaded and loaded.forked_from, ForkOrigin("a", None, 3), "the origin after writes that do not name it")
    expect_same(listed["b"], ForkOrigin("a", None, 3), "the origin in a listing")


@check("S9", "a fork from a checkpoint has the state and messages of that commit")
async def fork_from_checkpoint(harness: Harness) -> None:
    store = await harness.open()
    history = await _history(store)
    before = await dump_session(store, "a")
    target, expected = history[1]
    made = await store.fork_session("a", "b", checkpoint_id=target)
    expect_same(_without(made, NOT_FORKED), _without(expected["state"], NOT_FORKED), "the fork")
    got = await dump_session(await harness.reopen(), "b")
    assert got is not None
    expect_same(got["messages"], expected["messages"], "the messages of the fork")
    expect_same((got["staged"], got["runs"]), ({}, []), "staged writes and runs of the fork")
    again = await harness.open()
    expect_same(await dump_session(again, "a"), before, "the source")


async def _add_history(store: StateStore, session_id: str) -> None:
    """Add more history to a session."""
    await store.merge_custom_state(session_id, writes(push("items", items=["own"]), put("o", "m1", value="own")))
    await store.append_messages(session_id, [user("own")])
    await store.save_state_and_promote_staging(session_id, plain_state(session_id), [user("own")], meta(9))
    await store.truncate_messages(session_id, 3)


@check("S9", "source and fork do not see each other's later writes")
async def fork_is_independent(harness: Harness) -> None:
    store = await harness.open()
    history = await _history(store)
    for number, checkpoint_id in enumerate((None, history[1][0], history[-1][0])):
        fork = f"fork-{number}"
        await store.fork_session("a", fork, checkpoint_id=checkpoint_id)
        source_before = await dump_session(store, "a")
        await _add_history(store, fork)
        expect_same(await dump_session(store, "a"), source_before, "the source after writes to the fork")
        fork_before = await dump_session(store, fork)
        await store.merge_custom_state("a", writes(push("items", items=["source"]), put("v", value=number)))
        await store.save_state_and_promote_staging("a", plain_state("a"), [user("source")], meta(9))
        expect_same(await dump_session(store, fork), fork_before, "the fork after writes to the source")


@check("S9", "deleting the source does not damage the fork")
async def fork_outlives_its_source(harness: Harness) -> None:
    store = await harness.open()
    history = await _history(store)
    await store.fork_session("a", "b", checkpoint_id=history[2][0])
    await _add_history(store, "b")
    before = await dump_session(store, "b")
    await store.restore_checkpoint("a", history[0][0])
    expect_same(await dump_session(store, "b"), before, "the fork after its source was restored")
    await store.delete_session("a")
    expect_same(await dump_session(store, "b"), before, "the fork after its source was deleted")
    await _add_history(store, "b")


@check("S9", "deleting the fork does not damage the source")
async def source_outlives_its_fork(harness: Harness) -> None:
    store = await harness.open()
    history = await _history(store)
    before = await dump_session(store, "a")
    await store.fork_session("a", "b", checkpoint_id=history[2][0])
    await store.fork_session("b", "c")
    await _add_history(store, "b")
    await store.delete_session("b")
    expect_same(await dump_session(store, "a"), before, "the source")
    await store.restore_checkpoint("a", history[1][0])
    expect(await store.session_exists("c"), "a fork of the fork was also deleted")


@check("S9", "a fork can be forked, committed and restored like any session")
async def fork_is_a_session(harness: Harness) -> None:
    store = await harness.open()
    await _history(store)
    await store.fork_session("a", "b")
    done = await store.save_state_and_promote_staging("b", plain_state("b"), [user("own")], meta(6))
    expected = await store.load_state("b")
    await store.append_messages("b", [user("later")])
    await store.merge_custom_state("b", writes(put("o", value="later")))
    await store.fork_session("b", "c", checkpoint_id=done.checkpoint_id)
    await store.restore_checkpoint("b", done.checkpoint_id)
    for name in ("b", "c"):
        got = await store.load_state(name)
        expect_same(_without(got, NOT_FORKED), _without(expected, NOT_FORKED), f"session {name}")
        expect_same(await store.get_message_count(name), 11, f"messages of {name}")


@check("S9", "a fork of a busy session is a snapshot of one moment", kind="tasks")
async def fork_of_a_busy_session_is_whole(harness: Harness) -> None:
    store, other = await harness.open(), await harness.open()
    await store.create_session("a", agent_type="agent", custom_state={"items": []})

    async def commit_all() -> None:
        for number in range(1, 21):
            await store.stage_changes("a", "step-1", writes(push("items", items=[number])), tool_call_id="call-1")
            await store.save_state_and_promote_staging("a", plain_state("a"), [user(f"{number}")], meta(number))

    writer = asyncio.create_task(commit_all())
    for number in range(10):
        fork = await other.fork_session("a", f"fork-{number}")
        count = await other.get_message_count(f"fork-{number}")
        made = (len(fork.custom_state["items"]), fork.step_count)
        expect_same(made, (count, count), "items and steps of a fork, compared with its messages")
    await writer


@check("S9", "a fork to a taken id and a fork of an unknown session are rejected")
async def fork_needs_a_free_id(harness: Harness) -> None:
    store = await harness.open()
    await _history(store, steps=1)
    await store.create_session("b", agent_type="agent")
    before = await dump(store)
    for target in ("a", "b"):
        with raises(SessionExists, "a fork to a taken id"):
            await store.fork_session("a", target)
    with raises(SessionNotFound, "a fork of an unknown session"):
        await store.fork_session("nobody", "c")
    expect_same(await dump(store), before, "all data")


@check("S9", "two sessions with the same history look the same")
async def same_history_same_portrait(harness: Harness) -> None:
    store = await harness.open()
    for name in ("session-1", "session-2"):
        await _history(store, name)
    one, other = await portrait(store, "session-1"), await portrait(store, "session-2")
    expect_same(other, one, "two sessions with one history")


def _interrupt(store: StateStore, at: int, meanwhile: Callable[[], Awaitable[None]]) -> list[str]:
    """Run something right before the `at`-th verb call of a store; return the verbs called, as they come."""
    called: list[str] = []
    inside = False

    def wrapped(name: str, verb: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal inside
            if inside:
                return await verb(*args, **kwargs)  # a verb that calls another one still counts as one
            called.append(name)
            if len(called) == at:
                await meanwhile()
            inside = True
            try:
                return await verb(*args, **kwargs)
            finally:
                inside = False

        return call

    for name in verbs_of(store):
        setattr(store, name, wrapped(name, getattr(store, name)))
    return called


async def _other_history(store: StateStore, session_id: str, checkpoint_id: str) -> None:
    """Restore and make as many other commits, so that every commit count is the same."""
    await store.restore_checkpoint(session_id, checkpoint_id)
    for step in (2, 3):
        state = plain_state(session_id, output=f"other {step}", custom_state={"is": f"other {step}"})
        await store.save_state_and_promote_staging(session_id, state, [user(f"other {step}")], meta(step))


@check("S9", "a restore or fork that races with another history never mixes the two", kind="tasks")
async def overtaken_is_no_mixture(harness: Harness) -> None:
    clean = await harness.open()
    for forking in (False, True):
        for at in range(1, 12):
            source = f"s-{forking}-{at}"
            await clean.create_session(source, agent_type="agent")
            ids = []
            for step in (1, 2, 3):
                state = plain_state(source, output=f"old {step}", custom_state={"is": f"old {step}"})
                done = await clean.save_state_and_promote_staging(source, state, [user(f"old {step}")], meta(step))
                ids.append(done.checkpoint_id)
            store = await harness.open()
            called = _interrupt(store, at, partial(_other_history, clean, source, ids[0]))
            target = f"fork-{at}" if forking else source
            with suppress(CheckpointNotFound):
                if forking:
                    await store.fork_session(source, target, checkpoint_id=ids[2])
                else:
                    await store.restore_checkpoint(source, ids[2])
                found = await clean.load_state(target)
                assert found is not None
                last = (await clean.get_messages(target)).items[-1]["content"]
                told = {str(found.output), (found.custom_state or {})["is"], last}
                expect_same(len(told), 1, f"how many histories are in {sorted(told)}, overtaken at verb {at}")
            if len(called) < at:
                break


@check("S9", "messages given with a restore or a fork follow those of the checkpoint, in the same write")
async def appended_messages(harness: Harness) -> None:
    store = await harness.open()
    history = await _history(store)
    note = [user("note"), user("another")]
    checkpoint_id = history[1][0]
    await store.fork_session("a", "of a checkpoint", checkpoint_id=checkpoint_id, append_messages=note)
    await store.fork_session("a", "of the present", append_messages=note)
    before = [user("1"), user("1 again"), user("2"), user("2 again")]
    kept = (await store.get_messages("a", limit=None)).items
    await store.restore_checkpoint("a", checkpoint_id, append_messages=note)
    for session_id, expected in (("a", before), ("of a checkpoint", before), ("of the present", kept)):
        await store.append_messages(session_id, [user("next")])
        found = (await store.get_messages(session_id, limit=None)).items
        expect_same(found, [*expected, *note, user("next")], f"the messages of {session_id}")
        expect_same(await store.get_message_count(session_id), len(found), f"how many {session_id} has")
