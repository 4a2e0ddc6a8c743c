"""Branches in the model: every end that was left is a copy of the whole conversation, with the path to it.

To switch to a branch, walk from the current end to the end that was left last with this branch on its path, one fork at
a time. How a store arranges what it moves is not specified.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ....errors import InvalidArgument
from ....types import Branch, BranchPoint, Checkpoint, SessionState


class Fork(NamedTuple):
    """One branch on a path: where it starts, and what is listed about it."""

    number: int
    kept: int
    branch_id: str
    message_id: str | None


Way = tuple[Fork, ...]


class End(NamedTuple):
    """A whole conversation, with the branches on the path to it."""

    way: Way
    messages: list[Any]
    checkpoints: list[Checkpoint]
    staged: dict[Any, Any]
    state: SessionState


class Branches:
    """The branches of one session: the path to the current end, and the ends that were left, oldest first."""

    def __init__(self) -> None:
        self.way: Way = ()
        self.ends: list[End] = []

    def listed(self, message_count: int) -> list[Branch]:
        """Return all branches, each with the length of the latest conversation that had it on its path."""
        found: dict[str, Branch] = {}
        for end in self.ends:
            for fork in end.way:
                found[fork.branch_id] = Branch(fork.branch_id, fork.message_id, len(end.messages), 0, False)
        for fork in self.way:
            found[fork.branch_id] = Branch(fork.branch_id, fork.message_id, message_count, 0, True)
        return list(found.values())

    def leave(self, present: End, point: BranchPoint, number: int) -> str | None:
        """Leave the current end for a new branch; return the branch that is active then."""
        at = (number, point.message_count)
        current = next((fork for fork in self.way if fork[:2] == at), None)
        if len(present.messages) <= point.message_count:
            self._cut(at)
            return None if current is None else current.branch_id
        if current is None:
            current = Fork(*at, f"left of {point.branch_id}", point.message_id)
            self.ends = [end._replace(way=self._with(end.way, current)) for end in self.ends]
            self.way = self._with(self.way, current)
        self.ends.append(present._replace(way=self.way))
        self.way = (*_before(self.way, at), Fork(*at, point.branch_id, point.message_id))
        return point.branch_id

    def _with(self, way: Way, fork: Fork) -> Way:
        """Return a path with one more fork, if the path passes the point."""
        at = fork[:2]
        if _before(way, at) != _before(self.way, at):
            return way
        return (*_before(way, at), fork, *way[len(_before(way, at)) :])

    def walk(self, present: End, branch_id: str) -> list[End]:
        """Return all ends after a walk to a branch, with the branch's end last; none if the branch is already on
        the path."""
        now, ends = present._replace(way=self.way), list(self.ends)
        while all(fork.branch_id != branch_id for fork in now.way):
            target = _last_with(ends, branch_id)
            head = next(fork for fork in target.way if fork not in now.way)
            chosen = _last_with(ends, head.branch_id)
            if len(now.messages) < head.kept:
                raise InvalidArgument("The branch starts after a message that no longer exists.")
            ends.remove(chosen)
            ends.append(now)
            now = End(
                chosen.way,
                now.messages[: head.kept] + chosen.messages[head.kept :],
                now.checkpoints[: head.number - 1] + chosen.checkpoints[head.number - 1 :],
                chosen.staged,
                chosen.state,
            )
        return [] if now.way == self.way else [*ends, now]

    def arrive(self, ends: list[End]) -> None:
        """Make the last of these ends the current one."""
        *self.ends, now = ends
        self.way = now.way

    def cut(self, number: int) -> None:
        """Drop branches that start after a checkpoint."""
        self._cut((number + 1, -1))

    def _cut(self, at: tuple[int, int]) -> None:
        def parts_at(end: End) -> tuple[int, int]:
            return next(fork[:2] for fork in end.way if fork not in self.way)

        self.ends = [end for end in self.ends if parts_at(end) <= at]
        self.way = tuple(fork for fork in self.way if fork[:2] <= at)


def _before(way: Way, at: tuple[int, int]) -> Way:
    return tuple(fork for fork in way if fork[:2] < at)


def _last_with(ends: list[End], branch_id: str) -> End:
    end: End
    for end in reversed(ends):
        if any(fork.branch_id == branch_id for fork in end.way):
            return end
    raise InvalidArgument("There is no such branch.")
