"""The tree of branches: what moves when a conversation leaves or switches one."""

from __future__ import annotations

import pytest

from helix_agents.errors import InvalidArgument
from helix_agents.stores.state.branches import BranchTree, Leaving
from helix_agents.stores.state.commit import BranchChanges, BranchMove
from helix_agents.types import BranchPoint


def left_at_two() -> tuple[BranchChanges, str | None]:
    """Return a conversation of four messages that went back to its first two, at checkpoint 1."""
    point = BranchPoint(branch_id="new", message_id="m", checkpoint_id="cp", message_count=2)
    return BranchTree({}).leave(point, 1, Leaving(4, "{}"), parted_at=5, now=9, spare_id="old")


def stored(changes: BranchChanges) -> dict[str, str]:
    return {row.branch_id: row.about for row in changes.rows}


def test_leaving_shelves_the_old_end_and_starts_a_branch() -> None:
    changes, active = left_at_two()
    assert active == "new"
    assert changes.moves == (BranchMove(1, 2, "old"),)
    listed = BranchTree(stored(changes)).listed(3)
    assert [(each.branch_id, each.message_count, each.is_active) for each in listed] == [
        ("old", 4, False),
        ("new", 3, True),
    ]


def test_switching_back_brings_the_shelved_end_and_shelves_the_other() -> None:
    tree = BranchTree(stored(left_at_two()[0]))
    assert tree.way_to("new") == []
    assert tree.way_to("old") == ["old"]
    changes = tree.switch([("old", "{}")], Leaving(3, "{}"))
    assert changes.moves == (BranchMove(1, 2, "new", "old"),)
    assert [(each.branch_id, each.is_active) for each in tree.listed(4)] == [("old", True), ("new", False)]


def test_an_end_without_messages_is_dropped() -> None:
    point = BranchPoint(branch_id="new", message_id="m", checkpoint_id="cp", message_count=2)
    changes, active = BranchTree({}).leave(point, 1, Leaving(2, "{}"), parted_at=5, now=9, spare_id="old")
    assert (changes.dropped, active) == (("old",), None)


def test_branches_after_a_deleted_checkpoint_are_dropped() -> None:
    about = stored(left_at_two()[0])
    assert set(BranchTree(about).cut(0).dropped) == {"old", "new"}
    assert BranchTree(about).cut(1).dropped == ()


def test_an_unknown_branch_is_rejected() -> None:
    with pytest.raises(InvalidArgument, match="no branch 'x'"):
        BranchTree({}).way_to("x")
