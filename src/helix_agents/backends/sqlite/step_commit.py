"""The step commit on SQLite: the shortcut for the write that every step of every agent makes.

The general way (`sql/commit_sql.py`) is a batch that carries its conditions in SQL, because most technologies cannot
look before they write. Here the writer has the database to itself for the length of a transaction: it reads the rows
that matter, judges them in Python and writes with bound values. The commits of many sessions that share a transaction
are read together and written together, a table at a time. The effect is exactly that of the general way, which the
same conformance kit checks under D1's limits.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import cache

from ...codec import escape_text
from ...stores.commit import LIST, Applied, CellName, Commit
from ..sql import rows
from ..sql.driver import GuardTripped, Row
from ..sql.queries import Queries
from .row_statements import RowStatements


class StepCommits:
    """The statements, for tables with one prefix. `run` is called on the driver's thread, inside a transaction."""

    def __init__(self, prefix: str) -> None:
        self._statements = RowStatements(Queries("step_commit", "sqlite", prefix, package=__package__))

    def run(self, connection: sqlite3.Connection, commits: Sequence[Commit]) -> list[Applied | GuardTripped]:
        """Make commits that are `is_step_commit` visible; of one whose guard trips nothing is written.

        Two of one session would both take the next number of a checkpoint: that raises, and the driver undoes all and
        runs them one by one.
        """
        found = [_Found(commit) for commit in commits]
        self._look(connection, found)
        writes = _Writes()
        answers = [_judged(each, writes) for each in found]
        for name, wanted in vars(writes).items():
            if wanted:
                self._statements.run(connection, name, wanted)
        return answers

    def _look(self, connection: sqlite3.Connection, commits: list[_Found]) -> None:
        run = self._statements.run
        sessions: list[Row] = []
        places: list[Row] = []
        cells: list[tuple[_Found, CellName]] = []
        ends: list[Row] = []
        lists: list[tuple[_Found, str]] = []
        for at, each in enumerate(commits):
            session_id, custom = each.commit.session_id, each.commit.custom
            sessions.append((at, session_id, each.step_id))
            for name in {**custom.expected, **custom.set_cells} if custom.set_cells else custom.expected:
                key, slot = name
                if slot is not None or key not in custom.append:  # else the end of the list tells
                    places.append((len(cells), *_columns(session_id, name)))
                    cells.append((each, name))
            for key in custom.append:
                ends.append((len(lists), session_id, escape_text(key)))
                lists.append((each, key))
        for session in run(connection, "session", sessions):
            commits[session[0]].session = session
        for cell in run(connection, "cell", places):
            each, name = cells[cell[0]]
            each.cells[name] = cell
        for at, slot, text in run(connection, "tail", ends):
            each, key = lists[at]
            each.ends[key] = (int(slot[1:]) + 1, LIST) if slot else (0, text)


@cache
def step_commits(prefix: str) -> StepCommits:
    """The one for tables with that prefix: stores that share a driver share transactions by sharing this."""
    return StepCommits(prefix)


class _Found:
    """A commit, and what the database holds of all that it touches."""

    __slots__ = ("cells", "commit", "ends", "session", "step_id")

    def __init__(self, commit: Commit) -> None:
        self.commit = commit
        self.step_id = None if commit.promote is None else commit.promote.step_id
        self.session: Row | None = None
        self.cells: dict[CellName, Row] = {}
        """Rows of `cell`, for those that are there; a list's own cell is not looked for if its end is."""
        self.ends: dict[str, tuple[int, str]] = {}
        """The place behind the last item of a list, and what the key's own cell says: only lists have items."""

    def text(self, name: CellName) -> str | None:
        """What a cell says now."""
        if (cell := self.cells.get(name)) is not None:
            return str(cell[2])
        end = self.ends.get(name.key) if name.slot is None else None
        return None if end is None else end[1]


class _Writes:
    """Rows to write, by the statement that writes them."""

    def __init__(self) -> None:
        self.unstage: list[Row] = []
        self.insert_message: list[Row] = []
        self.change_cell: list[Row] = []
        self.insert_cell: list[Row] = []
        self.update: list[Row] = []
        self.relabel: list[Row] = []
        self.insert_checkpoint: list[Row] = []


def _judged(found: _Found, writes: _Writes) -> Applied | GuardTripped:
    """The outcome of a commit; what it wants written is added to `writes`."""
    commit, promote, state, checkpoint = found.commit, found.commit.promote, found.commit.state, found.commit.checkpoint
    assert state is not None
    assert checkpoint is not None
    if found.session is None:
        return GuardTripped("missing")
    _, place, version, message_count, number, staged = found.session[:6]
    if commit.expected_version is not None and commit.expected_version != version:
        return GuardTripped("version")
    if promote is not None and _rows_of(staged) != sorted(map("\x1f".join, promote.rows)):
        return GuardTripped("staged")
    for name, text in commit.custom.expected.items():
        if found.text(name) != text:
            return GuardTripped("cells")

    session_id, now = commit.session_id, commit.now
    _change_cells(found, number, writes)
    if staged:
        writes.unstage.append((session_id, found.step_id))
    for text in commit.messages:
        writes.insert_message.append((session_id, message_count, text, now))
        message_count += 1
    version, number = version + 1, number + 1
    writes.update.append((place, now, version, message_count, number, *rows.content_columns(state)))
    wanted = rows.label_columns(state)
    if wanted != found.session[6:]:
        writes.relabel.append((place, *wanted))
    *about, fields = checkpoint
    seen = (message_count, state.status, version)
    writes.insert_checkpoint.append((session_id, number, *about, *seen, fields, now))
    return Applied(version, message_count, state.step_count, state.resume_count)


def _rows_of(staged: str | None) -> list[str]:
    """Staged rows as `step_commit.sql` lists them, tool call and token of each."""
    return sorted(staged.split("\x1e")) if staged else []


def _columns(session_id: str, name: CellName) -> tuple[str, str, str]:
    """Where a cell is."""
    key, slot = name
    return session_id, escape_text(key), rows.slot_text(slot)


def _change_cells(found: _Found, number: int, writes: _Writes) -> None:
    """`number`: of the last checkpoint, which has seen all cells born before it and must go on seeing them."""
    custom, session_id = found.commit.custom, found.commit.session_id
    wanted = custom.set_cells
    if custom.set_keys:
        wanted = wanted | {CellName(key): content.text for key, content in custom.set_keys.items()}
    for name, text in wanted.items():
        cell = found.cells.get(name)
        if cell is None:
            writes.insert_cell.append((*_columns(session_id, name), text, number, None))
            continue
        _, place, old, born = cell
        if old != text:
            if born < number:
                writes.insert_cell.append((*_columns(session_id, name), old, born, number))
            writes.change_cell.append((place, text, number))
    for key, items in custom.append.items():
        end = found.ends.get(key)
        for index, text in enumerate(items, start=0 if end is None else end[0]):
            writes.insert_cell.append((session_id, escape_text(key), rows.slot_text(index), text, number, None))
