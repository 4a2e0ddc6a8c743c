"""Rows: names of slots and columns of flags, and back."""

from __future__ import annotations

import pytest

from helix_agents.backends.sql_shared.state.rows import (
    flag_columns,
    flag_from_row,
    owner_columns,
    run_changes,
    slot_of,
    slot_text,
)
from helix_agents.stores.state.commit import Slot
from helix_agents.types import InterruptFlag, Owner


@pytest.mark.parametrize(
    ("slot", "text"), [(None, ""), (7, "#0000000007"), ("name", ".name"), ("", "."), ("7", ".7"), ("\ud800", None)]
)
def test_a_slot_comes_back_from_its_column(slot: Slot, text: str | None) -> None:
    assert text in (None, slot_text(slot))
    assert slot_of(slot_text(slot)) == slot
    slot_text(slot).encode()  # a lone surrogate would fail here


def test_items_sort_by_their_position() -> None:
    assert sorted(map(slot_text, [10, 9, 100])) == [slot_text(9), slot_text(10), slot_text(100)]


def test_a_flag_comes_back_from_its_columns() -> None:
    flag = InterruptFlag("why", "run", 5, abort=True)
    reason, run_id, set_at, abort = flag_columns(flag)
    assert flag_from_row((set_at, reason, run_id, abort)) == flag
    assert flag_from_row((None, None, None, None)) is None


def test_what_is_not_given_is_null() -> None:
    assert owner_columns(None) == (None, None)
    assert owner_columns(Owner("i", 3)) == ("i", 3)
    assert set(run_changes({})) == {None}
