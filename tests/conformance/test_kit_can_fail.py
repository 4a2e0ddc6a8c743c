"""A kit that cannot fail proves nothing: every broken store is caught, by the check that should catch it."""

from __future__ import annotations

import pytest

from helix_agents.backends.inmemory.state_store import InMemoryStateStore
from helix_agents.conformance.contracts import checks_for
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
