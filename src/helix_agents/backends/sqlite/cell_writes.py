"""Changes of custom state as rows: what a commit has to see of the cells, and what it then writes.

Only cells whose text differs are written. What a checkpoint has seen is kept for it, in the row of the checkpoint that
the commit makes, or in rows of the past if it makes none; what no checkpoint has seen goes without a trace.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...codec import escape_text
from ...stores.state.commit import CellName, CustomChanges
from ..sql import rows
from ..sql.commit_sql import is_one_cell, key_cells
from ..sql.driver import Row

Overwritten = tuple[str, str, str, int]
"""What a cell held that a checkpoint has seen: key, slot, text and since when."""


def cell_place(session_id: str, name: CellName) -> tuple[str, str, str]:
    """Where a cell is."""
    key, slot = name
    return session_id, escape_text(key), rows.slot_text(slot)


class FoundCells:
    """The cells that a commit touches: which ones it has to see, and what the database holds of them."""

    __slots__ = ("below", "custom", "ends", "single", "whole")

    def __init__(self, custom: CustomChanges) -> None:
        self.custom = custom
        self.whole = {key: content for key, content in custom.set_keys.items() if not is_one_cell(custom, key, content)}
        """What is set that may have had other cells below it before."""
        self.single: dict[CellName, Row] = {}
        """Rows of `cell`, for those that are there."""
        self.below: dict[str, dict[str, Row]] = {}
        """By key and slot as their columns: text and since when of each, where all of a key was looked for."""
        self.ends: dict[str, tuple[int, str]] = {}
        """The place behind the last item of a list, and what the key's own cell says: only lists have items."""

    def names(self) -> Iterable[CellName]:
        """The cells that have to be seen one by one; what a list itself says is seen at its end."""
        custom = self.custom
        names: Iterable[CellName] = custom.expected
        if custom.set_cells or custom.drop_cells:
            names = {**custom.expected, **custom.set_cells, **dict.fromkeys(custom.drop_cells)}
        return [name for name in names if name[1] is not None or name[0] not in custom.append]

    @property
    def looks_below(self) -> bool:
        """Whether there are keys of which everything has to be seen."""
        return bool(self.whole or self.custom.drop_keys or self.custom.replace_all)

    def text(self, name: CellName) -> str | None:
        """What a cell says now."""
        if (cell := self.single.get(name)) is not None:
            return str(cell[1])
        end = self.ends.get(name.key) if name.slot is None else None
        return None if end is None else end[1]


class CellWrites:
    """Rows to write, by the statement that writes them."""

    def __init__(self) -> None:
        self.drop_cell: list[Row] = []
        self.change_cell: list[Row] = []
        self.insert_cell: list[Row] = []
        self.insert_past: list[Row] = []

    def change(self, session_id: str, found: FoundCells, number: int) -> list[Overwritten]:
        """Add what the changes come to; answer what has to be kept.

        `number` is that of the last checkpoint, which has seen all cells that were there before it.
        """
        custom, whole = found.custom, found.whole
        kept: list[Overwritten] = []
        for name, text in custom.set_cells.items():
            self._put(cell_place(session_id, name), found.single.get(name), text, number, kept)
        for key, content in custom.set_keys.items():
            if key not in whole:
                name = CellName(key)
                self._put(cell_place(session_id, name), found.single.get(name), content.text, number, kept)
        if whole or found.below:
            self._replace(session_id, found.below, key_cells(whole), number, kept)
        for name in custom.drop_cells:
            if (cell := found.single.get(name)) is not None:
                self._drop(cell_place(session_id, name), cell, number, kept)
        for key, items in custom.append.items():
            end = found.ends.get(key)
            for index, text in enumerate(items, start=0 if end is None else end[0]):
                self.insert_cell.append((session_id, escape_text(key), rows.slot_text(index), text, number))
        return kept

    def keep(self, session_id: str, kept: list[Overwritten], number: int) -> None:
        """Keep what was overwritten in rows of the past."""
        self.insert_past += [(session_id, number + 1, *each) for each in kept]

    def _replace(
        self,
        session_id: str,
        have: dict[str, dict[str, Row]],
        wanted: Iterable[tuple[str, str, str]],
        number: int,
        kept: list[Overwritten],
    ) -> None:
        """Make the keys that were looked at hold exactly the wanted cells."""
        for key, slot, text in wanted:
            cell = have[key].pop(slot, None) if key in have else None
            self._put((session_id, key, slot), cell, text, number, kept)
        for key, cells in have.items():
            for slot, cell in cells.items():
                self._drop((session_id, key, slot), cell, number, kept)

    def _put(
        self, place: tuple[str, str, str], cell: Row | None, text: str, number: int, kept: list[Overwritten]
    ) -> None:
        if cell is None:
            self.insert_cell.append((*place, text, number))
            return
        old, since = cell[-2:]
        if old != text:
            if since < number:
                kept.append((*place[1:], old, since))
            self.change_cell.append((text, number, *place))

    def _drop(self, place: tuple[str, str, str], cell: Row, number: int, kept: list[Overwritten]) -> None:
        old, since = cell[-2:]
        if since < number:
            kept.append((*place[1:], old, since))
        self.drop_cell.append(place)
