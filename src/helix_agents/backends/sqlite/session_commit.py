"""Commits that store a session, on SQLite: the shortcut for what every step of every agent writes.

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

from ...codec import encode, escape_text
from ...stores.state.commit import LIST, Applied, Commit
from ..sql import rows
from ..sql.driver import GuardTripped, Row
from ..sql.queries import Queries
from .cell_writes import CellWrites, FoundCells, cell_place
from .row_statements import RowStatements

_PLAIN = [None] * 7
"""What a running session has for content."""


class SessionCommits:
    """The statements, for tables with one prefix. `run` is called on the driver's thread, inside a transaction."""

    def __init__(self, prefix: str) -> None:
        self._statements = RowStatements(Queries("session_commit", "sqlite", prefix, package=__package__))

    def run(self, connection: sqlite3.Connection, commits: Sequence[Commit]) -> list[Applied | GuardTripped]:
        """Make commits that `only_store_a_session` visible; of one whose guard trips nothing is written."""
        if len(commits) == 1 or len({commit.session_id for commit in commits}) == len(commits):
            return self._together(connection, commits)
        # Commits of one session see each other.
        return [answer for commit in commits for answer in self._together(connection, [commit])]

    def _together(self, connection: sqlite3.Connection, commits: Sequence[Commit]) -> list[Applied | GuardTripped]:
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
        sessions = [(at, each.step_id, each.commit.session_id) for at, each in enumerate(commits)]
        for session in run(connection, "session", sessions):
            commits[session[0]].session = session
        self._look_at_cells(connection, commits)
        lists = [(each, key) for each in commits for key in each.commit.custom.append]
        ends = [(at, each.commit.session_id, escape_text(key)) for at, (each, key) in enumerate(lists)]
        for at, slot, text in run(connection, "tail", ends):
            each, key = lists[at]
            each.cells.ends[key] = (int(slot[1:]) + 1, LIST) if slot else (0, text)

    def _look_at_cells(self, connection: sqlite3.Connection, commits: list[_Found]) -> None:
        cells = [(each, name) for each in commits for name in each.cells.names()]
        places = [(at, *cell_place(each.commit.session_id, name)) for at, (each, name) in enumerate(cells)]
        for cell in self._statements.run(connection, "cell", places):
            each, name = cells[cell[0]]
            each.cells.single[name] = cell
        below = [(at, each.commit.session_id, each.cells) for at, each in enumerate(commits) if each.cells.looks_below]
        if below:
            self._look_below(connection, below)

    def _look_below(self, connection: sqlite3.Connection, found: list[tuple[int, str, FoundCells]]) -> None:
        all_of: list[Row] = [(at, session_id) for at, session_id, cells in found if cells.custom.replace_all]
        keys: list[Row] = [
            (at, session_id, escape_text(key))
            for at, session_id, cells in found
            if not cells.custom.replace_all
            for key in (*cells.whole, *cells.custom.drop_keys)
        ]
        below = {at: cells.below for at, _, cells in found}
        run = self._statements.run
        for row in (*run(connection, "all_cells", all_of), *run(connection, "cells_below", keys)):
            at, key, slot = row[:3]
            below[at].setdefault(key, {})[slot] = row[3:]


@cache
def session_commits(prefix: str) -> SessionCommits:
    """The one for tables with that prefix: stores that share a driver share transactions by sharing this."""
    return SessionCommits(prefix)


class _Found:
    """A commit, and what the database holds of all that it touches."""

    __slots__ = ("cells", "commit", "session", "step_id")

    def __init__(self, commit: Commit) -> None:
        self.commit = commit
        self.step_id = None if commit.promote is None else commit.promote.step_id
        self.session: Row | None = None
        self.cells = FoundCells(commit.custom)


class _Writes(CellWrites):
    """Rows to write, by the statement that writes them."""

    def __init__(self) -> None:
        super().__init__()
        self.unstage: list[Row] = []
        self.insert_message: list[Row] = []
        self.count: list[Row] = []
        self.describe: list[Row] = []
        self.relabel: list[Row] = []
        self.insert_checkpoint: list[Row] = []


def _judged(found: _Found, writes: _Writes) -> Applied | GuardTripped:
    """The outcome of a commit; what it wants written is added to `writes`."""
    commit, promote, state, checkpoint = found.commit, found.commit.promote, found.commit.state, found.commit.checkpoint
    assert state is not None
    if found.session is None:
        return GuardTripped("missing")
    _, place, version, message_count, number, staged, is_plain = found.session[:7]
    if commit.expected_version is not None and commit.expected_version != version:
        return GuardTripped("version")
    if promote is not None and _rows_of(staged) != sorted(map("\x1f".join, promote.rows)):
        return GuardTripped("staged")
    for name, text in commit.custom.expected.items():
        if found.cells.text(name) != text:
            return GuardTripped("cells")

    session_id, now = commit.session_id, commit.now
    kept = writes.change(session_id, found.cells, number)
    if staged:
        writes.unstage.append((session_id, found.step_id))
    for text in commit.messages:
        writes.insert_message.append((session_id, message_count, text, now))
        message_count += 1
    version += 1
    if checkpoint is None:
        writes.keep(session_id, kept, number)
    else:
        number += 1
        *about, fields = checkpoint
        seen = (message_count, state.status, version)
        overwritten = encode(kept) if kept else None
        writes.insert_checkpoint.append((session_id, number, *about, *seen, fields, now, overwritten))
    step_count, resume_count, *content = rows.content_columns(state)
    writes.count.append((now, version, message_count, number, step_count, resume_count, place))
    if not is_plain or content != _PLAIN:
        writes.describe.append((*content, place))
    labels = rows.label_columns(state)
    if labels != found.session[7:]:
        writes.relabel.append((*labels, place))
    return Applied(version, message_count, state.step_count, state.resume_count)


def _rows_of(staged: str | None) -> list[str]:
    """Staged rows as `session_commit.sql` lists them, tool call and token of each."""
    return sorted(staged.split("\x1e")) if staged else []
