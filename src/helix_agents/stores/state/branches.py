"""The branches of a conversation: where each starts, and what must move to switch from one to another. Pure.

A session stores one conversation: the path from the first message to the last. Whenever it goes back and continues
otherwise, the end of the path is put aside under the id of a branch, and another end grows in its place. Wherever
branches part, exactly one of them is on the path; each other one is shelved. A branch that parts within an end that
was put aside lies inside that one, and is out of reach until that end comes back.

Stores keep a short text about each branch and never look into it. Ends move as a whole, so the cost of a move is the
size of the ends, not that of the conversation before them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from ...codec import decode, encode, to_struct
from ...errors import InvalidArgument
from ...types import Branch, BranchPoint
from .commit import BranchChanges, BranchMove, BranchRow

MAX_BRANCHES = 1_000


class _About(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is stored about a branch."""

    number: int
    """The checkpoint after which it diverges from its siblings."""
    kept: int
    """How many messages it shares with them."""
    message_id: str | None
    created_at: int
    message_count: int = 0
    """How many messages the conversation had when the branch was put aside."""
    shelved: bool = False
    inside: str | None = None
    """The shelved branch inside which this one diverges from its siblings."""

    @property
    def parts_at(self) -> tuple[int, int]:
        """Where the branch diverges from its parent; later positions compare as greater."""
        return self.number, self.kept


class Leaving(NamedTuple):
    """The end of a conversation that is about to be put aside: its length, and the fields of its session."""

    message_count: int
    state: str


class BranchTree:
    """The branches of a session, from what is stored about them."""

    def __init__(self, stored: Mapping[str, str]) -> None:
        self._before = {branch_id: to_struct(_About, decode(text)) for branch_id, text in stored.items()}
        self._rows = dict(self._before)
        self._states: dict[str, str] = {}

    def listed(self, message_count: int) -> list[Branch]:
        """Return all branches, ordered by where they diverge; `message_count` is the session's."""
        return [
            Branch(branch_id, row.message_id, self._length(row, message_count), row.created_at, self._is_active(row))
            for branch_id, row in sorted(self._rows.items(), key=lambda pair: (pair[1].parts_at, pair[1].created_at))
        ]

    def leave(
        self, point: BranchPoint, number: int, leaving: Leaving, *, parted_at: int, now: int, spare_id: str
    ) -> tuple[BranchChanges, str | None]:
        """Return to a point so that a new branch can start there; return the changes and the branch that is then
        active.

        An end without messages is not worth keeping: it is dropped, and no branch is made. `parted_at`: when the end
        that is left began to grow. `spare_id`: its branch id, if it has none yet.
        """
        if len(self._rows) >= MAX_BRANCHES:
            raise InvalidArgument(f"The session has {len(self._rows)} branches, which is the limit: fork it instead.")
        parts_at = (number, point.message_count)
        current = self._active_at(parts_at)
        if leaving.message_count <= point.message_count:
            move = BranchMove(number, point.message_count, spare_id)
            return BranchChanges((move,), dropped=(spare_id, *self._after(parts_at))), current
        if current is None:
            current = spare_id
            self._rows[current] = _About(*parts_at, point.message_id, parted_at)
        self._shelve(current, leaving)
        self._rows[point.branch_id] = _About(*parts_at, point.message_id, now)
        return self._changes([BranchMove(number, point.message_count, current)]), point.branch_id

    def way_to(self, branch_id: str) -> list[str]:
        """Return the branches to restore, in order, to make one active; empty if it already is.

        Raises `InvalidArgument` for one that does not exist.
        """
        way: list[str] = []
        at: str | None = branch_id
        while at is not None:
            if at not in self._rows:
                raise InvalidArgument(f"The session has no branch {branch_id!r}: list_branches() returns those it has.")
            row = self._rows[at]
            if row.shelved:
                way.insert(0, at)
            at = row.inside
        return way

    def switch(self, way: Iterable[tuple[str, str]], leaving: Leaving) -> BranchChanges:
        """Restore branches one after the other, each with its stored state."""
        moves: list[BranchMove] = []
        for branch_id, state in way:
            row = self._rows[branch_id]
            if leaving.message_count < row.kept:
                raise InvalidArgument(f"Branch {branch_id!r} starts after a message that no longer exists.")
            current = self._active_at(row.parts_at)
            assert current is not None, "one branch of each fork is on the path"
            self._shelve(current, leaving)
            self._rows[branch_id] = msgspec.structs.replace(row, shelved=False)
            self._states[branch_id] = ""
            for each, other in self._rows.items():
                if other.inside == branch_id:
                    self._rows[each] = msgspec.structs.replace(other, inside=None)
            moves.append(BranchMove(row.number, row.kept, current, branch_id))
            leaving = Leaving(row.message_count, state)
        return self._changes(moves)

    def cut(self, number: int) -> BranchChanges:
        """Drop the branches that start after a checkpoint, because everything after it is about to be deleted."""
        return BranchChanges(dropped=tuple(self._after((number + 1, -1))))

    def _after(self, parts_at: tuple[int, int]) -> list[str]:
        """Return the branches that diverge after a position, and those inside them."""
        found = [each for each, row in self._rows.items() if row.inside is None and row.parts_at > parts_at]
        for branch_id in found:  # grows while it is walked
            found += [each for each, row in self._rows.items() if row.inside == branch_id]
        return found

    def _active_at(self, parts_at: tuple[int, int]) -> str | None:
        return next(
            (each for each, row in self._rows.items() if self._is_active(row) and row.parts_at == parts_at), None
        )

    def _is_active(self, row: _About) -> bool:
        return not row.shelved and row.inside is None

    def _length(self, row: _About, message_count: int) -> int:
        if row.shelved:
            return row.message_count
        return message_count if row.inside is None else self._rows[row.inside].message_count

    def _shelve(self, branch_id: str, leaving: Leaving) -> None:
        """Put the end of the path aside, with all branches that diverge in it."""
        left = self._rows[branch_id]
        for each, row in self._rows.items():
            if row.inside is None and row.parts_at > left.parts_at:
                self._rows[each] = msgspec.structs.replace(row, inside=branch_id)
        self._rows[branch_id] = msgspec.structs.replace(left, shelved=True, message_count=leaving.message_count)
        self._states[branch_id] = leaving.state

    def _changes(self, moves: Iterable[BranchMove]) -> BranchChanges:
        rows = [
            BranchRow(branch_id, encode(msgspec.to_builtins(row)), self._states.get(branch_id))
            for branch_id, row in self._rows.items()
            if row != self._before.get(branch_id)
        ]
        return BranchChanges(tuple(moves), tuple(rows))
