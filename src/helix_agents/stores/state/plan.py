"""Decide what a commit does to a session. Pure: no store, no clock, no await.

A backend that can read before it writes (memory, SQLite, a Durable Object) applies a commit in three steps: it fetches
what `needs` names, calls `decide`, and writes the plan. The order of the guards, which cells differ, what must be
retained for earlier checkpoints, the new counters: all of it is decided here.

History: a cell holds its current text, and `since`, the number of checkpoints when it was written. Checkpoint n
includes the cells with a `since` below n. So an overwritten text is retained if a checkpoint includes it, and dropped
otherwise.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from ...types import Owner, SessionState, SessionStatus
from .commit import (
    LIST,
    OBJECT,
    Applied,
    CellName,
    Commit,
    CommitRefused,
    Copy,
    CustomChanges,
    GuardReason,
    Identity,
    KeyContent,
    Slot,
)


class Cell(NamedTuple):
    """The text of a cell, and the number of checkpoints when it was written."""

    text: str
    since: int


class Needs(NamedTuple):
    """What must be read of a session, besides its counters, to decide a commit."""

    cells: Iterable[CellName]
    """Single cells."""
    keys: Iterable[str]
    """Keys that are needed with everything under them."""
    everything: bool
    """Whether everything under every key is needed."""
    lists: Iterable[str]
    """Lists of which the key's own cell and the index after the last item are needed."""
    staged: str | None
    """The step of which kind, tool call and token of all staged rows are needed."""
    discarded: bool
    """Whether the number of rows that `discard_step` or `discard_all` drops is needed."""
    run: bool
    """Whether to read if the run's id is taken, and the turn of the latest run."""


class Counters(NamedTuple):
    """The counters of a session, and its status."""

    version: int
    message_count: int
    checkpoint_count: int
    step_count: int
    resume_count: int
    owner_epoch: int
    status: SessionStatus


class Source(NamedTuple):
    """What must be read of a session that another one copies."""

    incarnation: str
    version: int
    message_count: int
    checkpoint_count: int


class Seen:
    """What a backend read for `needs`. `session` and `identity` are None if there is no session."""

    __slots__ = (
        "cells",
        "discarded",
        "identity",
        "keys",
        "latest_turn",
        "lease",
        "lists",
        "run_is_taken",
        "session",
        "shelved",
        "source",
        "staged",
    )

    def __init__(self) -> None:
        self.session: Counters | None = None
        self.identity: Identity | None = None
        self.source: Source | None = None
        """The session that a new one copies."""
        self.shelved: tuple[int, int] | None = None
        """The numbers of checkpoints and messages once the last branch is restored."""
        self.cells: dict[CellName, Cell] = {}
        self.keys: dict[str, dict[Slot, Cell]] = {}
        self.lists: dict[str, tuple[str, int]] = {}
        """The text of the key's own cell, and the index after the last item."""
        self.staged: frozenset[tuple[str, str, str]] = frozenset()
        self.discarded = 0
        self.run_is_taken = False
        self.lease: tuple[str, int | None] | None = None
        """Status and lease of the run that the commit changes."""
        self.latest_turn = 0
        """The turn of the session's latest run."""

    def text(self, name: CellName) -> str | None:
        """Return the current text of a cell."""
        cell = self.cells.get(name)
        if cell is None and (below := self.keys.get(name.key)) is not None:
            cell = below.get(name.slot)
        if cell is None and name.slot is None and name.key in self.lists:
            return self.lists[name.key][0]
        return None if cell is None else cell.text


class CellPlan(NamedTuple):
    """The changes to cells."""

    put: list[tuple[CellName, str]]
    """New texts of cells, existing or new."""
    drop: list[CellName]
    kept: list[tuple[CellName, Cell]]
    """Texts of changed or deleted cells that a checkpoint includes."""


class Plan(NamedTuple):
    """What to write. The rest of a commit (fields, runs, refs, a flag) is written as it is."""

    after: Counters
    """The session's counters after the write."""
    before: int
    """The number of checkpoints before: `since` of all new cells; retained texts are stored under the next number."""
    first_message: int
    """The index of the first message that is appended."""
    cut: bool
    """Whether there are messages after `keep_messages` to drop."""
    recount: bool
    """Whether checkpoints that counted more messages than remain must be corrected."""
    cells: CellPlan | None
    unstage: str | None
    """The step whose staged rows are deleted because they are promoted."""
    turn: int
    removed: int

    @property
    def applied(self) -> Applied:
        """The result for the caller."""
        after = self.after
        counts = (after.version, after.message_count, after.step_count, after.resume_count)
        return Applied(*counts, self.removed, self.turn)


def needs(commit: Commit) -> Needs:
    """Return what must be read to decide the commit."""
    custom = commit.custom
    keys = () if custom.replace_all else (*_whole_keys(custom), *custom.drop_keys)
    return Needs(
        cells=() if custom.replace_all else _single_cells(custom, keys),
        keys=keys,
        everything=custom.replace_all,
        lists=custom.append,
        staged=None if commit.promote is None else commit.promote.step_id,
        discarded=commit.discard_all or commit.discard_step is not None,
        run=commit.run is not None,
    )


def decide(commit: Commit, seen: Seen) -> CommitRefused | Plan:
    """Return what to write, or why nothing is written: the first violated guard in the order of `Commit`."""
    reason = _refusal(commit, seen)
    if reason is not None:
        return CommitRefused(reason)
    before = seen.session or _NEW
    restored = commit.restore_number
    number = before.checkpoint_count if restored is None else restored
    messages = before.message_count
    if commit.copy is not None and seen.source is not None:
        messages = seen.source.message_count  # of which a checkpoint may include fewer
        if commit.copy.message_count is not None:
            messages = min(messages, commit.copy.message_count)
    for move in commit.branches.moves:
        number, messages = move.number, move.message_count
        if move.returned is not None and seen.shelved is not None:
            number, messages = seen.shelved
    kept_messages = messages if commit.keep_messages is None else min(messages, commit.keep_messages)
    cut = messages - kept_messages
    state = commit.state
    step_count, resume_count, status = before.step_count, before.resume_count, before.status
    if state is not None:
        step_count, resume_count, status = state.step_count, state.resume_count, state.status
    epoch = before.owner_epoch if commit.new_epoch is None else commit.new_epoch
    after = Counters(
        before.version + commit.bump_version,
        kept_messages + len(commit.messages),
        number + (commit.checkpoint is not None),
        step_count + commit.add_steps,
        resume_count + commit.add_resumes,
        state.owner_epoch if commit.create and state is not None else epoch,
        commit.status or status,
    )
    return Plan(
        after=after,
        before=number,
        first_message=kept_messages,
        cut=cut > 0,
        recount=commit.keep_messages is not None and restored is None,  # a restore drops those that counted more
        cells=None if commit.custom.is_empty else _cell_plan(commit.custom, seen, number),
        unstage=commit.promote.step_id if commit.promote is not None and seen.staged else None,
        turn=0 if commit.run is None else commit.run.turn or seen.latest_turn + 1,
        removed=cut + seen.discarded,
    )


def refused_owner(owner: Owner | None, stored: SessionState) -> GuardReason | None:
    """Return why a write of this owner is rejected; None if it is not. For backends that hold whole sessions."""
    if owner is None:
        return None
    if owner.incarnation != stored.incarnation:
        return "missing"
    return "epoch" if owner.epoch not in (None, stored.owner_epoch) else None


def content_cells(content: KeyContent) -> dict[Slot, str]:
    """Return all cells of a key."""
    cells: dict[Slot, str] = {None: content.text}
    if content.text == LIST:
        cells.update(enumerate(content.items))
    elif content.text == OBJECT:
        cells.update(content.members)
    return cells


def is_one_cell(changes: CustomChanges, key: str, content: KeyContent) -> bool:
    """Return whether a key holds one plain value before and after, so that no cells under it must be deleted."""
    before = changes.expected.get(CellName(key))
    return content.text not in (LIST, OBJECT) and before not in (None, LIST, OBJECT) and not changes.replace_all


_NEW = Counters(1, 0, 0, 0, 0, 0, "active")


def _whole_keys(custom: CustomChanges) -> Iterable[str]:
    """Return keys that are set and may have had cells under them before."""
    return [key for key, content in custom.set_keys.items() if not is_one_cell(custom, key, content)]


def _single_cells(custom: CustomChanges, keys: Collection[str]) -> Iterable[CellName]:
    """Return the cells to read one by one, except those under `keys`; a list's own cell is read with its end."""
    names: Iterable[CellName] = custom.expected
    if custom.set_cells or custom.drop_cells:
        names = {**custom.expected, **custom.set_cells, **dict.fromkeys(custom.drop_cells)}
    return [name for name in names if name[0] not in keys and (name[1] is not None or name[0] not in custom.append)]


def _refusal(commit: Commit, seen: Seen) -> GuardReason | None:
    session = seen.session
    if commit.create:
        if session is not None:
            return "exists"
        if commit.copy is not None and (reason := _refused_copy(commit.copy, seen.source)) is not None:
            return reason
    elif session is None or seen.identity is None:
        return "missing"
    elif (reason := _refused_session(commit, session, seen.identity)) is not None:
        return reason
    if commit.promote is not None and seen.staged != frozenset(commit.promote.rows):
        return "staged"
    for name, text in commit.custom.expected.items():
        if seen.text(name) != text:
            return "cells"
    if seen.run_is_taken:
        return "run"
    change = commit.change_run
    if change is not None and seen.lease != (change.seen.status, change.seen.lease_until):
        return "lease"
    if session is not None and not _can_go_back(commit, session):
        return "checkpoint"
    return None


def _can_go_back(commit: Commit, session: Counters) -> bool:
    """Return whether the session still has the position that the commit returns to."""
    if commit.restore_number is not None and commit.restore_number > session.checkpoint_count:
        return False
    for move in commit.branches.moves[:1]:  # the others part in what the first one brings back
        return move.number <= session.checkpoint_count and move.message_count <= session.message_count
    return True


def _refused_copy(copy: Copy, source: Source | None) -> GuardReason | None:
    if source is None or source.incarnation != copy.incarnation:
        return "missing"
    if source.version != copy.version:
        return "version"
    if copy.number is not None and copy.number > source.checkpoint_count:
        return "checkpoint"
    return None


def _refused_session(commit: Commit, session: Counters, identity: Identity) -> GuardReason | None:
    owner = commit.owner
    if owner is not None and owner.incarnation != identity.incarnation:
        return "missing"
    if commit.expected_version is not None and commit.expected_version != session.version:
        return "version"
    if owner is not None and owner.epoch is not None and owner.epoch != session.owner_epoch:
        return "epoch"
    if commit.new_epoch is not None and commit.new_epoch <= session.owner_epoch:
        return "epoch"
    if commit.state is not None and commit.restore_number is None and Identity.of(commit.state).difference(identity):
        return "identity"
    if commit.allowed_from and session.status not in commit.allowed_from:
        return "version"
    return None


def _cell_plan(custom: CustomChanges, seen: Seen, number: int) -> CellPlan:
    """Return the changes to cells. `number`: that of the last checkpoint."""
    plan = CellPlan([], [], [])
    for name, text in custom.set_cells.items():
        _put(plan, name, seen.cells.get(name), text, number)
    for key, content in custom.set_keys.items():
        name = CellName(key)
        if is_one_cell(custom, key, content):
            _put(plan, name, seen.cells.get(name), content.text, number)
            continue
        old = seen.keys.get(key, {})
        new = content_cells(content)
        for slot, text in new.items():
            _put(plan, CellName(key, slot), old.get(slot), text, number)
        for slot, cell in old.items():
            if slot not in new:
                _drop(plan, CellName(key, slot), cell, number)
    for key, cells in seen.keys.items():
        if key not in custom.set_keys:
            for slot, cell in cells.items():
                _drop(plan, CellName(key, slot), cell, number)
    for name in custom.drop_cells:
        if (found := seen.cells.get(name)) is not None:
            _drop(plan, name, found, number)
    for key, items in custom.append.items():
        end = seen.lists[key][1] if key in seen.lists else 0
        plan.put.extend([(CellName(key, index), text) for index, text in enumerate(items, start=end)])
    return plan


def _put(plan: CellPlan, name: CellName, cell: Cell | None, text: str, number: int) -> None:
    if cell is None:
        plan.put.append((name, text))
    elif cell.text != text:
        plan.put.append((name, text))
        if cell.since < number:
            plan.kept.append((name, cell))


def _drop(plan: CellPlan, name: CellName, cell: Cell, number: int) -> None:
    plan.drop.append(name)
    if cell.since < number:
        plan.kept.append((name, cell))
