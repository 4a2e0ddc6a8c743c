"""Names may be as long as a user makes them, and no index fails."""

from __future__ import annotations

import random

from ..expect import expect_same
from ..harness import STATE_STORE, Harness, readers
from ..tools.sample import meta, plain_state, push, put, writes

check = STATE_STORE.check

SEED = 13


def long_text(length: int) -> str:
    """Return random characters that no index can compress."""
    chance = random.Random(SEED)
    return "".join(chance.choices("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", k=length))


def emoji(count: int, seed: int = SEED) -> str:
    """Return random characters of four bytes each."""
    chance = random.Random(seed)
    return "".join(chr(chance.randint(0x1F300, 0x1F5FF)) for _ in range(count))


@check("data", "members and keys of custom state may have long names, also in checkpoints")
async def long_names_in_custom_state(harness: Harness) -> None:
    store = await harness.open()
    name = long_text(3_000)
    await store.create_session("a", agent_type="agent", custom_state={"seen": {}, "kept": {name: 0}})
    await store.stage_changes("a", "step-1", writes(put("seen", name, value=1)), tool_call_id="call")
    await store.save_state_and_promote_staging("a", plain_state("a"), [], meta(1, "step-1"))
    await store.merge_custom_state("a", writes(put("seen", name, value=2), put("seen", name + "b", value=3)))
    await store.stage_changes("a", "step-2", writes(put(name, value=[1])), tool_call_id="call")
    await store.save_state_and_promote_staging("a", plain_state("a"), [], meta(2, "step-2"))
    await store.merge_custom_state("a", writes(push(name, items=[2]), put(name, 0, value="one")))
    first = {"seen": {name: 1}, "kept": {name: 0}}
    last = {"seen": {name: 2, name + "b": 3}, "kept": {name: 0}, name: ["one", 2]}
    async for reader in readers(harness, store):
        loaded = await reader.load_state("a")
        assert loaded is not None
        expect_same(loaded.custom_state, last, "custom state")
        oldest = (await reader.list_checkpoints("a")).items[-1]
        found = await reader.get_checkpoint("a", oldest.checkpoint_id)
        assert found is not None
        expect_same(found.state.custom_state, first, "custom state at the first checkpoint")
    store = await harness.reopen()
    oldest = (await store.list_checkpoints("a")).items[-1]
    await store.restore_checkpoint("a", oldest.checkpoint_id)
    restored = await store.load_state("a")
    assert restored is not None
    expect_same(restored.custom_state, first, "custom state after a restore")


@check("data", "metadata and tags may be long, and sessions are found by them")
async def long_metadata_is_found(harness: Harness) -> None:
    store = await harness.open()
    text, key, value = long_text(2_800), emoji(256), emoji(256, SEED + 1)
    given = {"a": {"text": text}, "b": {key: value}, "c": {"text": text + "."}, "d": {key: value + "."}}
    for session_id, metadata in given.items():
        tags = (key,) if session_id == "a" else ()
        await store.create_session(session_id, agent_type="agent", metadata=metadata, tags=tags)
    await store.save_state("c", plain_state("c", metadata={"text": "short"}, tags=(value,)))
    given["c"] = {"text": "short"}
    async for reader in readers(harness, store):
        for session_id, metadata in given.items():
            loaded = await reader.load_state(session_id)
            assert loaded is not None
            expect_same(loaded.metadata, metadata, f"metadata of {session_id}")
            found = await reader.list_sessions(metadata=metadata)
            expect_same([each.session_id for each in found.items], [session_id], "the sessions of this metadata")
        for tag, session_id in ((key, "a"), (value, "c")):
            found = await reader.list_sessions(tags=[tag])
            expect_same([each.session_id for each in found.items], [session_id], "the sessions of this tag")


@check("data", "all ids of a session may have the maximum length together")
async def long_ids_work(harness: Harness) -> None:
    store = await harness.open()
    session_id, step_id, call, other, run_id = (emoji(256, seed) for seed in range(5))
    await store.create_session(
        session_id, agent_type=call, user_id=other, parent_session_id=step_id, metadata={"text": long_text(2_800)}
    )
    for tool_call_id in (call, other, call):
        await store.stage_changes(session_id, step_id, writes(put(tool_call_id, value=1)), tool_call_id=tool_call_id)
    staged = await store.list_staged(session_id, step_id)
    expect_same(sorted(each.tool_call_id for each in staged), sorted((call, other)), "the calls staged")
    await store.create_run(session_id, run_id)
    await store.save_state_and_promote_staging(
        session_id, plain_state(session_id, agent_type=call, user_id=other), [], meta(1, step_id)
    )
    async for reader in readers(harness, store):
        loaded = await reader.load_state(session_id)
        assert loaded is not None
        expect_same(loaded.custom_state, {call: 1, other: 1}, "custom state")
        found = await reader.list_sessions(user_id=other, agent_type=call)
        expect_same([each.session_id for each in found.items], [session_id], "the sessions of this user and agent")
        latest = await reader.get_latest_checkpoint(session_id)
        assert latest is not None
        expect_same(latest.step_id, step_id, "the step of the checkpoint")
