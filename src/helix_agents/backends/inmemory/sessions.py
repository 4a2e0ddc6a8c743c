"""The data of the in-memory state store: one object per session; cells hold the current custom state.

A cell that changes keeps its old value once if a checkpoint has seen it. So a checkpoint costs nothing by itself, and
any of them can be read: values that are older than it and still current, and values kept for it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ...codec import encode
from ...stores.state.commit import (
    LIST,
    BranchChanges,
    BranchRow,
    CellName,
    CheckpointRow,
    Slot,
    StagedRow,
    StoredCheckpoint,
)
from ...stores.state.plan import Cell, CellPlan, Counters
from ...types import InterruptFlag, RunRecord, SessionState, SubSessionRef


class KeptCell(NamedTuple):
    """A value that was overwritten: checkpoints before `number` still see it."""

    number: int
    name: CellName
    cell: Cell


class ShelvedCells(NamedTuple):
    """Everything after a checkpoint: newer cells, and the values they overwrote."""

    cells: list[tuple[CellName, Cell]]
    past: list[KeptCell]


class CustomCells:
    """The custom state of one session, and the values that were overwritten."""

    def __init__(self) -> None:
        self.keys: dict[str, dict[Slot, Cell]] = {}
        self.past: list[KeptCell] = []
        """In ascending order of numbers: the newest are last."""

    def text(self, name: CellName) -> str | None:
        """Return what one cell holds."""
        cell = self.get(name)
        return None if cell is None else cell.text

    def get(self, name: CellName) -> Cell | None:
        """Return one cell."""
        cells = self.keys.get(name.key)
        return None if cells is None else cells.get(name.slot)

    def write(self, plan: CellPlan, number: int) -> None:
        """Change cells as planned, after the checkpoint of that number."""
        self.past += [KeptCell(number + 1, name, cell) for name, cell in plan.kept]
        for key, slot in plan.drop:
            cells = self.keys[key]
            del cells[slot]
            if not cells:
                del self.keys[key]
        for (key, slot), text in plan.put:
            self.keys.setdefault(key, {})[slot] = Cell(text, number)

    def at(self, number: int) -> CustomCells:
        """Return a copy as of that checkpoint, without history."""
        then = CustomCells()
        for key, cells in self.keys.items():
            seen = {slot: cell for slot, cell in cells.items() if cell.since < number}
            if seen:
                then.keys[key] = seen
        for kept in reversed(self.past):
            if kept.number <= number:
                break
            if kept.cell.since < number:
                then.keys.setdefault(kept.name.key, {})[kept.name.slot] = kept.cell
        return then

    def restore(self, number: int) -> ShelvedCells:
        """Go back to that checkpoint; return what came after it."""
        names = [(CellName(key, slot), cell) for key, cells in self.keys.items() for slot, cell in cells.items()]
        shelved = ShelvedCells([(name, cell) for name, cell in names if cell.since >= number], [])
        self.keys = self.at(number).keys
        while self.past and self.past[-1].number > number:
            shelved.past.insert(0, self.past.pop())
        return shelved

    def unrestore(self, number: int, shelved: ShelvedCells) -> None:
        """Revert a restore to that checkpoint."""
        for kept in shelved.past:
            if kept.cell.since < number:
                del self.keys[kept.name.key][kept.name.slot]
        self.past += shelved.past
        for (key, slot), cell in shelved.cells:
            self.keys.setdefault(key, {})[slot] = cell
        self.keys = {key: cells for key, cells in self.keys.items() if cells}

    def fork(self, number: int | None) -> CustomCells:
        """Return a copy as of that checkpoint, or of the current state, that no checkpoint has seen."""
        source = self if number is None else self.at(number)
        copy = CustomCells()
        copy.keys = {
            key: {slot: Cell(cell.text, 0) for slot, cell in cells.items()} for key, cells in source.keys.items()
        }
        return copy

    def all(self) -> Iterator[tuple[str, str, Iterable[str]]]:
        """Yield every key with its text and cells, in the form that `rebuild` takes."""
        for key, cells in self.keys.items():
            own = cells[None].text
            if own == LIST:
                yield encode(key), own, [cells[index].text for index in range(len(cells) - 1)]
            else:
                below = (f"{encode(name)}:{cell.text}" for name, cell in cells.items() if name is not None)
                yield encode(key), own, below


class Shelf(NamedTuple):
    """The end of a conversation that was put aside. The first checkpoint is the one before it."""

    messages: list[str]
    checkpoints: list[StoredCheckpoint]
    custom: ShelvedCells
    staged: dict[str, dict[tuple[str, str], StagedRow]]


class Session:
    """One session and all that belongs to it."""

    def __init__(self, state: SessionState) -> None:
        self.state = state
        self.messages: list[str] = []
        self.custom = CustomCells()
        self.staged: dict[str, dict[tuple[str, str], StagedRow]] = {}
        self.checkpoints: list[StoredCheckpoint] = []
        self.runs: list[RunRecord] = []
        self.refs: dict[str, SubSessionRef] = {}
        self.flag: InterruptFlag | None = None
        self.due_at: int | None = None
        self.branches: dict[str, BranchRow] = {}
        self.shelves: dict[str, Shelf] = {}

    def add_checkpoint(self, row: CheckpointRow, after: Counters, now: int) -> None:
        """Record a commit. `after`: the session's counters after it."""
        checkpoint_id, step_id, step_count, stream_sequence, kind, fields = row
        self.checkpoints.append(
            StoredCheckpoint(
                checkpoint_id,
                after.checkpoint_count,
                step_id,
                step_count,
                stream_sequence,
                after.message_count,
                after.status,
                after.version,
                fields,
                now,
                self.state.created_at,
                self.state.incarnation,
                kind,
            )
        )

    def change_branches(self, changes: BranchChanges) -> None:
        """Move ends of the conversation, and store the records of branches."""
        for number, message_count, shelved, returned in changes.moves:
            self._shelve(shelved, number, message_count)
            if returned is not None:
                self._unshelve(returned, number)
        for row in changes.rows:
            before = self.branches.get(row.branch_id, row)
            self.branches[row.branch_id] = row if row.state is not None else before._replace(about=row.about)
        for branch_id in changes.dropped:
            self.branches.pop(branch_id, None)
            self.shelves.pop(branch_id, None)

    def _shelve(self, branch_id: str, number: int, message_count: int) -> None:
        """Put aside everything after a checkpoint and this many messages."""
        cut = self.messages[message_count:], self.checkpoints[number - 1 :]
        self.shelves[branch_id] = Shelf(*cut, self.custom.restore(number), self.staged)
        del self.messages[message_count:], self.checkpoints[number:]
        self.staged = {}
        counted = min(self.checkpoints[-1].message_count, message_count)
        self.checkpoints[-1] = self.checkpoints[-1]._replace(message_count=counted)

    def _unshelve(self, branch_id: str, number: int) -> None:
        """Restore what was put aside after that checkpoint."""
        shelf = self.shelves.pop(branch_id)
        self.messages += shelf.messages
        self.checkpoints[number - 1 :] = shelf.checkpoints
        self.custom.unrestore(number, shelf.custom)
        self.staged = shelf.staged

    @property
    def latest_run(self) -> RunRecord | None:
        """The run that was started last."""
        return self.runs[-1] if self.runs else None


class Sessions:
    """All sessions of an in-memory store. Give the same object to several stores to have them share data."""

    def __init__(self) -> None:
        self.by_id: dict[str, Session] = {}
        self.run_owner: dict[str, str] = {}
        self._by_age: list[tuple[int, str]] = []

    def add(self, session: Session) -> None:
        """Add a session."""
        self.by_id[session.state.session_id] = session
        insort(self._by_age, (session.state.created_at, session.state.session_id))

    def remove(self, session_id: str) -> None:
        """Drop a session and its runs."""
        session = self.by_id.pop(session_id)
        for run in session.runs:
            del self.run_owner[run.run_id]
        place = (session.state.created_at, session_id)
        del self._by_age[bisect_left(self._by_age, place)]

    def newest_first(self, after: tuple[int, str] | None) -> Iterator[Session]:
        """Yield sessions, newest first, or those older than `after`."""
        start = len(self._by_age) if after is None else bisect_left(self._by_age, after)
        for index in range(start - 1, -1, -1):
            yield self.by_id[self._by_age[index][1]]
