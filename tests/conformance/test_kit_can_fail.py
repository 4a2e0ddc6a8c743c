"""A kit that cannot fail proves nothing: every broken store is caught, by the check that should catch it."""

from __future__ import annotations

import pytest

from helix_agents import open_stores
from helix_agents.backends.inmemory.state_store import InMemoryStateStore
from helix_agents.conformance.contracts import checks_for
from helix_agents.conformance.executor.frozen import Freezer
from helix_agents.conformance.executor.mortal import Life
from helix_agents.conformance.executor.x2_fault import Fault
from helix_agents.conformance.run import run_check
from tests.conformance import broken_stores as broken
from tests.conformance.broken_stores import BrokenHarness


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (broken.CommitIsNotAtomic, "S2.conflict_leaves_nothing"),
        (broken.CommitIsNotAtomic, "S2.fail_before_leaves_whole"),
        (broken.CommitIsNotAtomic, "S2.cancel_before_leaves_whole"),
        (broken.MergeLosesAParallelAppend, "S4.tasks_merge"),
        (broken.CheckpointCopiesAStaleCount, "S2.counts_hold_among_tasks"),
        (broken.SavingClearsTheFlag, "S7.saving_leaves_the_flag"),
        (broken.CheckpointShowsThePresent, "S8.long_history_is_exact"),
        (broken.CheckpointShowsThePresent, "model.store_follows_the_model"),
        (broken.LostReplyCommitsTwice, "S12.lost_reply_is_found_out"),
        (broken.DeleteForgetsTheChildren, "S10.delete_cascades"),
        (broken.RewritesTheSession, "S13.written_is_flat"),
    ],
)
async def test_broken_store_is_caught(kind: type[InMemoryStateStore], name: str) -> None:
    (check,) = checks_for(BrokenHarness, [name])

    caught = await run_check(check, lambda: BrokenHarness(kind))
    sound = await run_check(check, lambda: BrokenHarness(InMemoryStateStore))

    assert (caught.outcome, sound.outcome) == ("failed", "passed"), caught.detail


@pytest.mark.parametrize(
    ("process", "carries"),
    [(Freezer(), True), (Fault(), True), (Life(), True), (Life(apart=True), False)],
    ids=["frozen", "faulty", "mortal", "apart"],
)
async def test_processes_with_faults_write_as_sound_ones_do(process: Freezer | Life, carries: bool) -> None:
    async with open_stores("memory:") as stores:
        wrapped = process.wrap(stores)
        assert wrapped.state.carries(wrapped.streams, wrapped.usage) == carries
        await (await stores.streams.create_writer("s", "run", "main", fence=1)).close()
        before = process.calls
        writer = wrapped.streams.attach_writer("s", "run", "main", fence=1)
        assert writer is not None
        await writer.write({"type": "text_delta", "delta": "one", "step": 1})
        await writer.flush()
        assert process.calls == before + 1, "a write of chunks is a call of the process"
