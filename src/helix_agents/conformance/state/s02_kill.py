"""S2 at any moment: a process is killed somewhere in the middle of its commits."""

from __future__ import annotations

import asyncio
import random

from ...stores.state.contract import StateStore
from ..expect import expect, expect_same
from ..harness import STATE_STORE, Harness
from ..tools.crew import hear, spec_of, start_child, stop_child, tell
from ..tools.sample import meta, plain_state, user

check = STATE_STORE.check


async def _consistent(store: StateStore, session_id: str) -> int:
    """Return how many commits there are; fail if one of them is partial."""
    while True:  # a server may still process the last request of a dead client
        state = await store.load_state(session_id)
        messages = (await store.get_messages(session_id, limit=None)).items
        checkpoints = (await store.list_checkpoints(session_id, limit=1)).total
        after = await store.load_state(session_id)
        assert state is not None
        assert after is not None
        if after.version == state.version:
            break
    commits = state.version - 1
    expected = [user(f"{number} {part}") for number in range(commits) for part in range(20)]
    expect_same(messages, expected, "the messages of all commits")
    expect_same(state.custom_state, {"items": list(range(commits)), "n": commits}, "custom state")
    expect_same(checkpoints, commits, "checkpoints")
    expect_same(state.step_count, commits, "the step count")
    for step in (f"step {number}" for number in range(commits)):
        expect_same(await store.list_staged(session_id, step), [], "staged writes of a committed step")
    return commits


@check(
    "S2",
    "a process killed at a random moment leaves only whole commits, including all acknowledged ones",
    kind="faults",
)
async def killed_at_any_moment(harness: Harness) -> None:
    spec = spec_of(harness)
    store = await harness.open()
    chance = random.Random(harness.options.seed)
    for round_number in range(4):
        session_id = f"round-{round_number}"
        await store.create_session(session_id, agent_type="agent", custom_state={"items": [], "n": 0})
        child = await start_child("commits", spec)
        told = -1
        try:
            await tell(child, session_id)
            for _ in range(chance.randint(1, 25)):
                told = int(await hear(child))
            await asyncio.sleep(chance.random() * 0.01)  # Does not wait for anything: it varies the moment of the kill.
        finally:
            await stop_child(child)
        commits = await _consistent(store, session_id)
        expect(commits >= told + 1, f"{told + 1} commits were acknowledged, {commits} are stored")
        more = plain_state(session_id)
        done = await store.save_state_and_promote_staging(session_id, more, [], meta(commits + 1, "last"))
        expect_same(done.new_version, commits + 2, "the version of a commit after the crash")
